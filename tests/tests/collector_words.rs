//! What a collector says about its own limits reaches the merged database.

use rpd_shard::model::{Value, native, rocpd};
use rpd_shard::record::{Loss, LossCause, Process, ProcessExit, Selection};
use rpd_shard::{ShardWriter, WriteError};
use rpd_tests::crafted::{push_thread, shard_of, write_rows};
use rpd_tests::harness::{RunFolder, assert_refused, losses, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, process_record, run_identity};
use std::fs;

fn config() -> SyntheticRun {
    SyntheticRun { nodes: 1, ranks_per_node: 2, ..SyntheticRun::default() }
}

/// A run; rank 1 is written here.
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
fn a_loss_comes_with_what_to_do_about_it() {
    let run = run_with(|shard, _| {
        for cause in [LossCause::RingFull, LossCause::NoMemory, LossCause::NoSpace, LossCause::BadRecord] {
            shard.loss(Loss { source: 1, table: None, cause, rows: Some(2) });
        }
    });
    let told = lines(&merge(&run), "lost");
    let lost = "2 rows of unknown tables";
    assert_eq!(
        told,
        [
            format!(
                "{lost} (ring_full): next time, raise --ring-memory and --ring-size, or leave the collector more CPU time"
            ),
            format!(
                "{lost} (no_memory): next time, raise --ring-memory, or give the job more memory; messages of rpd-collect name the reason"
            ),
            format!("{lost} (bad_record)"),
            format!("{lost} (no_space): next time, raise --max-size or choose another place with -o DIR"),
        ]
    );
}

/// The summary of a merge.
fn merge(run: &RunFolder) -> String {
    rpd_merge().arg("--force").arg(&run.path).run().success().stderr
}

/// The lines of a summary that have this label.
fn lines(summary: &str, label: &str) -> Vec<String> {
    let with_label = |line: &str| line.strip_prefix(&format!("{label:<10} ")).map(str::to_owned);
    summary.lines().filter_map(with_label).collect()
}

#[test]
fn a_range_that_was_open_when_its_process_died_ends_when_it_was_last_seen() {
    let run = run_with(|shard, process| {
        let name = shard.string(b"never ended").unwrap();
        let row = [1.into(), (process.first_seen + 5).into(), Value::Null, name.into(), 1.into(), 0.into()];
        shard.push(1, native::RANGE, &row).unwrap();
        shard.process(&Process { exit: Some(ProcessExit::Signal(9)), ..process.clone() }).unwrap();
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
    let exit = "SELECT json_extract(extdata, '$.rpd.exit.signal'), json_extract(extdata, '$.rpd.exit.name')
        FROM rocpd_info_process ORDER BY id";
    assert_eq!(database.rows(exit), [["NULL", "NULL"], ["9", "'SIGKILL'"]]);
}

#[test]
fn a_process_that_died_is_told_with_what_it_was_doing() {
    let run = run_with(|shard, process| {
        // In the order of their ends, as a collector writes them: what is open comes last.
        let mut names = ["data", "training", "step 41", "back\x1bward", "MPI_Allreduce"]
            .map(|name| shard.string(name.as_bytes()).unwrap())
            .into_iter()
            .zip(1i64..);
        let at = |stack: i64| Value::Int(process.first_seen + 10 * stack);
        let (data, _) = names.next().unwrap();
        shard.push(1, native::RANGE, &[1.into(), at(1), at(2), data.into(), 1.into(), 0.into()]).unwrap();
        for (name, stack) in names {
            let parent = if stack == 2 { 0 } else { stack - 1 };
            let row = [1.into(), at(stack), Value::Null, name.into(), stack.into(), parent.into()];
            let table = if stack == 5 { native::MPI_CALL } else { native::RANGE };
            shard.push(1, table, &row).unwrap();
            shard.flush().unwrap();
        }
        shard.process(&Process { exit: Some(ProcessExit::Signal(11)), ..process.clone() }).unwrap();
    });
    let pid = process_record(&config().plan(), &config().plan().ranks[1].processes[0]).pid;
    let line = format!(
        "rank 1 (pid {pid}) died by signal 11 (SIGSEGV); 4 open at its end: ... > step 41 > backward > MPI_Allreduce"
    );
    assert_eq!(lines(&merge(&run), "died"), [line]);
    let inspected = rpd_merge().arg("inspect").arg(run.shard(1)).run().success();
    assert!(inspected.stdout.contains("(died by signal 11 (SIGSEGV);"), "{inspected}");
}

#[test]
fn of_many_deaths_those_that_nobody_sent_are_told_first_and_each_signal_that_was_sent_once() {
    let config = SyntheticRun { nodes: 1, ranks_per_node: 14, events_per_rank: 0, ..config() };
    let run = RunFolder::new(&config);
    let plan = config.plan();
    for rank in &plan.ranks {
        // Rank 0 ended well; rank 12 crashed, and the launcher killed the others.
        let exit = [ProcessExit::Code(0), ProcessExit::Signal(15), ProcessExit::Signal(6)];
        let exit = exit[if rank.rank == 0 { 0 } else { 1 + usize::from(rank.rank == 12) }];
        let mut shard = ShardWriter::new(Vec::new(), &run_identity(&plan, rank.rank)).unwrap();
        let process = process_record(&plan, &rank.processes[0]);
        shard.process(&Process { exit: Some(exit), ..process }).unwrap();
        plan.clock_sets(rank).iter().for_each(|set| shard.clock(set).unwrap());
        fs::write(run.shard(rank.rank), shard.finish().unwrap()).unwrap();
    }
    let told = lines(&merge(&run), "died");
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].starts_with("rank 12 ") && told[0].ends_with("died by signal 6 (SIGABRT)"), "{told:#?}");
    let stopped = "rank 1-11,13: 12 processes died by signal 15 (SIGTERM), sent from outside";
    assert_eq!(told[1], stopped, "once for all that the launcher ended");
}

