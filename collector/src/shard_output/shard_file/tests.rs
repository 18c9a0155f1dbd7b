use super::*;
use proptest::prelude::*;
use rpd_shard::Shard;
use rpd_shard::file::BlockKind;
use rpd_shard::model::native::RANGE;
use rpd_shard::model::rocpd::{INFO_THREAD, STRING};
use rpd_shard::model::{Kind, TableId, Value};
use rpd_shard::record::{Clock, ClockDomain, ClockSet, LossCause, Node, Process, ProcessExit};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// More bytes than the end of the small shards here needs, clocks and processes included.
const ROOM_FOR_THE_END: u64 = 3000;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// Writes what fits, then reports that there is no space.
    Partial,
    /// Writes everything or nothing.
    Whole,
    /// Refuses to overwrite as well, until the file is truncated: copy on write.
    CopyOnWrite,
    /// Refuses everything after the first error.
    Broken,
}

/// A file system with room for a number of bytes.
struct Small {
    bytes: RefCell<Vec<u8>>,
    longest: Cell<usize>,
    room: usize,
    fault: Fault,
    broken: Cell<bool>,
}

impl Small {
    fn new(room: usize, fault: Fault) -> Small {
        let (bytes, longest, broken) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Small { bytes, longest, room, fault, broken }
    }
}

