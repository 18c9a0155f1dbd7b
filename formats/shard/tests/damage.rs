//! Tests of shards that are truncated, corrupted or hostile.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use rpd_shard::file::{BlockHeader, BlockKind};
use rpd_shard::model::{OwnedValue, TableId, Value, native, rocpd};
use rpd_shard::record::{
    Clock, ClockDomain, ClockSet, Loss, LossCause, Node, Probe, ProbeBurst, Process, ProcessExit,
    ProfilerLoss, ProfilerLossReason, RunIdentity, Selection,
};
use rpd_shard::{OpenError, Shard, ShardWriter, Version};
use std::collections::BTreeMap;
use support::burst;

type Table = BTreeMap<i64, Vec<OwnedValue>>;
type Contents = BTreeMap<(u32, TableId), Table>;

fn identity() -> RunIdentity {
    RunIdentity {
        run_id: "17.0".into(),
        run_id_from: "SLURM_JOB_ID".into(),
        rank: Some(3),
        size: Some(4),
        version: "0.1.0".into(),
    }
}

fn process(source: u32) -> Process {
    let domain = ClockDomain { boot_id: "b".into(), time_namespace: 1 };
    Process {
        source,
        rank: Some(3),
        size: Some(4),
        local_rank: Some(1),
        rank_from: Some("SLURM_PROCID".into()),
        worker: false,
        restart: 0,
        node: Node {
            machine_id: "m".into(),
            boot_id: "b".into(),
            hostname: "node".into(),
            ..Node::default()
        },
        domain,
        clock: Clock::Boottime,
        pid: 100 + source as i32,
        ppid: 1,
        start_ticks: 7,
        first_seen: 1_000,
        last_seen: None,
        command: "python train.py".into(),
        environment: vec![("SLURM_PROCID".into(), "3".into())],
        exit: None,
    }
}

fn profiler_loss(profiler: &str) -> ProfilerLoss {
    ProfilerLoss { profiler: profiler.into(), rank: Some(3), reason: ProfilerLossReason::Killed }
}

fn with_kernel_times(burst: ProbeBurst) -> ProbeBurst {
    ProbeBurst { kernel_times: true, ..burst }
}

/// Returns a shard of two processes with several small blocks.
fn small_shard() -> Vec<u8> {
    let mut shard = ShardWriter::new(Vec::new(), &identity()).unwrap();
    for source in [1, 2] {
        shard.process(&process(source)).unwrap();
    }
    let domain = ClockDomain { boot_id: "b".into(), time_namespace: 1 };
    let set = ClockSet { domain, boottime: 5, monotonic_raw: 4, monotonic: 3, realtime: 900, bracket: 1 };
    shard.clock(&set).unwrap();
    shard.probes(&burst(1)).unwrap();
    shard.selection(&Selection::of([(3, 3), (8, 15)])).unwrap();
    for batch in 0..4i64 {
        for source in [1u32, 2] {
            let tid = shard.push(source, rocpd::INFO_THREAD, &[1.into(), 1.into(), 1.into(), batch.into()]);
            let tid = tid.unwrap();
            for i in 0..5 {
                let name = shard.string(format!("phase {}", (batch + i) % 6).as_bytes()).unwrap();
                let start = 1_000 * batch + 10 * i;
                let end = if i == 4 { Value::Null } else { (start + 7).into() };
                let row = [tid.into(), start.into(), end, name.into(), (i + 1).into(), 0.into()];
                shard.push(source, native::RANGE, &row).unwrap();
            }
        }
        shard.flush().unwrap();
    }
    shard.loss(Loss { source: 1, table: None, cause: LossCause::RingFull, rows: Some(9) });
    shard.profiler_loss(&profiler_loss("rocprofv3")).unwrap();
    shard.probes(&with_kernel_times(burst(5_000))).unwrap();
    let mut ended = process(1);
    ended.exit = Some(ProcessExit::Code(0));
    shard.process(&ended).unwrap();
    shard.finish().unwrap()
}

/// Returns all readable rows by table and key, and the number of unreadable blocks.
fn contents(shard: &Shard) -> (Contents, usize) {
    let mut all = Contents::new();
    let mut unreadable = 0;
    for block in shard.blocks() {
        let BlockKind::Rows(table) = block.header.kind else { continue };
        match shard.rows(block) {
            Err(_) => unreadable += 1,
            Ok(rows) => {
                let into = all.entry((block.header.source, table)).or_default();
                for i in 0..rows.len {
                    let row = rows.columns.iter().map(|c| c.get(i).to_owned()).collect();
                    into.insert(rows.keys.get(i), row);
                }
            }
        }
    }
    (all, unreadable)
}

