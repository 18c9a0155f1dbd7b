//! Shards that were put together from blocks of two, and processes that cannot be: damage that is counted and named.

use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, BlockRef};
use rpd_shard::model::native::{self, is_native};
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::Process;
use rpd_shard::{ShardWriter, WriteError};
use rpd_tests::crafted::{blocks, push_thread};
use rpd_tests::harness::{JobOutcome, RunFolder, assert_refused, losses, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity};
use std::collections::BTreeSet;
use std::fs;

fn config(threads: usize) -> SyntheticRun {
    SyntheticRun { nodes: 1, ranks_per_node: 2, threads, workers: true, ..SyntheticRun::default() }
}

fn raw<'a>(bytes: &'a [u8], block: &BlockRef) -> &'a [u8] {
    &bytes[block.offset as usize..block.end() as usize]
}

fn is_native_block(block: &BlockRef) -> bool {
    matches!(block.header.kind, BlockKind::Rows(table) if is_native(table))
}

/// The bytes of one shard with blocks of another one in place of its native blocks. It has no index.
fn splice(into: &[u8], from: &[u8], is_taken: impl Fn(&BlockRef) -> bool) -> Vec<u8> {
    let own = blocks(into);
    let mut bytes = into[..own[0].offset as usize].to_vec();
    let taken: Vec<&[u8]> =
        blocks(from).iter().filter(|block| is_taken(block)).map(|block| raw(from, block)).collect();
    let mut taken = Some(taken);
    for block in own.iter().filter(|block| !is_native_block(block) && block.header.kind != BlockKind::Index) {
        if block.header.kind == BlockKind::Ledger {
            bytes.extend(taken.take().unwrap().concat());
        }
        bytes.extend_from_slice(raw(into, block));
    }
    bytes
}

/// Rows of a table of one process, and the threads that they name.
fn native_rows(shard: &Shard, source: u32) -> (i64, BTreeSet<i64>) {
    let (mut count, mut threads) = (0, BTreeSet::new());
    for block in shard.blocks().iter().filter(|block| is_native_block(block) && block.header.source == source)
    {
        let rows = shard.rows(block).unwrap();
        count += rows.len as i64;
        threads.extend((0..rows.len).filter_map(|row| rows.column("tid").int(row)));
    }
    (count, threads)
}

fn merge(run: &RunFolder, options: &[&str]) -> JobOutcome {
    rpd_merge().args(["--force", "--verify"]).args(options).arg(&run.path).run()
}

fn lost(run: &RunFolder, table: TableId) -> i64 {
    let name = table.to_string();
    let all = losses(&run.database()).into_iter();
    all.filter(|(of, cause, _)| of.as_deref() == Some(&name) && cause == "damaged_block")
        .map(|(.., rows)| rows)
        .sum()
}

#[test]
fn threads_that_spliced_blocks_name_are_counted_and_named() {
    let (small, large) = (RunFolder::new(&config(1)), RunFolder::new(&config(5)));
    let [own, other] = [&small, &large].map(|run| fs::read(run.shard(0)).unwrap());
    let whole = merge(&small, &["--strict"]).success();
    assert!(!whole.stderr.contains("another shard"), "{whole}");
    let threads_before = small.database().count("rocpd_info_thread");
    let shard = Shard::from_memory("other", &other).unwrap();
    let elsewhere = native_rows(&Shard::open(&small.shard(1)).unwrap(), 1).0
        + native_rows(&Shard::open(&small.shard(1)).unwrap(), 2).0;
    let (rows, threads) = native_rows(&shard, 1);
    assert!(threads.len() > 3, "{threads:?}");
    fs::write(small.shard(0), splice(&own, &other, is_native_block)).unwrap();

    let outcome = merge(&small, &[]).success();
    for words in [
        "rank-00000.rpdshard: ",
        "of process 1 name",
        "threads that the shard does not hold",
        "blocks of another shard may be",
    ] {
        assert!(outcome.stderr.contains(words), "{words}: {outcome}");
    }
    let database = small.database();
    database.assert_sound();
    let missing = threads.len() as i64 - 1;
    assert_eq!(lost(&small, rocpd::INFO_THREAD), missing, "{outcome}");
    // One row stands for all of them. All rows of calls are there.
    assert_eq!(database.count("rocpd_info_thread"), threads_before + 1);
    let shown = "(select * from rocpd_event where category_id in (select id from rocpd_string where string in
         ('MARKER_CORE_RANGE_API', 'MARKER_CORE_API', 'MPI_API', 'RCCL_API', 'COMMUNICATOR')))";
    assert_eq!(database.count(shown), rows + elsewhere);
    assert_refused(
        &merge(&small, &["--strict"]),
        3,
        &["rank-00000.rpdshard", "blocks of another shard may be"],
    );
}

#[test]
fn processes_without_a_record_and_with_impossible_pids_are_damage() {
    let run = RunFolder::new(&config(2));
    let (own, other) = (fs::read(run.shard(0)).unwrap(), fs::read(run.shard(1)).unwrap());
    let of_worker =
        |block: &BlockRef| block.header.source == 2 && matches!(block.header.kind, BlockKind::Rows(_));
    fs::write(run.shard(0), splice(&own, &other, of_worker)).unwrap();
    let outcome = merge(&run, &[]).success();
    assert!(outcome.stderr.contains("process 2 has rows and no record"), "{outcome}");
    assert_eq!(
        (lost(&run, rocpd::INFO_PROCESS), pids_below(&run, 0), pids_below(&run, 1)),
        (1, 0, 1),
        "{outcome}"
    );
    assert_refused(&merge(&run, &["--strict"]), 3, &["rank-00000.rpdshard"]);

    for (pid, is_damage) in [(-1, true), (i32::MIN, true), (0, true), (7, false)] {
        fs::write(run.shard(0), shard_with_pid(pid).unwrap()).unwrap();
        let outcome = merge(&run, &[]).success();
        let told = outcome.stderr.contains(&format!("the record of process 1 has the pid {pid}"));
        assert_eq!((told, lost(&run, rocpd::INFO_PROCESS)), (is_damage, i64::from(is_damage)), "{outcome}");
        assert_eq!(pids_below(&run, 0), 0);
        let strict = merge(&run, &["--strict"]);
        assert_eq!(strict.code(), Some(if is_damage { 3 } else { 0 }), "{strict}");
    }
}

fn pids_below(run: &RunFolder, limit: i32) -> i64 {
    run.database().count(&format!("(select * from rocpd_info_process where pid < {limit})"))
}

/// The shard of rank 0, with a process that claims this pid.
fn shard_with_pid(pid: i32) -> Result<Vec<u8>, WriteError> {
    let plan = config(2).plan();
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, 0))?;
    shard.process(&Process { pid, ..process_record(&plan, &plan.ranks[0].processes[0]) })?;
    plan.clock_sets(&plan.ranks[0]).iter().try_for_each(|set| shard.clock(set))?;
    let (thread, name) = (push_thread(&mut shard)?, shard.string(b"step")?);
    shard.push(1, native::RANGE, &[thread.into(), 1.into(), 2.into(), name.into(), 0.into(), 0.into()])?;
    shard.finish()
}
