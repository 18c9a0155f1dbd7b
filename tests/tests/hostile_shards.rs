//! A shard that was made to do harm costs bounded memory and time, and never crashes the merger.

use rpd_shard::codec::encode_columns;
use rpd_shard::file::{BlockHeader, BlockKind};
use rpd_shard::model::{Cells, RowsBuilder, Schema, TableId, TextCells, Value, native, rocpd};
use rpd_shard::{Shard, ShardWriter};
use rpd_tests::harness::{JobOutcome, RunFolder, leftovers, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity};
use std::fs;
use std::time::Duration;

/// Address space that a merge of hostile shards may take.
const MEMORY: u64 = 2 << 30;

fn config() -> SyntheticRun {
    SyntheticRun { nodes: 1, ranks_per_node: 2, ..SyntheticRun::default() }
}

/// Merges under the memory limit: no crash, no half file, a sound database. What one shard holds is no
/// reason to write none.
fn merge(run: &RunFolder) -> JobOutcome {
    merge_within(run, MEMORY)
}

fn merge_within(run: &RunFolder, memory: u64) -> JobOutcome {
    let job = rpd_merge().args(["--force", "--threads", "2"]).arg(&run.path);
    let outcome = job.address_space(memory).limit(Duration::from_secs(60)).run();
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    for word in ["panicked", "memory allocation", "overflowed its stack"] {
        assert!(!outcome.stderr.contains(word), "{word} in\n{outcome}");
    }
    run.database().assert_sound();
    assert_eq!(leftovers(&run.path), [run.path.join("trace.db")]);
    outcome
}

fn checksum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// A good shard of rank 1, without index, with these bytes after it.
fn with_blocks(run: &RunFolder, blocks: &[(BlockHeader, Vec<u8>)]) {
    let good = fs::read(run.shard(1)).unwrap();
    let shard = Shard::from_memory("s", &good).unwrap();
    let rows = |block: &&rpd_shard::file::BlockRef| matches!(block.header.kind, BlockKind::Rows(_));
    // Records and the first blocks; what follows is ours.
    let end = shard.blocks().iter().find(rows).map_or(good.len(), |block| block.end() as usize);
    let mut bytes = good[..end].to_vec();
    for (header, stored) in blocks {
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(stored);
    }
    fs::write(run.shard(1), bytes).unwrap();
}

fn block(table: TableId, first_key: i64, rows: u32, raw: &[u8], raw_bytes: u32) -> (BlockHeader, Vec<u8>) {
    let stored = zstd::bulk::compress(raw, 1).unwrap();
    let header = BlockHeader {
        kind: BlockKind::Rows(table),
        source: 1,
        first_key,
        handles: false,
        rows,
        raw_bytes,
        stored_bytes: stored.len() as u32,
        min_time: 1,
        max_time: 2,
        checksum: checksum(&stored),
    };
    (header, stored)
}

#[test]
fn a_zip_bomb_is_refused_at_the_length_that_its_header_says() {
    let run = RunFolder::new(&config());
    let bomb = vec![0u8; 1 << 30];
    with_blocks(
        &run,
        &[block(native::RANGE, 1, 60_000, &bomb, 1_000), block(native::RANGE, 1, 9, &bomb, 64 << 20)],
    );
    let outcome = merge(&run);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    assert!(outcome.stderr.contains("rank-00001.rpdshard"), "{outcome}");
}

#[test]
fn many_blocks_that_repeat_one_long_text_cost_bounded_memory() {
    // Blocks of a kilobyte, 54 MB of text each when written out: all at once would be too much.
    let table = Schema::builtin().get(rocpd::INFO_QUEUE).unwrap();
    let rows = 900;
    let text = vec![b'x'; 60_000];
    let columns = [
        Cells::ints(vec![1; rows]),
        Cells::ints(vec![1; rows]),
        Cells::Text(TextCells::constant(&text, rows)),
        Cells::Absent,
    ];
    let mut raw = Vec::new();
    encode_columns(table, &columns, rows, &mut raw);
    let length = raw.len() as u32;
    let run = RunFolder::new(&config());
    let blocks: Vec<_> =
        (0..12).map(|i| block(rocpd::INFO_QUEUE, 1 + i * rows as i64, rows as u32, &raw, length)).collect();
    with_blocks(&run, &blocks);
    merge_within(&run, 600 << 20);
}

#[test]
fn huge_counts_and_keys_cost_nothing() {
    let run = RunFolder::new(&config());
    let blocks = [
        // Rows without a byte for them.
        block(native::RANGE, 1, 65_536, b"\x06", 1),
        block(rocpd::STRING, 1, 65_536, b"\x01", 1),
        // A key far beyond all others: a base of a trillion, or an array of that length.
        block(native::MARK, (1 << 40) - 70_000, 65_536, b"\x05\x00\x00\x00\x00\x00", 6),
        block(rocpd::STRING, (1 << 40) - 70_000, 1, b"\x01\x07\x01\x01x\x00", 6),
        block(rocpd::REGION, 1 << 39, 1, b"\x00", 1),
        // A table of which nobody knows.
        block(TableId(0x1234), 1, 5, b"\x00", 1),
        block(native::RCCL_CALL, i64::from(u32::MAX) * 2, 65_536, b"\x00", 1),
    ];
    with_blocks(&run, &blocks);
    merge(&run);
}

