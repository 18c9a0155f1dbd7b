//! What `rpd-report` says about runs with a known cause of their waiting.

use crate::report_schema::violations;
use rpd_tests::harness::{Job, binary, repository, rpd_merge};
use rpd_tests::truth::{CleanProgram, Scenario, ScenarioKind, ScenarioSize, write_scenario};
use rusqlite::Connection;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MAX_LINES: usize = 25;
const MAX_LINE: usize = 120;

/// Merges the run of a scenario. The database is removed with the folder.
fn merged(scenario: &Scenario) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario(scenario, &[], folder.path()).unwrap();
    let _ = rpd_merge().arg(&run).run().success();
    let database = run.join("trace.db");
    (folder, database)
}

/// A stencil in which rank 2 is slow.
pub(crate) fn slow_stencil() -> (Scenario, TempDir, PathBuf) {
    let size =
        ScenarioSize { ranks: 5, subject: 2, steps: 20, ..ScenarioSize::drawn(ScenarioKind::Stencil, 3) };
    let scenario = Scenario::sized(ScenarioKind::Stencil, size);
    let (folder, database) = merged(&scenario);
    (scenario, folder, database)
}

pub(crate) fn printed(arguments: &[&str], input: &Path) -> String {
    let job = Job::new(binary("rpd-report")).args(arguments).arg(input);
    job.without_env("RPD_OUTPUT").run().success().stdout
}

pub(crate) fn json(arguments: &[&str], input: &Path) -> Json {
    serde_json::from_str(&printed(&[arguments, &["--format", "json"]].concat(), input)).unwrap()
}

fn assert_fits(screen: &str) {
    assert!(screen.lines().count() <= MAX_LINES, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= MAX_LINE), "{screen}");
    assert!(screen.chars().all(|character| character == '\n' || !character.is_control()), "{screen}");
}

/// Runs the commands of the lines `next` in a shell.
fn run_next(screen: &str) {
    run_next_in(Path::new("."), screen);
}

/// Runs the commands of the lines `next` in a shell, in a folder.
pub(crate) fn run_next_in(working_folder: &Path, screen: &str) {
    let folder = binary("rpd-report").parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [folder].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).unwrap();
    let next: Vec<&str> = screen.lines().filter_map(|line| line.strip_prefix("next ")).collect();
    assert!((1..=4).contains(&next.len()), "{screen}");
    for line in next {
        let (_, command) = line.split_once(": ").unwrap();
        assert!(command.starts_with("rpd-report "), "{command}");
        let _ =
            Job::new("sh").args(["-c", command]).env("PATH", &path).folder(working_folder).run().success();
    }
}

#[test]
fn a_slow_rank_is_named_with_its_range() {
    let (scenario, _folder, database) = slow_stencil();
    let screen = printed(&[], &database);
    assert!(screen.contains("\nSLOW         rank 2 on "), "{screen}");
    assert!(screen.contains(" delays the others; with the work that is typical of a rank"), "{screen}");
    let range = scenario.expected.range.unwrap();
    assert!(screen.contains(&format!("where        range \"{range}\": ")), "{screen}");
    let object = json(&[], &database);
    assert_eq!(object["verdict"], "slow");
    let finding = &object["findings"][0];
    assert_eq!(finding["subject"]["ranks"], serde_json::json!([2]));
    assert_eq!(finding["label"], serde_json::json!({ "kind": "range", "name": range }));
    let gain = finding["gain"]["ns"].as_f64().unwrap();
    let planted = scenario.cost().gain_ns as f64;
    assert!((gain / planted - 1.0).abs() < 0.1, "gain {gain}, planted {planted}");
    let start_up = &object["gain_of_start_up"];
    for key in ["error_bound_ns", "low_ns", "high_ns"] {
        assert!(start_up[key].is_i64() && finding["gain"][key].is_i64(), "{key}: {object}");
    }
}

#[test]
fn every_subcommand_has_the_schema() {
    let (_, _folder, database) = slow_stencil();
    for arguments in crate::report_tables::SUBCOMMANDS {
        let object = json(arguments, &database);
        assert_eq!(violations(&object), [] as [String; 0], "{arguments:?}");
    }
}