/// A choice of ranks, if a shard says one.
type Choice = Option<&'static [(u32, u32)]>;

/// A run of four ranks of which only these have a shard, each of which says what was chosen.
fn run_of_chosen(recorded: &[(u32, Choice)]) -> RunFolder {
    let config = SyntheticRun { ranks_per_node: 4, ..config() };
    let run = RunFolder::new(&config);
    (0..4).for_each(|rank| fs::remove_file(run.shard(rank)).unwrap());
    for (rank, chosen) in recorded {
        let bytes = shard_of(&config, *rank, |shard| {
            chosen.map_or(Ok(()), |ranks| shard.selection(&Selection { ranks: ranks.to_vec() }))
        });
        fs::write(run.shard(*rank), bytes).unwrap();
    }
    run
}

#[test]
fn ranks_that_were_left_out_on_purpose_are_not_missing() {
    let chosen = Some(&[(2, 3)][..]);
    let run = run_of_chosen(&[(2, chosen), (3, chosen)]);
    let outcome = rpd_merge().args(["--strict", "--json"]).arg(&run.path).run().success();
    let notes = lines(&outcome.stderr, "note");
    assert_eq!(notes[0], "ranks 2-3 of 4 recorded, as chosen with --ranks");
    assert!(!outcome.stderr.contains("warning:") && !outcome.stderr.contains("missing"), "{outcome}");
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["left_out_ranks"], serde_json::json!([0, 1]));
    let metadata = run.database().metadata();
    assert_eq!(
        (&metadata["rpd.missing_ranks"][0][..], &metadata["rpd.left_out_ranks"][0][..]),
        ("[]", "[0,1]")
    );
    let inspected = rpd_merge().arg("inspect").arg(run.shard(2)).run().success();
    assert!(inspected.stdout.contains("chosen     rank 2-3, with --ranks"), "{inspected}");
}

#[test]
fn a_chosen_rank_without_a_shard_is_missing() {
    let run = run_of_chosen(&[(2, Some(&[(2, 3)]))]);
    let outcome = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_refused(&outcome, 3, &["rank 3"]);
    let outcome = merge(&run);
    assert_eq!(lines(&outcome, "missing"), ["rank 3"]);
    assert_eq!(lines(&outcome, "note")[0], "rank 2 of 4 recorded, as chosen with --ranks");
}