/// A shard of rank 1 with rows of our own, regularly written.
fn with_rows(run: &RunFolder, rows: impl Fn(&mut ShardWriter<Vec<u8>>)) {
    let plan = config().plan();
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, 1)).unwrap();
    shard.process(&process_record(&plan, &plan.ranks[1].processes[0])).unwrap();
    plan.clock_sets(&plan.ranks[1]).iter().for_each(|set| shard.clock(set).unwrap());
    rows(&mut shard);
    fs::write(run.shard(1), shard.finish().unwrap()).unwrap();
}

#[test]
fn deeply_nested_json_does_not_overflow_the_stack() {
    let run = RunFolder::new(&config());
    with_rows(&run, |shard| {
        let depth = 400_000;
        for text in [
            "[".repeat(depth),
            "{\"stream_id\":".repeat(depth),
            format!("{{\"stream_id\":{}1{}}}", "[".repeat(depth), "]".repeat(depth)),
            "{\"stream_id\":99999999999999999999999999}".to_owned(),
            "{\"stream_id\":\"1\",\"stream_id\":1e400}".to_owned(),
            "{\"stream_id\":\u{0}".to_owned(),
        ] {
            let event = shard.push(1, rocpd::EVENT, &[]).unwrap();
            let row =
                [event.into(), 0.into(), "t".into(), "n".into(), Value::Null, Value::Text(text.as_bytes())];
            shard.push(1, rocpd::ARG, &row).unwrap();
        }
    });
    merge(&run);
}

#[test]
fn wrong_types_and_dangling_references_everywhere_are_no_crash() {
    let run = RunFolder::new(&config());
    let values = [
        Value::Null,
        Value::Int(i64::MAX),
        Value::Int(i64::MIN),
        Value::Int(-1),
        Value::Int(1 << 39),
        Value::Real(f64::NAN),
        Value::Real(1e300),
        Value::Text(b"\xff\xfe not UTF-8"),
        Value::Text(b""),
        Value::Blob(b"\x00\x01"),
    ];
    with_rows(&run, |shard| {
        for table in Schema::builtin().tables() {
            if [rocpd::STRING, rocpd::INFO_NODE, rocpd::INFO_PROCESS].contains(&table.id) {
                continue;
            }
            for (i, _) in values.iter().enumerate() {
                let row: Vec<_> = (0..table.columns.len()).map(|c| values[(i + c) % values.len()]).collect();
                shard.push(1, table.id, &row).unwrap();
            }
        }
    });
    merge(&run);
}

#[test]
fn rows_of_a_wrong_type_alone_in_a_table_are_no_crash() {
    // Each table by itself, all its columns of one type: nothing else is there to stop the merge earlier.
    for value in [Value::Int(i64::MIN), Value::Text(b"text"), Value::Real(-0.5), Value::Null] {
        let run = RunFolder::new(&config());
        with_rows(&run, |shard| {
            for table in Schema::builtin().tables().iter().filter(|t| t.id != rocpd::STRING) {
                let row = vec![value; table.columns.len()];
                shard.push(1, table.id, &row).unwrap();
            }
        });
        merge(&run);
    }
}

#[test]
fn hostile_side_records_are_refused() {
    let run = RunFolder::new(&config());
    let plan = config().plan();
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, 1)).unwrap();
    let mut process = process_record(&plan, &plan.ranks[1].processes[0]);
    process.size = Some(u32::MAX);
    process.rank = Some(u32::MAX);
    process.node.machine_id = "m".repeat(1 << 20);
    process.command = "c".repeat(1 << 20);
    for source in 1..2_000 {
        process.source = source * 1_000_003;
        process.command.truncate(100);
        shard.process(&process).unwrap();
    }
    let mut set = plan.clock_sets(&plan.ranks[1])[0].clone();
    set.boottime = i64::MIN;
    set.realtime = i64::MAX;
    set.bracket = i64::MIN;
    shard.clock(&set).unwrap();
    let ranges = RowsBuilder::new(Schema::builtin().get(native::RANGE).unwrap());
    assert!(ranges.is_empty());
    let name = shard.string(b"range").unwrap();
    let row = [1.into(), i64::MAX.into(), i64::MIN.into(), name.into(), i64::MAX.into(), i64::MIN.into()];
    shard.push(1_000_003, native::RANGE, &row).unwrap();
    fs::write(run.shard(1), shard.finish().unwrap()).unwrap();
    merge(&run);
}

#[test]
fn a_shard_flipped_at_random_places_is_merged_or_refused() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 60, ..config() });
    let good = fs::read(run.shard(1)).unwrap();
    let mut random = rpd_tests::synthetic::RandomSource::new(&[42]);
    let rounds = if std::env::var("RPD_SOAK").is_ok_and(|v| v == "1") { 2_000 } else { 40 };
    for _ in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..random.between(1, 6) {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.between(0, 8);
        }
        bytes.truncate(bytes.len() - random.index(bytes.len() / 4));
        fs::write(run.shard(1), bytes).unwrap();
        let _ = fs::remove_file(run.path.join("trace.db"));
        merge(&run);
    }
}