#[test]
fn what_was_written_is_read() {
    let bytes = small_shard();
    let shard = Shard::from_memory("s", &bytes).unwrap();
    assert!(shard.complete() && shard.damage().is_empty());
    assert_eq!(shard.identity, identity());
    assert_eq!(shard.processes[&1].exit, Some(ProcessExit::Code(0)));
    assert_eq!(shard.selection, Some(Selection { ranks: vec![(3, 3), (8, 15)] }));
    assert_eq!(shard.probes, [burst(1), with_kernel_times(burst(5_000))]);
    assert_eq!(shard.profiler_losses, [profiler_loss("rocprofv3")]);
    assert_eq!(shard.version(), Version::CURRENT);
    let ledger = shard.ledger.clone().unwrap();
    assert_eq!(ledger.losses[0].rows, Some(9));
    assert!(ledger.written.contains(&(2, native::RANGE, 20)));
    let (rows, unreadable) = contents(&shard);
    assert_eq!(unreadable, 0);
    assert_eq!(rows[&(1, native::RANGE)].len(), 20);
    assert_eq!(rows[&(2, native::RANGE)][&5][2], OwnedValue::Null);
    let (strings, _) = shard.strings();
    assert_eq!(strings.get(1), Some(b"phase 0".as_slice()));
    assert_eq!(strings.iter().count(), 6);
}

#[test]
fn a_selection_out_of_bounds_is_damage_and_none() {
    for ranks in [vec![(2, 1)], vec![(0, 4), (2, 8)], (0..5_000).map(|i| (2 * i, 2 * i)).collect()] {
        let mut shard = ShardWriter::new(Vec::new(), &identity()).unwrap();
        shard.selection(&Selection { ranks }).unwrap();
        let bytes = shard.finish().unwrap();
        let shard = Shard::from_memory("s", &bytes).unwrap();
        assert_eq!((shard.selection.as_ref(), shard.damage().len()), (None, 1));
    }
}

#[test]
fn a_profiler_without_a_proper_name_is_damage_and_none() {
    for name in ["", "a\u{1b}[2J", "rocprofv3 of\nrank 3", &"p".repeat(65)] {
        let mut shard = ShardWriter::new(Vec::new(), &identity()).unwrap();
        shard.profiler_loss(&profiler_loss(name)).unwrap();
        shard.profiler_loss(&profiler_loss("rocprof-sys")).unwrap();
        let bytes = shard.finish().unwrap();
        let shard = Shard::from_memory("s", &bytes).unwrap();
        assert_eq!(shard.profiler_losses, [profiler_loss("rocprof-sys")], "{name:?}");
        assert_eq!(shard.damage().len(), 1, "{name:?}");
    }
}

#[test]
fn probes_that_contradict_themselves_are_damage_and_none() {
    let good = burst(1);
    let backwards = Probe { t4: good.best[0].t1 - 1, ..good.best[0] };
    for bad in [
        ProbeBurst { best: Vec::new(), ..good.clone() },
        ProbeBurst { best: vec![backwards], ..good.clone() },
        ProbeBurst { best: vec![good.best[0]; 9], ..good.clone() },
        ProbeBurst { answered: 2, ..good.clone() },
    ] {
        let mut shard = ShardWriter::new(Vec::new(), &identity()).unwrap();
        shard.probes(&bad).unwrap();
        shard.probes(&good).unwrap();
        let bytes = shard.finish().unwrap();
        let shard = Shard::from_memory("s", &bytes).unwrap();
        assert_eq!((shard.probes.as_slice(), shard.damage().len()), ([good.clone()].as_slice(), 1));
    }
}

/// A shard of the previous version: the same bytes with its version number, without the newer records.
#[test]
fn a_shard_of_the_version_before_is_read() {
    let mut shard = ShardWriter::new(Vec::new(), &identity()).unwrap();
    shard.process(&process(1)).unwrap();
    let name = shard.string(b"phase").unwrap();
    let row = [1.into(), 5.into(), 6.into(), name.into(), 0.into(), 0.into()];
    shard.push(1, native::RANGE, &row).unwrap();
    shard.flush().unwrap();
    let mut bytes = shard.finish().unwrap();
    let offsets: Vec<usize> = {
        let shard = Shard::from_memory("s", &bytes).unwrap();
        shard.blocks().iter().map(|block| block.offset as usize).collect()
    };
    let mut stamp = |at: usize, version_at: usize, length: usize| {
        bytes[at + version_at] = 1;
        let sum = twox_hash::XxHash3_64::oneshot(&bytes[at..at + length]);
        bytes[at + length..at + length + 8].copy_from_slice(&sum.to_le_bytes());
    };
    stamp(0, 8, 24);
    offsets.iter().for_each(|offset| stamp(*offset, 7, 64));
    // The index has the newer headers, so that the reader finds the blocks by walking.
    let bytes = &bytes[..bytes.len() - 32];
    let shard = Shard::from_memory("s", bytes).unwrap();
    assert_eq!((shard.version(), shard.probes.len()), (Version(1), 0));
    assert!(shard.complete());
    let (rows, unreadable) = contents(&shard);
    assert_eq!((rows[&(1, native::RANGE)].len(), unreadable), (1, 0));
}