#[test]
fn each_verdict_fits_into_a_screen_and_names_commands_that_work() {
    let planted = ScenarioKind::PLANTED.into_iter().map(|kind| Scenario::drawn(kind, 1));
    let clean = [0.0, 0.2].map(|noise| {
        let kind = ScenarioKind::Clean(CleanProgram::Allreduce, 2);
        Scenario::sized(kind, ScenarioSize { noise, ..ScenarioSize::drawn(kind, 1) })
    });
    let mut verdicts = BTreeSet::new();
    for scenario in planted.chain(clean) {
        let kind = scenario.kind;
        let (_folder, database) = merged(&scenario);
        let screen = printed(&[], &database);
        assert_fits(&screen);
        let object = json(&[], &database);
        assert_eq!(violations(&object), [] as [String; 0], "{}", kind.name());
        let is_named = ["slow", "serial"].contains(&object["verdict"].as_str().unwrap());
        assert_eq!(is_named, !object["findings"].as_array().unwrap().is_empty(), "{screen}");
        let cannot_tell = object["verdict"] == "cannot_tell";
        assert_eq!(cannot_tell, !object["reasons"].as_array().unwrap().is_empty(), "{screen}");
        assert!(!screen.contains("+- 0 ns"), "{screen}");
        let first = &object["findings"][0];
        if is_named && first["kind"] != "network" {
            let has_pattern = first["when"]["pattern"] != "steady";
            assert_eq!(screen.contains(": rpd-report steps --rank"), has_pattern, "{screen}");
            assert!(screen.contains(": rpd-report --explain "), "{screen}");
        }
        if verdicts.insert(object["verdict"].to_string()) {
            eprintln!("{}: {screen}", kind.name());
            run_next(&screen);
        }
    }
    for verdict in ["slow", "serial", "no_single_cause", "balanced"] {
        assert!(verdicts.contains(&format!("\"{verdict}\"")), "{verdict} is not in {verdicts:?}");
    }
}

#[test]
fn hostile_names_keep_the_screen_small() {
    let (_, _folder, database) = slow_stencil();
    let hostile = ["\x1b[31m\r\n\u{9b}1m", "x", "word "].map(|part| part.repeat((1 << 20) / part.len()));
    let connection = Connection::open(&database).unwrap();
    let tag = "SELECT value FROM rocpd_metadata WHERE tag = 'uuid'";
    let guid: String = connection.query_row(tag, [], |row| row.get(0)).unwrap();
    let set = |range: &str, name: &str| {
        let strings = format!("UPDATE \"rocpd_string{guid}\" SET string = ?1 WHERE string = ?2");
        assert_eq!(connection.execute(&strings, [name, range]).unwrap(), 1, "{range}");
        let nodes = format!("UPDATE \"rocpd_info_node{guid}\" SET hostname = id || ?1");
        assert!(connection.execute(&nodes, [name]).unwrap() > 0);
    };
    let mut ranges = ["update".to_owned(), "step".to_owned()];
    for name in hostile {
        for (range, mark) in ranges.iter_mut().zip(["u", "s"]) {
            let name = format!("{mark}{name}");
            set(range, &name);
            *range = name;
        }
        let screen = printed(&[], &database);
        assert!(screen.contains("\nSLOW         rank 2 on "), "{screen}");
        assert_fits(&screen);
        let object = json(&[], &database);
        assert_eq!(violations(&object), [] as [String; 0]);
        assert!(object.to_string().len() < 1 << 20);
        run_next(&screen);
    }
}

#[test]
fn a_run_without_calls_of_several_ranks_says_so() {
    let shard = repository().join("tests/data/shard-v3.rpdshard");
    let screen = printed(&[], &shard);
    let reason = "no calls to MPI or RCCL of several ranks were recorded; rpd-collect records these, but no other communication, such as that of gloo";
    let text = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("CANNOT TELL which rank the others wait for: {reason}")), "{screen}");
    assert_fits(&screen);
    run_next(&screen);
    let object = json(&[], &shard);
    assert_eq!(object["verdict"], "cannot_tell");
    assert_eq!(object["reasons"], serde_json::json!([reason]));
}

#[test]
fn nobody_is_named_if_ranks_are_left_out() {
    let (_, _folder, database) = slow_stencil();
    let ranks = json(&["ranks"], &database);
    let host = ranks["ranks"][2]["host"].as_str().unwrap();
    for selection in [["--ranks", "1-3"], ["--nodes", host]] {
        let screen = printed(&selection, &database);
        assert_fits(&screen);
        assert!(
            screen.contains("\nCANNOT TELL  which rank the others wait for: --ranks or --nodes"),
            "{screen}"
        );
        assert!(screen.contains("; omit"), "{screen}");
        assert!(!screen.contains("\nwhere ") && !screen.contains("\nefficiency "), "{screen}");
        run_next(&screen);
        let object = json(&selection, &database);
        assert_eq!(violations(&object), [] as [String; 0]);
        assert_eq!(
            (&object["verdict"], &object["findings"]),
            (&"cannot_tell".into(), &serde_json::json!([]))
        );
    }
    let all = printed(&["--ranks", "0-4"], &database);
    assert!(all.contains("\nSLOW         rank 2 on "), "{all}");
}

#[test]
fn the_slow_rank_is_named_in_a_window_that_cuts_messages() {
    let (_, _folder, database) = slow_stencil();
    for window in ["0.04..0.19", "0.053..", "..0.17"] {
        let screen = printed(&["--window", window], &database);
        assert_fits(&screen);
        assert!(screen.contains("\nSLOW         rank 2 on "), "{window}: {screen}");
        run_next(&screen);
    }
}

