//! AMD's commands on each layout, by the SQL that they run: the table in docs/MERGING.md.

use rpd_tests::amd::{SummaryGrouping, query_by_rank, session, session_with_views_of, summary};
use rpd_tests::content::differences;
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, repository, rpd_merge, skip};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd, write_shards};
use rusqlite::StatementStatus;
use std::fs;
use std::path::{Path, PathBuf};

/// One job of each kind of input: synthetic ones always, real ones where they are.
fn kinds(folder: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let run = SyntheticRun { events_per_rank: 100, ..SyntheticRun::default() };
    let one_per_node = SyntheticRun { ranks_per_node: 1, ..run.clone() };
    let equal = SyntheticRun { equal_pids: true, ..run.clone() };
    let mut kinds = vec![
        ("shards".to_owned(), vec![write_shards(&run.plan(), &folder.join("shards")).unwrap()]),
        ("databases".to_owned(), write_rocpd(&run.plan(), &folder.join("databases")).unwrap()),
        ("a rank on each node".to_owned(), write_rocpd(&one_per_node.plan(), &folder.join("apart")).unwrap()),
        ("equal pids".to_owned(), write_rocpd(&equal.plan(), &folder.join("equal")).unwrap()),
        ("recorded twice".to_owned(), recorded_twice(&run, &folder.join("twice"))),
        ("one process".to_owned(), write_rocpd(&run.plan(), &folder.join("one")).unwrap()[..1].to_vec()),
        ("rocpd".to_owned(), fixtures::rocpd_databases(&folder.join("rocpd"))),
        ("kineto ddp".to_owned(), fixtures::kineto_ddp(&folder.join("ddp"))),
        ("rocprofv3 json".to_owned(), fixtures::rocprofv3_json(&folder.join("json")).into_iter().collect()),
    ];
    let single = fixtures::rpd_files(&folder.join("rpd")).into_iter();
    for input in single.chain(fixtures::kineto_real(&folder.join("kineto"))) {
        kinds.push((input.file_name().unwrap().to_string_lossy().into_owned(), vec![input]));
    }
    kinds.retain(|(_, inputs)| !inputs.is_empty());
    kinds
}

/// Shards of rpd-collect and databases of a profiler of the same processes.
fn recorded_twice(run: &SyntheticRun, folder: &Path) -> Vec<PathBuf> {
    let plan = run.plan();
    let shards = write_shards(&plan, &folder.join("shards")).unwrap();
    [shards].into_iter().chain(write_rocpd(&plan, &folder.join("databases")).unwrap()).collect()
}

/// Merges to a layout; the note about AMD's commands, where there is one.
fn merge(inputs: &[PathBuf], layout: &str, output: &Path) -> Option<String> {
    let job = rpd_merge().args(["--force", "--layout", layout, "-o"]).arg(output).args(inputs);
    let outcome = job.run().success();
    let mut notes = outcome.stdout.lines().chain(outcome.stderr.lines());
    notes.find(|line| line.contains("rocpd summary --summary-by-rank")).map(str::to_owned)
}

#[test]
fn summary_is_right_on_any_layout() {
    let folder = tempfile::tempdir().unwrap();
    let [merged, partitioned] = ["merged.db", "partitioned.db"].map(|name| folder.path().join(name));
    for (kind, inputs) in kinds(folder.path()) {
        let _ = merge(&inputs, "merged", &merged);
        let _ = merge(&inputs, "partitioned", &partitioned);
        let expected = summary(&session(&[&merged]), SummaryGrouping::Nothing);
        assert!(expected.values().any(|rows| !rows.is_empty()), "{kind}");
        assert_eq!(
            differences(&expected, &summary(&session(&[&partitioned]), SummaryGrouping::Nothing)),
            "",
            "{kind}"
        );
        if inputs.iter().all(|input| input.extension().is_some_and(|extension| extension == "db")) {
            let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
            let (mut of_inputs, mut of_merge) =
                (summary(&session(&inputs), SummaryGrouping::Nothing), expected);
            // AMD's own view takes the threads of other guids too, where their ids are the same.
            for rows in [&mut of_inputs, &mut of_merge] {
                rows.remove("memory_allocations");
            }
            assert_eq!(differences(&of_inputs, &of_merge), "", "{kind}");
        }
    }
}