impl ShardDisk for &Small {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<usize> {
        let mut bytes = self.bytes.borrow_mut();
        let offset = usize::try_from(offset).unwrap();
        let room = self.room.saturating_sub(offset);
        let fits = match self.fault {
            _ if self.broken.get() => 0,
            Fault::Whole if new.len() > room => 0,
            Fault::CopyOnWrite if offset < bytes.len() => 0,
            _ => new.len().min(room),
        };
        if fits == 0 {
            self.broken.set(self.fault == Fault::Broken);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let end = bytes.len().max(offset + fits);
        bytes.resize(end, 0);
        bytes[offset..offset + fits].copy_from_slice(&new[..fits]);
        self.longest.set(self.longest.get().max(end));
        Ok(fits)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        if self.broken.get() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.borrow_mut().truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

fn identity() -> RunIdentity {
    RunIdentity {
        run_id: "17.0".into(),
        run_id_from: "SLURM_JOB_ID".into(),
        rank: Some(3),
        size: Some(4),
        version: "0.1.0".into(),
    }
}

fn domain() -> ClockDomain {
    ClockDomain { boot_id: "b".into(), time_namespace: 1 }
}

fn process(source: u32) -> Process {
    Process {
        source,
        rank: Some(3),
        size: Some(4),
        local_rank: Some(1),
        rank_from: None,
        worker: false,
        restart: 0,
        node: Node::default(),
        domain: domain(),
        clock: Clock::Boottime,
        pid: 100,
        ppid: 1,
        start_ticks: 7,
        first_seen: 1_000,
        last_seen: None,
        command: "python train.py".into(),
        environment: Vec::new(),
        exit: None,
    }
}

/// An operation on a shard.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Rows of a source: a thread, and ranges with names up to this number.
    Rows {
        source: u32,
        ranges: u16,
        names: u16,
    },
    Clock,
    Flush,
}

type Counts = BTreeMap<(u32, TableId), u64>;

/// Runs the steps. Returns the rows that the shard was given, and how it ended.
fn play(disk: &Small, most_bytes: u64, steps: &[Step]) -> (Counts, ShardCompletion) {
    let mut file = ShardFile::new(disk, &identity(), most_bytes).unwrap();
    let mut given = Counts::new();
    let mut names = std::collections::BTreeSet::new();
    let mut time = 0;
    for source in [1, 2] {
        file.writer.process(&process(source)).unwrap();
    }
    for step in steps {
        time += 1000;
        let writer = &mut file.writer;
        match *step {
            Step::Rows { source, ranges, names: most } => {
                let row = [1.into(), 1.into(), 1.into(), time.into()];
                let thread = writer.push(source, INFO_THREAD, &row).unwrap();
                *given.entry((source, INFO_THREAD)).or_default() += 1;
                assert_eq!(thread, given[&(source, INFO_THREAD)] as i64, "keys go on");
                for i in 0..i64::from(ranges) {
                    let text = format!("name {:x}", (time + i) * 2_654_435_761 % (i64::from(most) + 1));
                    let name = writer.string(text.as_bytes()).unwrap();
                    names.insert(text);
                    let row =
                        [thread.into(), (time + i).into(), Value::Null, name.into(), i.into(), 0.into()];
                    writer.push(source, RANGE, &row).unwrap();
                }
                *given.entry((source, RANGE)).or_default() += u64::from(ranges);
                let _ = file.write_if_much();
            }
            Step::Clock => {
                let (boottime, domain) = (time, domain());
                let set =
                    ClockSet { domain, boottime, monotonic_raw: 4, monotonic: 3, realtime: 900, bracket: 1 };
                writer.clock(&set).unwrap();
            }
            Step::Flush => {
                let _ = file.flush();
            }
        }
    }
    given.insert((0, STRING), names.len() as u64);
    given.retain(|_, rows| *rows > 0);
    let mut ended = process(1);
    ended.exit = Some(ProcessExit::Code(0));
    file.writer.process(&ended).unwrap();
    let (_, ended) = file.finish();
    (given, ended)
}

/// Checks the shard in the file. Returns the number of its rows.
fn check(disk: &Small, given: &Counts, ended: &ShardCompletion) -> u64 {
    let bytes = disk.bytes.borrow();
    if let ShardCompletion::Cut(0, _) = ended
        && disk.fault != Fault::Broken
    {
        assert!(bytes.is_empty());
        return 0;
    }
    let Ok(shard) = Shard::from_memory("s", &bytes) else {
        assert!(matches!(ended, ShardCompletion::Cut(0, _)), "of {} bytes, not a shard", bytes.len());
        return 0;
    };
    let complete = matches!(ended, ShardCompletion::Complete);
    // Damage after the ledger leaves the ledger intact.
    assert!(shard.complete() == complete || disk.fault == Fault::Broken && !complete);
    assert!(shard.damage().is_empty() || disk.fault == Fault::Broken && !complete);
    let (strings, damaged) = shard.strings();
    assert!(damaged.is_empty());
    let mut read = Counts::new();
    for block in shard.blocks() {
        let BlockKind::Rows(table) = block.header.kind else { continue };
        let rows = shard.rows(block).unwrap();
        let count = read.entry((block.header.source, table)).or_default();
        assert_eq!(rows.keys.get(0), *count as i64 + 1, "keys are dense");
        *count += rows.len as u64;
        for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
            let ids = (0..rows.len).filter_map(|i| cells.int(i));
            match column.kind {
                Kind::Str => ids.for_each(|id| assert!(strings.get(id).is_some(), "string {id}")),
                Kind::Ref(INFO_THREAD) => {
                    let threads = read.get(&(block.header.source, INFO_THREAD)).copied().unwrap_or(0);
                    ids.for_each(|id| assert!(id as u64 <= threads, "thread {id}"));
                }
                _ => {}
            }
        }
    }
    if let Some(ledger) = &shard.ledger {
        // A few hundred bytes hold the ledger and nothing else.
        if bytes.len() > ROOM_FOR_THE_END as usize / 2 {
            assert_eq!(shard.processes[&1].exit, Some(ProcessExit::Code(0)));
            assert_eq!(shard.processes.len(), 2);
        }
        for (source, table, rows) in &ledger.written {
            assert_eq!(
                read.get(&(*source, *table)).copied().unwrap_or(0),
                *rows,
                "{table} as the ledger says"
            );
        }
        let mut all = read.clone();
        for loss in &ledger.losses {
            assert_eq!(loss.cause, LossCause::NoSpace);
            *all.entry((loss.source, loss.table.unwrap())).or_default() += loss.rows.unwrap();
        }
        assert_eq!(all, *given);
    }
    read.values().sum()
}

fn small_steps() -> Vec<Step> {
    let mut steps = vec![Step::Clock];
    for round in 0..6 {
        steps.push(Step::Rows { source: 1, ranges: 40 + round, names: 20 * round });
        steps.push(Step::Rows { source: 2, ranges: 7, names: 300 });
        steps.push(Step::Clock);
        steps.push(Step::Flush);
    }
    steps
}

#[test]
fn a_disk_that_is_full_after_any_byte_leaves_a_shard_that_accounts_for_every_row() {
    let plenty = Small::new(usize::MAX, Fault::Partial);
    let (given, ended) = play(&plenty, u64::MAX, &small_steps());
    let all = check(&plenty, &given, &ended);
    assert_eq!(all, given.values().sum::<u64>());
    let whole = plenty.longest.get();
    for fault in [Fault::Partial, Fault::Whole, Fault::CopyOnWrite, Fault::Broken] {
        let mut most = 0;
        let step = if fault == Fault::Partial { 1 } else { 5 };
        for room in (0..=whole).rev().step_by(step) {
            let disk = Small::new(room, fault);
            let (given, ended) = play(&disk, u64::MAX, &small_steps());
            let rows = check(&disk, &given, &ended);
            let complete = matches!(ended, ShardCompletion::Complete);
            // With `All` the file must have received a piece of the size of the end before.
            let enough = if fault == Fault::Whole { 2 * ROOM_FOR_THE_END } else { ROOM_FOR_THE_END };
            assert!(complete || fault == Fault::Broken || room < enough as usize, "{fault:?} {room}");
            assert_eq!(rows == all && complete, room >= whole, "{fault:?} {room}");
            most = most.max(rows);
        }
        assert_eq!(most, all);
    }
}

#[test]
fn a_shard_never_grows_past_its_limit() {
    let plenty = Small::new(usize::MAX, Fault::Partial);
    let (given, ended) = play(&plenty, u64::MAX, &small_steps());
    let all = check(&plenty, &given, &ended);
    let whole = plenty.longest.get() as u64;
    for limit in 0..whole + ROOM_FOR_THE_END + 10 {
        let disk = Small::new(usize::MAX, Fault::Partial);
        let (given, ended) = play(&disk, limit, &small_steps());
        let rows = check(&disk, &given, &ended);
        assert!(disk.longest.get() as u64 <= limit, "{limit}: {}", disk.longest.get());
        let complete = matches!(ended, ShardCompletion::Complete);
        assert!(complete || limit < ROOM_FOR_THE_END, "{limit}");
        assert!(rows < all || limit >= whole, "{limit}");
        assert!(rows == all || limit < whole + ROOM_FOR_THE_END, "{limit}: only {rows} rows");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = (1u32..3, 0u16..3000, 0u16..u16::MAX);
    let step = prop_oneof![
        4 => rows.prop_map(|(source, ranges, names)| Step::Rows { source, ranges, names }),
        1 => Just(Step::Clock),
        2 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn larger_shards_account_for_every_row_too(
        steps in steps(),
        share in 0u64..1100,
        by_limit in any::<bool>(),
        fault in prop_oneof![Just(Fault::Partial), Just(Fault::Whole), Just(Fault::CopyOnWrite)],
    ) {
        let plenty = Small::new(usize::MAX, Fault::Partial);
        play(&plenty, u64::MAX, &steps);
        let room = plenty.longest.get() as u64 * share / 1000;
        let (most, limit) = if by_limit { (usize::MAX, room) } else { (room as usize, u64::MAX) };
        let disk = Small::new(most, fault);
        let (given, ended) = play(&disk, limit, &steps);
        check(&disk, &given, &ended);
        prop_assert!(disk.longest.get() as u64 <= room);
    }
}
