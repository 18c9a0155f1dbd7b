//! Small shards that claim much: bounded memory, bounded time, a bounded number of words.

use rpd_shard::file::{BlockHeader, BlockKind};
use rpd_shard::model::{native, rocpd};
use rpd_tests::crafted::{CraftedBlock, blocks, consecutive, write_blocks};
use rpd_tests::harness::{JobOutcome, RunFolder, losses, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::time::Duration;

/// Rows of a full block.
const ROWS: usize = 65_536;

fn config() -> SyntheticRun {
    SyntheticRun { nodes: 1, events_per_rank: 60, ..SyntheticRun::default() }
}

fn merge(run: &RunFolder) -> JobOutcome {
    let job = rpd_merge().args(["--force", "--threads", "2"]).arg(&run.path);
    let outcome = job.address_space(2 << 30).limit(Duration::from_secs(40)).run().success();
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    outcome
}

/// Rows of a table in a list of the report.
fn rows(report: &serde_json::Value, list: &str, table: &str) -> u64 {
    let all = report[list].as_array().unwrap();
    all.iter().find(|row| row["table"] == table).and_then(|row| row["rows"].as_u64()).unwrap_or(0)
}

#[test]
fn marks_of_millions_of_claimed_threads_cost_bounded_memory() {
    let run = RunFolder::new(&config());
    // Two million thread rows, and a mark of each of them.
    let all = |block: &dyn Fn(i64) -> CraftedBlock| -> Vec<CraftedBlock> {
        (0..32).map(|i| block(1 + i * ROWS as i64)).collect()
    };
    let threads = all(&|first| {
        CraftedBlock::rows(rocpd::INFO_THREAD, first, ROWS as u32, &[8, 1, 2, 1, 2, 1, 2, 1, 2, 0, 0, 0, 0])
    });
    let marks = all(&|first| {
        let raw = [&[5][..], &consecutive(first, ROWS), &[1, 2, 1, 2, 0, 0]].concat();
        CraftedBlock::rows(native::MARK, first, ROWS as u32, &raw)
    });
    write_blocks(&run, &config(), 1, &[threads, marks].concat());
    assert!(fs::metadata(run.shard(1)).unwrap().len() < 100_000);
    // Counted, not written: two million rows would be the writer's time.
    let job = rpd_merge().args(["--dry-run", "--json", "--threads", "2"]).arg(&run.path);
    let outcome = job.address_space(2 << 30).run().success();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert!(rows(&report, "rows_read", "mark") >= 32 * ROWS as u64, "{report}");
    let tracks = rows(&report, "rows", "rocpd_track");
    assert!((ROWS as u64 - 10..100_000).contains(&tracks), "{tracks} tracks");
}

#[test]
fn marks_of_claimed_threads_are_merged_on_one_track() {
    let run = RunFolder::new(&config());
    let raw = [&[5][..], &consecutive(1, ROWS), &[1, 2, 1, 2, 0, 0]].concat();
    write_blocks(&run, &config(), 1, &[CraftedBlock::rows(native::MARK, 1, ROWS as u32, &raw)]);
    merge(&run);
    let database = run.database();
    database.assert_sound();
    let on_tracks = "SELECT count(*), count(DISTINCT p.track_id) FROM rocpd_sample p
        JOIN rocpd_track t ON t.id = p.track_id JOIN rocpd_info_process i ON i.id = t.pid
        WHERE json_extract(i.extdata, '$.rpd.rank') = 1";
    assert_eq!(database.rows(on_tracks), [["65536", "1"]]);
}

#[test]
fn stack_ids_to_be_renumbered_in_many_blocks_cost_bounded_memory() {
    let run = RunFolder::new(&config());
    // 26 million distinct huge stack ids in a few kilobytes.
    let events: Vec<_> = (0..400)
        .map(|i| {
            let first = i * ROWS as i64;
            let raw = [&[2, 0][..], &consecutive((1 << 50) + first, ROWS)].concat();
            CraftedBlock::rows(rocpd::EVENT, 1 + first, ROWS as u32, &raw)
        })
        .collect();
    write_blocks(&run, &config(), 1, &events);
    assert!(fs::metadata(run.shard(1)).unwrap().len() < 1 << 20);
    let job = rpd_merge().args(["--dry-run", "--threads", "2"]).arg(&run.path);
    let outcome = job.address_space(2 << 30).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    assert!(outcome.stderr.contains("stack ids that have to be renumbered"), "{outcome}");
    assert!(outcome.stderr.contains("or leave that input out"), "{outcome}");
}

#[test]
fn damage_full_of_block_magics_is_searched_in_seconds() {
    let run = RunFolder::new(&config());
    write_blocks(&run, &config(), 1, &[]);
    let mut bytes = fs::read(run.shard(1)).unwrap();
    let magic = b"\x89RPDBLK";
    let end = bytes.len() + (20 << 20);
    while bytes.len() < end {
        bytes.extend_from_slice(magic);
    }
    fs::write(run.shard(1), bytes).unwrap();
    let outcome = merge(&run);
    assert!(outcome.took < Duration::from_secs(20), "{outcome}");
    assert!(outcome.stderr.contains("are damaged"), "{outcome}");
    run.database().assert_sound();
}

#[test]
fn damage_between_whole_headers_is_searched_in_seconds() {
    let run = RunFolder::new(&config());
    write_blocks(&run, &config(), 1, &[]);
    let mut bytes = fs::read(run.shard(1)).unwrap();
    // A byte of damage before each of 200,000 records that no reader knows.
    let header = BlockHeader {
        kind: BlockKind::Unknown(0x9000),
        source: 0,
        first_key: 0,
        handles: false,
        rows: 0,
        raw_bytes: 0,
        stored_bytes: 0,
        min_time: 0,
        max_time: 0,
        checksum: 0,
    };
    for _ in 0..200_000 {
        bytes.push(0);
        bytes.extend_from_slice(&header.to_bytes());
    }
    assert!(blocks(&bytes).len() > 200_000);
    fs::write(run.shard(1), bytes).unwrap();
    let outcome = merge(&run);
    assert!(outcome.took < Duration::from_secs(20), "{outcome}");
    assert!(warnings(&outcome) <= 20, "{outcome}");
}

fn warnings(outcome: &JobOutcome) -> usize {
    outcome.stderr.lines().filter(|line| line.starts_with("warning:")).count()
}

#[test]
fn a_hundred_thousand_damaged_blocks_are_a_few_words() {
    let run = RunFolder::new(&config());
    let events: Vec<_> = (0..100_000)
        .map(|i| {
            let mut block = CraftedBlock::rows(rocpd::EVENT, 1 + i, 1, &[]);
            block.header.checksum ^= 1;
            block
        })
        .collect();
    write_blocks(&run, &config(), 1, &events);
    let job = rpd_merge().args(["--force", "--json"]).arg(&run.path);
    let outcome = job.address_space(2 << 30).run().success();
    assert!((1..=20).contains(&warnings(&outcome)), "{outcome}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert!(report["warnings"].as_array().unwrap().len() <= 30);
    let lost = (Some("rocpd_event".to_owned()), "truncated".to_owned(), 100_000);
    let database = run.database();
    assert!(losses(&database).contains(&lost), "{:?}", losses(&database));
    database.assert_sound();
}
