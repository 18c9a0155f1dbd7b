//! What a collector says about its own limits reaches the merged database.
#![allow(missing_docs, clippy::unwrap_used)]

use rpd_shard::ShardWriter;
use rpd_shard::model::{Value, native, rocpd};
use rpd_shard::record::{Exit, Loss, LossCause, Process};
use rpd_tests::harness::{RunFolder, assert_refused, losses, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity};
use std::fs;

fn config() -> SyntheticRun {
    SyntheticRun { nodes: 1, ranks_per_node: 2, ..SyntheticRun::default() }
}

/// A run whose rank 1 is written here.
fn run_with(write: impl Fn(&mut ShardWriter<Vec<u8>>, &Process)) -> RunFolder {
    let run = RunFolder::new(&config());
    let plan = config().plan();
    let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, 1)).unwrap();
    let process = process_record(&plan, &plan.ranks[1].processes[0]);
    shard.process(&process).unwrap();
    plan.clock_sets(&plan.ranks[1]).iter().for_each(|set| shard.clock(set).unwrap());
    let thread = [1.into(), 1.into(), 1.into(), Value::Int(process.pid.into()), "main".into()];
    shard.push(1, rocpd::INFO_THREAD, &thread).unwrap();
    write(&mut shard, &process);
    fs::write(run.shard(1), shard.finish().unwrap()).unwrap();
    run
}

#[test]
fn events_that_the_collector_lost_are_in_the_ledger_of_the_merge() {
    let run = run_with(|shard, _| {
        let lost = |cause, rows| Loss { source: 1, table: None, cause, rows };
        shard.loss(lost(LossCause::RingFull, Some(9)));
        shard.loss(lost(LossCause::RingFull, Some(4)));
        shard.loss(lost(LossCause::NoMemory, None));
    });
    let mut ledger = losses(&run.merged());
    ledger.sort();
    let expected = [(None, "no_memory".to_owned(), -1), (None, "ring_full".to_owned(), 13)];
    assert_eq!(ledger, expected);
    let outcome = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_refused(&outcome, 3, &["--strict"]);
}

#[test]
fn a_range_that_was_open_when_its_process_died_ends_when_it_was_last_seen() {
    let run = run_with(|shard, process| {
        let name = shard.string(b"never ended").unwrap();
        let row = [1.into(), (process.first_seen + 5).into(), Value::Null, name.into(), 1.into(), 0.into()];
        shard.push(1, native::RANGE, &row).unwrap();
        shard.process(&Process { exit: Some(Exit::Signal(9)), ..process.clone() }).unwrap();
    });
    let database = run.merged();
    database.assert_sound();
    let plan = config().plan();
    let process = process_record(&plan, &plan.ranks[1].processes[0]);
    let found = database.rows("SELECT start, \"end\" FROM regions WHERE name = 'never ended'");
    // One node: its times are those of the job.
    assert_eq!(found, [[(process.first_seen + 5).to_string(), process.last_seen.unwrap().to_string()]]);
    let open = database.number(
        "SELECT json_extract(r.extdata, '$.rpd.open') FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id
          WHERE s.string = 'never ended'",
    );
    assert_eq!(open, 1);
    let exit = "SELECT json_extract(extdata, '$.rpd.exit.signal') FROM rocpd_info_process ORDER BY id";
    assert_eq!(database.rows(exit), [["NULL"], ["9"]]);
}

#[test]
fn a_rank_that_recorded_nothing_is_still_one_of_the_job() {
    let run = run_with(|_, _| {});
    let database = run.merged();
    database.assert_sound();
    assert_eq!(database.count("processes"), 2);
    assert_eq!(database.metadata()["rpd.missing_ranks"], ["[]"]);
}