#[test]
fn steps_in_a_window_are_whole_and_those_of_the_run() {
    let (_, _folder, database) = slow_stencil();
    let steps = |selection: &[&str]| -> Vec<Json> {
        let report = json(&[&["steps", "--top", "0"], selection].concat(), &database);
        report["steps"].as_array().unwrap().clone()
    };
    let facts =
        |step: &Json| ["start_ns", "length_ns", "work_ns", "slowest_rank"].map(|key| step[key].clone());
    let whole: Vec<_> = steps(&[]).iter().map(facts).collect();
    assert_eq!(whole.len(), 20);
    let run = json(&[], &database)["run"].clone();
    for window in ["0.04..0.19", "0.053..", "..0.17", "0.09..0.1401"] {
        let found: Vec<_> = steps(&["--window", window]).iter().map(facts).collect();
        let inner = found.get(1..found.len() - 1).unwrap();
        assert!(found.len() < 20 && inner.iter().all(|step| whole.contains(step)), "{window}: {found:?}");
        let length = |run: &Json| run["length_ns"].as_i64().unwrap();
        let report = json(&["--window", window], &database);
        assert!(length(&report["run"]) < length(&run), "{window}: {report}");
    }
    let screen = printed(&["--window", "0.09..0.1"], &database);
    assert!(screen.contains("CANNOT TELL"), "{screen}");
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" in the window, at least 10 are necessary; choose a longer one"), "{screen}");
}

#[test]
fn messages_and_collectives_with_unknown_members_name_nobody() {
    let (_, _folder, database) = slow_stencil();
    let connection = Connection::open(&database).unwrap();
    let table: String = connection
        .query_row("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_metadata_%'", [], |row| row.get(0))
        .unwrap();
    let members = r#"[{"name":"MPI_COMM_WORLD","size":3,"ranks":[[0,1,1,1]]}]"#;
    let changed = format!("INSERT INTO \"{table}\" (tag, value) VALUES ('rpd.communicators', ?)");
    let kept = format!("DELETE FROM \"{table}\" WHERE tag = 'rpd.communicators'");
    let _ = connection.execute(&kept, []).unwrap();
    assert_eq!(connection.execute(&changed, [members]).unwrap(), 1);
    let object = json(&[], &database);
    assert_eq!(object["verdict"], "cannot_tell", "{object}");
    let reasons = object["reasons"].to_string();
    assert!(reasons.contains("only 0 of 400 sends and receives match (0.0 %)"), "{reasons}");
}

#[test]
fn a_folder_with_a_merged_database_alone_is_its_run() {
    let (_, folder, database) = slow_stencil();
    let alone = folder.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    std::fs::copy(&database, alone.join("trace.db")).unwrap();
    assert_eq!(json(&[], &alone), json(&[], &database));
    let refused = rpd_merge().arg(&alone).run();
    assert_eq!(refused.code(), Some(4), "{refused}");
    assert!(refused.stderr.contains("trace.db to merge it again"), "{refused}");
    // With an input beside it, the folder is merged.
    std::fs::copy(repository().join("tests/data/shard-v3.rpdshard"), alone.join("a.rpdshard")).unwrap();
    assert_ne!(json(&[], &alone)["verdict"], "slow");
}

#[test]
fn a_run_with_a_damaged_ledger_is_incomplete() {
    let (_, _folder, database) = slow_stencil();
    let complete = printed(&[], &database);
    assert!(complete.contains("\ncomplete     nothing is missing"), "{complete}");
    let connection = Connection::open(&database).unwrap();
    let table: String = connection
        .query_row("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_metadata_%'", [], |row| row.get(0))
        .unwrap();
    for (tag, damage) in [
        ("rpd.losses", "[3]"),
        ("rpd.missing_ranks", "[-1]"),
        ("rpd.missing_ranks", "[\"a\"]"),
        ("rpd.missing_ranks", "[1}"),
    ] {
        let damaged = format!("UPDATE \"{table}\" SET value = ? WHERE tag = '{tag}'");
        assert_eq!(connection.execute(&damaged, [damage]).unwrap(), 1);
        let screen = printed(&[], &database);
        assert!(screen.contains(&format!("damaged value of {tag} (")), "{screen}");
    }
    let strict = Job::new(binary("rpd-report")).args(["integrity", "--strict"]).arg(&database).run();
    assert_eq!(strict.code(), Some(3), "{strict}");
    assert!(json(&[], &database)["unavailable"].to_string().contains("unknown tables"));
}

#[test]
fn commands_have_the_names_of_the_inputs() {
    let (_, folder, database) = slow_stencil();
    let odd = folder.path().join("it's a $run; *");
    std::fs::create_dir(&odd).unwrap();
    let moved = odd.join("trace.db");
    std::fs::rename(database, &moved).unwrap();
    let screen = printed(&["--step", "step"], &moved);
    assert!(screen.contains("blame --rank 2 --step step '"), "{screen}");
    run_next(&screen);
}