#[test]
fn shards_that_disagree_on_the_chosen_ranks_are_told_and_all_their_choices_count() {
    let run = run_of_chosen(&[(1, Some(&[(1, 1)])), (2, Some(&[(2, 3)]))]);
    let outcome = merge(&run);
    let warned = |line: &str| line.starts_with("warning:") && line.contains("--ranks (1, 2-3)");
    assert!(outcome.lines().any(warned), "{outcome}");
    assert_eq!(lines(&outcome, "missing"), ["rank 3"]);
    // A shard that says nothing is one of a collector that records all ranks.
    let run = run_of_chosen(&[(1, Some(&[(1, 1)])), (2, None)]);
    let outcome = merge(&run);
    assert_eq!(lines(&outcome, "missing"), ["rank 0,3"]);
    assert!(
        outcome.lines().any(|line| line.starts_with("warning:") && line.contains("(all, 1)")),
        "{outcome}"
    );
}

const NOTHING_SEEN: &str = "no event was recorded in any rank: rank-*.log beside the shards may contain the reason; GPU kernels need \
                            --backend rocprofv3";

/// The notes of a run of one rank with these rows.
fn notes_of(rows: impl FnOnce(&mut ShardWriter<Vec<u8>>) -> Result<(), WriteError>) -> Vec<String> {
    let config = SyntheticRun { ranks_per_node: 1, ..config() };
    let run = RunFolder::new(&config);
    write_rows(&run, &config, 0, rows);
    lines(&merge(&run), "note")
}

#[test]
fn a_run_without_any_event_says_what_else_to_run() {
    assert_eq!(notes_of(|_| Ok(())), [NOTHING_SEEN]);
    let metrics = notes_of(|shard| {
        let tid = push_thread(shard)?;
        let event = shard.push(1, rocpd::EVENT, &[])?;
        let track = shard.push(1, rocpd::TRACK, &[1.into(), 1.into(), tid.into()])?;
        shard.push(1, rocpd::SAMPLE, &[track.into(), 5_000.into(), event.into()]).map(drop)
    });
    assert_eq!(metrics, ["system metrics alone were recorded: no call and no kernel in any rank"]);
    for table in [native::RANGE, native::MARK, native::MPI_CALL, native::RCCL_CALL] {
        let notes = notes_of(|shard| {
            let (tid, name) = (push_thread(shard)?, shard.string(b"x")?);
            let row = match table {
                native::MARK => vec![tid.into(), 5_000.into(), name.into()],
                _ => vec![tid.into(), 5_000.into(), 6_000.into(), name.into()],
            };
            shard.push(1, table, &row).map(drop)
        });
        assert_eq!(notes, Vec::<String>::new(), "{table}");
    }
    let lost = notes_of(|shard| {
        shard.loss(Loss { source: 1, table: None, cause: LossCause::RingFull, rows: Some(1) });
        Ok(())
    });
    assert_eq!(lost, Vec::<String>::new(), "what was lost was seen");
}

#[test]
fn a_rank_that_recorded_nothing_is_still_one_of_the_job() {
    let run = run_with(|_, _| {});
    let database = run.merged();
    database.assert_sound();
    assert_eq!(database.count("processes"), 2);
    assert_eq!(database.metadata()["rpd.missing_ranks"], ["[]"]);
}

#[test]
fn a_rank_of_whose_shard_there_is_only_the_header_is_named_with_its_end() {
    let run = RunFolder::new(&config());
    let header = ShardWriter::new(Vec::new(), &run_identity(&config().plan(), 1)).unwrap();
    fs::write(run.shard(1), header.unwritten().1).unwrap();
    let stderr = merge(&run);
    let line = format!(
        "warning: rank 1: its collector still records or was killed before it recorded anything: {} has only its header; the log beside \
         it may contain the reason",
        run.shard(1).display()
    );
    assert!(stderr.lines().any(|text| text == line), "{stderr}");
    assert!(!stderr.contains("silent ") && !stderr.contains("nothing of rank"), "{stderr}");
    let strict = rpd_merge().args(["--strict", "--force"]).arg(&run.path).run();
    assert_eq!(strict.code(), Some(3), "{strict}");
}