#[test]
fn summary_by_rank_is_right_where_the_merge_does_not_say_that_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    let mut seen = Vec::new();
    for (kind, inputs) in kinds(folder.path()) {
        for layout in ["merged", "partitioned"] {
            let note = merge(&inputs, layout, &output);
            let amd = session(&[&output]);
            let difference =
                differences(&summary(&amd, SummaryGrouping::Process), &summary(&amd, SummaryGrouping::Guid));
            if note.is_none() {
                assert_eq!(difference, "", "{kind}, {layout}");
            }
            seen.push((kind.clone(), layout, note, difference.is_empty()));
        }
    }
    let of = |kind: &str, layout: &str| {
        let found = seen.iter().find(|(a, b, ..)| a == kind && *b == layout).unwrap();
        (found.2.as_deref().map(|note| note.contains("--layout partitioned")), found.3)
    };
    // Whether a note has a remedy, and whether the command is right.
    for (kind, merged, partitioned) in [
        ("shards", (Some(true), false), (None, true)),
        ("databases", (Some(true), false), (None, true)),
        ("a rank on each node", (Some(true), false), (None, true)),
        ("equal pids", (Some(false), false), (Some(false), false)),
        ("recorded twice", (Some(false), false), (Some(false), false)),
        ("one process", (None, true), (None, true)),
    ] {
        assert_eq!((of(kind, "merged"), of(kind, "partitioned")), (merged, partitioned), "{kind}");
    }
}

#[test]
fn the_query_by_rank_counts_each_kernel_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.db");
    for (kind, inputs) in kinds(folder.path()) {
        for layout in ["merged", "partitioned"] {
            let _ = merge(&inputs, layout, &output);
            let database = Database::open(&output);
            let counted: Vec<(Option<i64>, i64)> = {
                let sql = format!(
                    "SELECT rank, sum(\"count(*)\") FROM ({}) GROUP BY 1 ORDER BY 1",
                    query_by_rank()
                );
                let mut statement = database.connection.prepare(&sql).unwrap();
                statement
                    .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
                    .unwrap()
                    .map(Result::unwrap)
                    .collect()
            };
            let expected: Vec<(Option<i64>, i64)> = {
                let sql = "SELECT json_extract(P.extdata, '$.rpd.rank'), count(*) FROM rocpd_kernel_dispatch D
                             JOIN rocpd_info_process P ON P.id = D.pid AND P.guid = D.guid GROUP BY 1 ORDER BY 1";
                let mut statement = database.connection.prepare(sql).unwrap();
                statement
                    .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
                    .unwrap()
                    .map(Result::unwrap)
                    .collect()
            };
            assert_eq!(counted, expected, "{kind}, {layout}");
        }
    }
}

#[test]
fn query_and_package_show_what_sqlite_shows() {
    let folder = tempfile::tempdir().unwrap();
    let questions = ["kernels", "regions", "memory_copies", "top", "busy", "rocpd_info_process"];
    let questions: Vec<(&str, String)> =
        questions.iter().map(|view| (*view, format!("SELECT * FROM {view}"))).collect();
    let questions: Vec<(&str, &str)> = questions.iter().map(|(view, sql)| (*view, sql.as_str())).collect();
    for (kind, inputs) in kinds(folder.path()) {
        for layout in ["merged", "partitioned"] {
            let output = folder.path().join("out.db");
            let _ = merge(&inputs, layout, &output);
            let expected = Database::open(&output).answers(&questions);
            assert_eq!(
                differences(&expected, &session(&[&output]).answers(&questions)),
                "",
                "{kind}, {layout}"
            );
        }
    }
    // A package of two merges: they stand beside each other, each with its own guid.
    let run = SyntheticRun { events_per_rank: 60, ..SyntheticRun::default() };
    let inputs = write_rocpd(&run.plan(), &folder.path().join("halves")).unwrap();
    let [one, other] = ["one.db", "other.db"].map(|name| folder.path().join(name));
    let _ = merge(&inputs[..2], "merged", &one);
    let _ = merge(&inputs[2..], "merged", &other);
    let both = summary(&session(&[&one, &other]), SummaryGrouping::Nothing);
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    assert_eq!(differences(&summary(&session(&inputs), SummaryGrouping::Nothing), &both), "");
}

