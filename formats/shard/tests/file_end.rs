//! Tests of the end of a full shard, with a file that the caller writes.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use rpd_shard::file::BlockKind;
use rpd_shard::model::{Value, native, rocpd};
use rpd_shard::record::{Clock, ClockDomain, ClockSet, LossCause, Node, Process, ProcessExit, RunIdentity};
use rpd_shard::{Shard, ShardWriter};
use support::burst;

fn writer() -> ShardWriter<Vec<u8>> {
    let run = RunIdentity {
        run_id: "17.0".into(),
        run_id_from: "SLURM_JOB_ID".into(),
        rank: Some(0),
        size: Some(1),
        version: "0.1.0".into(),
    };
    ShardWriter::new(Vec::new(), &run).unwrap()
}

fn clock(boottime: i64) -> ClockSet {
    let domain = ClockDomain { boot_id: "b".into(), time_namespace: 1 };
    ClockSet { domain, boottime, monotonic_raw: 4, monotonic: 3, realtime: 900, bracket: 1 }
}

/// Adds ranges in blocks of ten, each preceded by a clock set and a probe burst. Returns the file.
fn blocks(shard: &mut ShardWriter<Vec<u8>>, count: i64) -> Vec<u8> {
    let mut file = Vec::new();
    for block in 0..count {
        shard.clock(&clock(block)).unwrap();
        shard.probes(&burst(block)).unwrap();
        for i in 0..10 {
            let name = shard.string(format!("phase {block}").as_bytes()).unwrap();
            let row = [1.into(), (block * 100 + i).into(), Value::Null, name.into(), i.into(), 0.into()];
            shard.push(1, native::RANGE, &row).unwrap();
        }
        shard.flush().unwrap();
        let (offset, bytes) = shard.unwritten();
        assert_eq!(offset, file.len() as u64);
        file.extend_from_slice(bytes);
        shard.clear();
    }
    file
}

/// Opens the file with this end as a shard.
fn ended(file: &[u8], (offset, end): &(u64, Vec<u8>)) -> Shard {
    let shard = Shard::from_memory("s", &[&file[..*offset as usize], end].concat()).unwrap();
    assert!(shard.complete() && shard.damage().is_empty());
    shard
}

fn ranges(shard: &Shard) -> u64 {
    let rows = shard.blocks().iter().filter(|b| b.header.kind == BlockKind::Rows(native::RANGE));
    rows.map(|block| u64::from(block.header.rows)).sum()
}

fn lost(shard: &Shard, table: rpd_shard::model::TableId) -> u64 {
    let losses = shard.ledger.as_ref().unwrap().losses.iter();
    let losses = losses.filter(|loss| loss.table == Some(table) && loss.cause == LossCause::NoSpace);
    losses.map(|loss| loss.rows.unwrap()).sum()
}

#[test]
fn an_end_in_a_smaller_file_gives_up_more_blocks_and_counts_them() {
    let mut shard = writer();
    let file = blocks(&mut shard, 100);
    let mut before = 999;
    for max_bytes in (2000..file.len() as u64).rev().step_by(3000) {
        let end = shard.end(max_bytes).unwrap().unwrap();
        assert!(end.0 + end.1.len() as u64 <= max_bytes);
        let read = ended(&file, &end);
        assert_eq!(ranges(&read) + lost(&read, native::RANGE), 1000);
        assert_eq!(read.strings().0.iter().count() as u64 + lost(&read, rocpd::STRING), 100);
        assert!(ranges(&read) <= before, "{max_bytes}");
        before = ranges(&read);
    }
    assert!(before < 100, "{before} of 1000 ranges in a tenth of the size");
    assert!(shard.end(300).unwrap().is_none(), "no ledger is that short");
}

#[test]
fn clocks_of_blocks_that_are_given_up_are_kept() {
    let mut shard = writer();
    let file = blocks(&mut shard, 300);
    shard.stop(file.len() as u64 / 2);
    for later in 300..310 {
        shard.clock(&clock(later)).unwrap();
        shard.probes(&burst(later)).unwrap();
    }
    let read = ended(&file, &shard.end(file.len() as u64).unwrap().unwrap());
    let clocks: Vec<_> = read.clocks.iter().map(|set| set.boottime).collect();
    let probes: Vec<_> = read.probes.iter().map(|burst| burst.best[0].t1).collect();
    for times in [clocks, probes] {
        assert!(times.is_sorted() && times.first() == Some(&0) && times.last() == Some(&309), "{times:?}");
        let widest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest <= Some(8), "{times:?}");
    }
}

#[test]
fn a_full_shard_goes_on_counting() {
    let mut shard = writer();
    let file = blocks(&mut shard, 3);
    shard.stop(file.len() as u64);
    assert!(shard.is_full());
    for text in ["phase 1", "new", "new", "newer"] {
        shard.string(text.as_bytes()).unwrap();
    }
    let row = [1.into(), 1.into(), Value::Null, 1.into(), 1.into(), 0.into()];
    assert_eq!(shard.push(1, native::RANGE, &row).unwrap(), 31, "keys go on");
    assert_eq!(shard.push(2, native::RANGE, &row).unwrap(), 1);
    let read = ended(&file, &shard.end(u64::MAX).unwrap().unwrap());
    assert_eq!((ranges(&read), lost(&read, native::RANGE), lost(&read, rocpd::STRING)), (30, 2, 2));
}

fn command(exit: Option<ProcessExit>) -> Process {
    let words = "sh -c 'exit 3'".to_owned();
    Process { command: words, exit, ..Process::of_file(Node::default(), Clock::Boottime) }
}

#[test]
fn the_last_record_of_the_command_counts_also_where_its_blocks_are_given_up() {
    let mut shard = writer();
    shard.command(&command(None)).unwrap();
    let mut file = blocks(&mut shard, 3);
    let early = Shard::from_memory("s", &file).unwrap();
    assert_eq!((early.command.as_deref(), early.processes.len()), (Some(&command(None)), 0));
    shard.command(&command(Some(ProcessExit::Code(3)))).unwrap();
    let (_, bytes) = shard.unwritten();
    file.extend_from_slice(bytes);
    let whole = shard.end(u64::MAX).unwrap().unwrap();
    assert_eq!(ended(&file, &whole).command.as_deref(), Some(&command(Some(ProcessExit::Code(3)))));
    // The file has no space beyond its blocks: the command is only in the end.
    let mut shard = writer();
    let file = blocks(&mut shard, 3);
    shard.stop(file.len() as u64);
    shard.command(&command(Some(ProcessExit::Signal(9)))).unwrap();
    let end = shard.end(file.len() as u64).unwrap().unwrap();
    assert_eq!(ended(&file, &end).command.as_deref(), Some(&command(Some(ProcessExit::Signal(9)))));
}

#[test]
fn a_command_of_another_number_is_damage() {
    let mut shard = writer();
    shard.command(&Process { source: 2, ..command(None) }).unwrap();
    let shard = Shard::from_memory("s", &shard.finish().unwrap()).unwrap();
    assert_eq!((shard.command.as_ref(), shard.damage().len()), (None, 2));
}
