//! Inputs that say they are the same: copies are left out, and rows that differ are in the ledger.

use rpd_shard::file::BlockKind;
use rpd_shard::model::native;
use rpd_tests::crafted::{damage, last_block};
use rpd_tests::databases::{DatabaseJob, change, name};
use rpd_tests::harness::{
    Database, RunFolder, assert_refused, dump_difference, losses, losses_of_all, rpd_merge,
};
use rpd_tests::plain;
use rpd_tests::synthetic::SyntheticRun;
use rusqlite::Connection;
use std::fs;
use std::path::Path;

#[test]
fn the_same_uuid_twice_is_merged_once() {
    let job = DatabaseJob::small();
    let _ = job.merge(&["--strict"]).success();
    let once = fs::read(job.output()).unwrap();
    let copy = job.place().join("a_copy_results.db");
    fs::copy(&job.inputs[1], &copy).unwrap();
    let outcome = job.merge(&[]).success();
    let original = name(&job.inputs[1]);
    let told = outcome.stderr.lines().filter(|line| line.contains(name(&copy)) || line.contains(original));
    let told: Vec<&str> = told.collect();
    assert!(told.len() == 1 && told[0].contains("a copy"), "{outcome}");
    job.assert_holds(&job.inputs);
    assert_eq!(losses(&job.database()), []);
    // So is one with its rows on other pages.
    Connection::open(&copy).unwrap().execute_batch("PRAGMA page_size = 8192; VACUUM").unwrap();
    assert!(fs::read(&copy).unwrap() != fs::read(&job.inputs[1]).unwrap());
    let outcome = job.merge(&[]).success();
    assert!(outcome.stderr.contains("a copy"), "{outcome}");
    job.assert_holds(&job.inputs);
    assert_eq!(losses(&job.database()), []);

    // So are a merge of AMD's and its parts.
    fs::remove_file(&copy).unwrap();
    let stacked = job.place().join("merged.db");
    plain::stacked(&job.inputs[..3], &stacked).unwrap();
    let outcome = job.merge(&[]).success();
    assert!(outcome.stderr.contains("warning:"), "{outcome}");
    job.assert_holds(&job.inputs);
    fs::remove_file(&stacked).unwrap();
    let _ = job.merge(&["--strict"]).success();
    assert!(once == fs::read(job.output()).unwrap(), "the same inputs gave another file");
}

#[test]
fn of_two_files_with_one_uuid_and_other_rows_one_is_merged_and_the_other_in_the_ledger() {
    let earlier = ["DELETE FROM rocpd_memory_copy<uuid> WHERE id > 3"];
    let other = [
        "UPDATE rocpd_region<uuid> SET start = start - 1 WHERE id = (SELECT min(id) FROM rocpd_region<uuid>)",
    ];
    for (what, changes, fewer) in [("an earlier state", earlier, true), ("another value", other, false)] {
        let mut merged: Vec<Vec<u8>> = Vec::new();
        // Names decide nothing.
        for beside in ["a_results.db", "zz_results.db"] {
            let job = DatabaseJob::small();
            let second = job.place().join(beside);
            fs::copy(&job.inputs[1], &second).unwrap();
            change(&second, &changes);
            let outcome = job.merge(&[]).success();
            let lines = outcome.stderr.lines().filter(|line| line.starts_with("warning:"));
            let lines: Vec<&str> = lines.collect();
            assert!(lines.len() == 1 && lines[0].contains("other rows"), "{what}: {outcome}");
            let pair = [&job.inputs[1], &second];
            assert!(pair.iter().all(|path| lines[0].contains(name(path))), "{what}: {outcome}");
            let lost = pair.iter().find(|path| lines[0].contains(&format!("left out: {}", path.display())));
            let lost: &Path = lost.unwrap();
            assert!(!fewer || lost == second, "{what}: {outcome}");
            let mut all = job.inputs.clone();
            all.push(second.clone());
            all.retain(|path| path != lost);
            job.assert_holds(&all);
            let mut ledger = losses(&job.database());
            ledger.sort();
            assert_eq!(ledger, losses_of_all(lost, "other_contents", &["rocpd_metadata"]), "{what}");
            merged.push(fs::read(job.output()).unwrap());
            fs::remove_file(job.output()).unwrap();
            assert_refused(&job.merge(&["--strict"]), 3, &[name(lost), "other rows"]);
        }
        assert!(merged[0] == merged[1], "{what}: the names of the files made a difference");
    }
}

#[test]
fn a_uuid_that_two_processes_share_costs_no_rows() {
    let job = DatabaseJob::small();
    let second = job.place().join("a_results.db");
    fs::copy(&job.inputs[1], &second).unwrap();
    change(&second, &["UPDATE rocpd_info_process<uuid> SET pid = pid + 1, start = start + 5"]);
    for arguments in [&[][..], &["--layout", "partitioned"]] {
        let outcome = job.merge(arguments).success();
        let lines = outcome.stderr.lines().filter(|line| line.starts_with("warning:"));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() == 1 && lines[0].contains("other processes"), "{outcome}");
        assert_eq!(losses(&Database::open(&job.output())), []);
        assert_eq!(Database::open(&job.output()).count("rocpd_info_process"), 5);
    }
    let _ = job.merge(&[]).success();
    let mut all = job.inputs.clone();
    all.push(second);
    job.assert_holds(&all);
}

#[test]
fn a_copied_shard_is_a_copy_and_a_changed_one_is_in_the_ledger() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 300, ..SyntheticRun::default() });
    let once = run.merged().dump();
    let whole = fs::read(run.shard(1)).unwrap();
    for (beside, length) in [("a", whole.len()), ("z", whole.len()), ("a", whole.len() * 2 / 3)] {
        let second = run.path.join(format!("{beside}.rpdshard"));
        fs::write(&second, &whole[..length]).unwrap();
        let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
        assert!(outcome.stderr.contains("a copy"), "{outcome}");
        assert_eq!(losses(&run.database()), [], "{outcome}");
        fs::remove_file(second).unwrap();
    }
    // One block of it is not what it was: the sound one is merged.
    for beside in ["a", "z"] {
        let second = run.path.join(format!("{beside}.rpdshard"));
        let mut bytes = whole.clone();
        let block = last_block(&bytes, BlockKind::Rows(native::RANGE), 1);
        damage(&mut bytes, &block);
        fs::write(&second, bytes).unwrap();
        let outcome = rpd_merge().arg("--force").arg(&run.path).run().success();
        assert!(outcome.stderr.contains(&format!("left out: {}", second.display())), "{outcome}");
        let ledger = losses(&run.database());
        assert!(
            !ledger.is_empty() && ledger.iter().all(|(_, cause, _)| cause == "other_contents"),
            "{outcome}"
        );
        fs::remove_file(second).unwrap();
    }
    assert_eq!(dump_difference(&once, &run.merged().dump()), None);
}