// --- kernels and the calls that launched them ------------------------------------------------------------------

/// The query of the tutorial, and the same as one would write it at first.
fn launches() -> (String, &'static str) {
    let tutorial = fs::read_to_string(repository().join("docs/TUTORIAL.md")).unwrap();
    let from =
        tutorial.find("    select R.name, count(*), sum(K.duration)").expect("the query of the tutorial");
    let query: Vec<&str> = tutorial[from..].lines().take_while(|line| line.starts_with("    ")).collect();
    let simple = "select R.name, count(*), sum(K.duration) / 1e6 ms from kernels K
        join regions R on R.guid = K.guid and R.stack_id = K.stack_id group by 1 order by 3 desc";
    (query.join("\n"), simple)
}

/// The rows of a query, and the steps that SQLite's virtual machine took.
fn steps(database: &Database, sql: &str) -> (Vec<String>, i64) {
    let mut statement = database.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let line = |row: &rusqlite::Row<'_>| {
        Ok(format!("{} {} {:.6}", row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, f64>(2)?))
    };
    let mut rows = statement.query_map([], line).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    rows.sort();
    (rows, statement.get_status(StatementStatus::VmStep).into())
}

#[test]
fn the_join_of_the_tutorial_takes_steps_by_the_row_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun { events_per_rank: 700, ..SyntheticRun::default() };
    let inputs = write_rocpd(&run.plan(), &folder.path().join("in")).unwrap();
    let [merged, partitioned, one, other] =
        ["merged", "partitioned", "one", "other"].map(|name| folder.path().join(format!("{name}.db")));
    let _ = merge(&inputs, "merged", &merged);
    let _ = merge(&inputs, "partitioned", &partitioned);
    let _ = merge(&inputs[..2], "merged", &one);
    let _ = merge(&inputs[2..], "merged", &other);
    let (query, simple) = launches();
    let plain = Database::open(&merged);
    let rows = plain.count("kernels") + plain.count("regions");
    assert!(rows > 2_000, "{rows} rows");
    let (expected, _) = steps(&plain, simple);
    assert!(expected.iter().any(|row| row.starts_with("hipLaunchKernel 770 ")), "{expected:?}");
    for (form, database) in [
        ("sqlite3", Database::open(&merged)),
        ("sqlite3, partitioned", Database::open(&partitioned)),
        ("rocpd query", session(&[&merged])),
        ("rocpd query, partitioned", session(&[&partitioned])),
        ("rocpd query of two", session(&[&one, &other])),
    ] {
        let (found, steps) = steps(&database, &query);
        assert_eq!(found, expected, "{form}");
        println!("{form}: {steps} steps for {rows} rows");
        // Four table sets take two to four times the steps of one; a join without an index takes thousands a row.
        assert!(steps < 1_500 * rows, "{form}: {steps} steps for {rows} rows");
    }
    let tutorial_under_amd = |rocprofv3: &Path, databases: &[&Path]| {
        let amd = session_with_views_of(rocprofv3, databases);
        let ((found, by_tutorial), (simple, by_simple)) = (steps(&amd, &query), steps(&amd, simple));
        assert_eq!((&found, &simple), (&expected, &expected));
        println!("AMD's views: {by_tutorial} steps of the tutorial, {by_simple} of the simple form");
        assert!(by_tutorial < 1_500 * rows, "{by_tutorial} steps for {rows} rows");
        // Without this the tutorial would need no form of its own.
        assert!(
            by_simple > 5 * by_tutorial,
            "{by_simple} steps of the simple form, {by_tutorial} of the tutorial"
        );
    };
    let Some(rocprofv3) = fixtures::rocpd_databases(&folder.path().join("rocprofv3")).pop() else {
        return skip("the join of the tutorial on AMD's views", "no database of rocprofv3 is here");
    };
    tutorial_under_amd(&rocprofv3, &[&merged]);
    tutorial_under_amd(&rocprofv3, &[&one, &other]);
}