#[test]
fn a_kept_shard_of_version_1_is_read() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/shard-v1.rpdshard");
    let shard = Shard::open(kept.as_ref()).unwrap();
    assert!(shard.complete() && shard.damage().is_empty() && shard.probes.is_empty());
    assert_eq!((shard.version(), shard.clocks.len()), (Version(1), 2));
}

#[test]
fn a_shard_cut_at_any_byte_is_a_prefix_of_its_rows_or_a_typed_error() {
    let bytes = small_shard();
    let (whole, _) = contents(&Shard::from_memory("s", &bytes).unwrap());
    let mut longest = 0;
    for length in 0..bytes.len() {
        let shard = match Shard::from_memory("s", &bytes[..length]) {
            Ok(shard) => shard,
            Err(OpenError::NotAShard { .. } | OpenError::NoIdentity { .. }) => continue,
            Err(other) => panic!("cut at {length}: {other}"),
        };
        let (rows, unreadable) = contents(&shard);
        let whole_now = rows.values().map(Table::len).sum::<usize>() == whole.values().map(Table::len).sum();
        assert!(!shard.complete() || whole_now, "cut at {length} and still complete");
        assert_eq!(unreadable, 0, "cut at {length}");
        let mut count = 0;
        for (table, part) in &rows {
            let prefix: Table = whole[table].clone().into_iter().take(part.len()).collect();
            assert_eq!(*part, prefix, "cut at {length}");
            count += part.len();
        }
        assert!(count >= longest, "cut at {length} has fewer rows than a shorter cut");
        longest = count;
    }
    assert_eq!(longest, whole.values().map(|t| t.len()).sum::<usize>());
}

#[test]
fn a_flipped_byte_loses_at_most_one_block_and_never_changes_a_row() {
    let bytes = small_shard();
    let intact = Shard::from_memory("s", &bytes).unwrap();
    let (whole, _) = contents(&intact);
    let largest = |table: &Table| table.len().min(6);
    for position in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[position] ^= 0x10;
        let shard = Shard::from_memory("s", &flipped).unwrap_or_else(|e| panic!("flip at {position}: {e}"));
        let (rows, unreadable) = contents(&shard);
        assert!(unreadable <= 1, "flip at {position} lost {unreadable} blocks");
        let mut lost = 0;
        for (table, all) in &whole {
            let part = rows.get(table).cloned().unwrap_or_default();
            assert!(part.iter().all(|(key, row)| all[key] == *row), "flip at {position} changed a row");
            let missing = all.len() - part.len();
            assert!(missing <= largest(all), "flip at {position} lost {missing} rows of {}", table.1);
            lost += usize::from(missing > 0);
        }
        assert!(lost <= 1, "flip at {position} lost rows of {lost} tables");
        assert_eq!(shard.identity, identity(), "flip at {position}");
        assert_eq!(shard.processes.len(), 2, "flip at {position}");
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = small_shard();
    bytes[8] = 9;
    let sum = twox_hash::XxHash3_64::oneshot(&bytes[..24]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    let error = Shard::from_memory("s", &bytes).unwrap_err();
    assert!(matches!(error, OpenError::NewerVersion { version: 9, .. }), "{error}");
}

#[test]
fn a_block_that_decompresses_to_more_than_it_says_is_refused() {
    let bytes = small_shard();
    let shard = Shard::from_memory("s", &bytes).unwrap();
    let victim = shard.blocks().iter().find(|b| b.header.kind == BlockKind::Rows(native::RANGE)).unwrap();
    let bomb = zstd::bulk::compress(&vec![0u8; 1 << 30], 1).unwrap();
    let mut header: BlockHeader = victim.header;
    header.stored_bytes = bomb.len() as u32;
    header.checksum = twox_hash::XxHash3_64::oneshot(&bomb);
    let mut hostile = bytes[..victim.offset as usize].to_vec();
    hostile.extend_from_slice(&header.to_bytes());
    hostile.extend_from_slice(&bomb);
    let shard = Shard::from_memory("s", &hostile).unwrap();
    let block = shard.blocks().last().unwrap();
    assert!(shard.rows(block).is_err());
}

proptest! {
    #[test]
    fn garbage_behind_a_good_header_never_panics(garbage in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = small_shard();
        bytes.truncate(300);
        bytes.extend(garbage);
        if let Ok(shard) = Shard::from_memory("s", &bytes) {
            contents(&shard);
            shard.strings();
        }
    }
}
