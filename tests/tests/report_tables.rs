//! The tables of `rpd-report` about steps, messages and waits: against SQL over the same rows, and in all forms of a run.

use crate::report_schema::violations;
use crate::report_verdict::{json, printed, run_next_in, slow_stencil};
use crate::run_calls::recorded;
use rpd_tests::harness::{Job, binary, mpi_missing, rpd_merge, skip};
use rusqlite::Connection;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Every subcommand, with the options that change its tables.
pub(crate) const SUBCOMMANDS: [&[&str]; 21] = [
    &[],
    &["--explain"],
    &["blame"],
    &["blame", "--rank", "2"],
    &["blame", "--explain"],
    &["blame", "--rank", "3", "--explain", "--top", "3"],
    &["steps"],
    &["steps", "--rank", "2"],
    &["messages"],
    &["whatif"],
    &["whatif", "--range", "update"],
    &["path"],
    &["efficiency"],
    &["summary"],
    &["ranks"],
    &["collectives"],
    &["gpu"],
    &["anomalies"],
    &["hang"],
    &["clocks"],
    &["integrity"],
];

fn rows<'o>(object: &'o Json, table: &str) -> &'o Vec<Json> {
    object[table].as_array().unwrap_or_else(|| panic!("{table}: {object}"))
}

fn number(row: &Json, column: &str) -> i64 {
    row[column].as_i64().unwrap_or_else(|| panic!("{column}: {row}"))
}

fn sum(rows: &[Json], column: &str) -> i64 {
    rows.iter().map(|row| number(row, column)).sum()
}

#[test]
fn listed_waits_have_the_keys_of_their_rows() {
    let (_, _folder, database) = slow_stencil();
    let connection = Connection::open(&database).unwrap();
    let sql = "SELECT n.string, r.start, r.\"end\" - r.start, json_extract(p.extdata, '$.rpd.rank')
                 FROM rocpd_region r JOIN rocpd_string n ON n.id = r.name_id
                 JOIN rocpd_info_process p ON p.id = r.pid WHERE r.id = ?1";
    let by_key = |key: i64| -> (String, i64, i64, i64) {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        connection.query_row(sql, [key], read).unwrap()
    };
    for arguments in [&["--explain"][..], &["blame", "--explain"], &["blame", "--rank", "2", "--explain"]] {
        let object = json(arguments, &database);
        assert_eq!(violations(&object), [] as [String; 0], "{arguments:?}");
        let (listed, sums) = (rows(&object, "explain"), &rows(&object, "explained")[0]);
        assert_eq!(listed.len(), 20, "{arguments:?}");
        for row in listed {
            let stored = by_key(number(row, "region_id"));
            let shown = ["enter_ns", "duration_ns", "rank"].map(|column| number(row, column));
            assert_eq!(
                (stored.0.as_str(), [stored.1, stored.2, stored.3]),
                (row["call"].as_str().unwrap(), shown)
            );
            let stored = by_key(number(row, "cause_region_id"));
            let shown =
                ["cause_enter_ns", "cause_duration_ns", "cause_rank"].map(|column| number(row, column));
            let call = row["cause_call"].as_str().unwrap();
            assert_eq!((stored.0.as_str(), [stored.1, stored.2, stored.3]), (call, shown));
            assert_eq!(row["cause_rank"], 2);
            assert!(number(row, "waited_ns") <= number(row, "duration_ns"), "{row}");
            // What rank 2 did meanwhile took longer than typical work, and than that of the rank that waited.
            assert_eq!(row["cause_work"], "range \"update\"");
            let [work, typical, own] =
                ["cause_work_ns", "typical_work_ns", "own_work_ns"].map(|column| number(row, column));
            assert!(work > typical && work > own && typical > 0, "{row}");
        }
        assert!(listed.is_sorted_by_key(|row| -number(row, "waited_ns")));
        assert_eq!((number(sums, "listed"), number(sums, "listed_ns")), (20, sum(listed, "waited_ns")));
        let all = json(&[arguments, &["--top", "0"]].concat(), &database);
        let every = rows(&all, "explain");
        assert_eq!(number(sums, "waits"), every.len() as i64);
        assert_eq!(number(sums, "waits_ns"), sum(every, "waited_ns"));
        assert_eq!(every[..20], listed[..]);
        if arguments[0] == "blame" {
            let csv = printed(&[arguments, &["--format", "csv"]].concat(), &database);
            assert!(csv.starts_with("rank,host,call,at_ns,") && csv.lines().count() == 21, "{csv}");
        }
        let text = printed(arguments, &database);
        assert!(text.contains("meanwhile in") && text.contains("waits for ranks"), "{text}");
    }
    let object = json(&["--explain"], &database);
    let direct = number(&object["findings"][0]["caused"], "direct_ns");
    let all = number(&rows(&object, "explained")[0], "waits_ns");
    assert!(direct > 0 && direct <= all, "{direct} of {all}");
    let refused = Job::new(binary("rpd-report")).args(["--explain", "ranks"]).arg(&database).run();
    assert_eq!(refused.code(), Some(2), "{refused}");
}

/// Start and end of the rows of a rank with a name, in order.
fn spans(connection: &Connection, rank: u32, name: &str) -> Vec<(i64, i64)> {
    let sql = "SELECT r.start, r.\"end\" FROM rocpd_region r JOIN rocpd_string n ON n.id = r.name_id
                 JOIN rocpd_info_process p ON p.id = r.pid
                WHERE json_extract(p.extdata, '$.rpd.rank') = ?1 AND n.string LIKE ?2 ORDER BY r.start";
    let mut statement = connection.prepare(sql).unwrap();
    let found = statement.query_map((rank, name), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    found.map(Result::unwrap).collect()
}

#[test]
fn steps_have_the_times_that_sql_finds() {
    let (scenario, _folder, database) = slow_stencil();
    let (ranks, steps) = (scenario.size.ranks, scenario.size.steps as usize);
    let connection = Connection::open(&database).unwrap();
    let mut lengths = vec![0; steps];
    let mut works = vec![0; steps];
    let mut starts = vec![i64::MAX; steps];
    for rank in 0..ranks {
        let (marks, calls) = (spans(&connection, rank, "step"), spans(&connection, rank, "MPI_%"));
        assert_eq!(marks.len(), steps);
        let object = json(&["steps", "--rank", &rank.to_string()], &database);
        let table = rows(&object, "steps");
        assert_eq!(table.len(), steps);
        for (step, row) in table.iter().enumerate() {
            let begin = marks[step].0;
            let end = marks.get(step + 1).map_or(marks[step].1, |next| next.0);
            let first = calls.partition_point(|call| call.0 < begin);
            let after = calls.partition_point(|call| call.0 < end);
            let (from, to) = (calls[first - 1].1, calls[after - 1].1);
            let inside: i64 = calls[first..after].iter().map(|(start, end)| end - start).sum();
            assert_eq!(number(row, "step"), step as i64);
            assert_eq!(number(row, "length_ns"), to - from, "rank {rank} step {step}");
            assert_eq!(number(row, "work_ns"), to - from - inside, "rank {rank} step {step}");
            assert_eq!(number(row, "start_ns"), from);
            lengths[step] += to - from;
            works[step] += to - from - inside;
            starts[step] = starts[step].min(from);
        }
    }
    let object = json(&["steps"], &database);
    let table = rows(&object, "steps");
    let column = |name: &str| table.iter().map(|row| number(row, name)).collect::<Vec<_>>();
    assert_eq!(column("length_ns"), lengths.iter().map(|ns| ns / i64::from(ranks)).collect::<Vec<_>>());
    assert_eq!((column("work_ns"), column("start_ns")), (works, starts));
    assert!(table.iter().all(|row| number(row, "steps") == 1 && row["range"].is_null()));
    let slowest = table.iter().filter(|row| row["slowest_rank"] == 2 && row["label"] == "range \"update\"");
    // The excess is 5 % of a step, the noise 2 %.
    assert!(slowest.count() * 4 >= steps * 3, "{object}");
    let flagged = |flag: &str| {
        let has = |row: &Json| row["flags"].as_array().unwrap().contains(&flag.into());
        (0..steps).filter(|step| has(&table[*step])).collect::<Vec<_>>()
    };
    let longest = (0..steps).max_by_key(|step| (lengths[*step], std::cmp::Reverse(*step))).unwrap();
    assert_eq!((flagged("first"), flagged("longest")), (vec![0], vec![longest]));
    // People see the longest ones.
    let text = printed(&["steps", "--top", "3"], &database);
    assert!(text.contains("17 more rows") && text.contains("longest\n"), "{text}");
    let refused = Job::new(binary("rpd-report")).args(["steps", "--rank", "99"]).arg(&database).run();
    assert_eq!(refused.code(), Some(2), "{refused}");
}

/// Number of sends and bytes by sender, receiver and function, of messages on `MPI_COMM_WORLD`.
fn sends(database: &Path) -> BTreeMap<(i64, i64, String), (i64, i64)> {
    let connection = Connection::open(database).unwrap();
    let sql = "SELECT json_extract(p.extdata, '$.rpd.rank'), CAST(peer.value AS INTEGER), n.string, count(*),
                      sum(CAST(bytes.value AS INTEGER)), sum(comm.value <> 'MPI_COMM_WORLD')
                 FROM rocpd_region r JOIN rocpd_string n ON n.id = r.name_id
                 JOIN rocpd_info_process p ON p.id = r.pid
                 JOIN rocpd_arg peer ON peer.event_id = r.event_id AND peer.name = 'peer'
                 JOIN rocpd_arg bytes ON bytes.event_id = r.event_id AND bytes.name = 'bytes'
                 JOIN rocpd_arg comm ON comm.event_id = r.event_id AND comm.name = 'comm'
                WHERE n.string IN ('MPI_Send', 'MPI_Isend', 'MPI_Ssend', 'MPI_Sendrecv')
                GROUP BY 1, 2, 3";
    let mut statement = connection.prepare(sql).unwrap();
    let mut found = BTreeMap::new();
    let mut read = statement.query([]).unwrap();
    while let Some(row) = read.next().unwrap() {
        let of_others: i64 = row.get(5).unwrap();
        assert_eq!(of_others, 0, "ranks of other communicators differ");
        let key = (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap());
        let _ = found.insert(key, (row.get(3).unwrap(), row.get(4).unwrap()));
    }
    found
}

fn assert_messages_are_those_of_sql(database: &Path) -> Json {
    let object = json(&["messages"], database);
    assert_eq!(violations(&object), [] as [String; 0]);
    let table = rows(&object, "messages");
    let key = |row: &Json| (number(row, "from"), number(row, "to"), row["kind"].as_str().unwrap().to_owned());
    let shown: BTreeMap<_, _> =
        table.iter().map(|row| (key(row), (number(row, "count"), number(row, "bytes")))).collect();
    let expected = sends(database);
    assert!(!expected.is_empty());
    assert_eq!(shown, expected);
    assert_eq!(sum(table, "unmatched_ends"), 0, "{object}");
    let waiting = |row: &Json| number(row, "late_sender_ns") + number(row, "late_receiver_ns");
    assert!(table.is_sorted_by_key(|row| -waiting(row)));
    object
}

#[test]
fn messages_are_those_that_sql_counts() {
    let (_, _folder, database) = slow_stencil();
    let object = assert_messages_are_those_of_sql(&database);
    let first = &rows(&object, "messages")[0];
    assert_eq!(first["from"], 2, "the others wait most for what the slow rank sends: {object}");
    assert!(number(first, "late_sender_ns") > 0);
    // The waits for rank 2 are those in collectives, those for its sends, and those for its receives.
    let waits = json(&["blame", "--rank", "2", "--explain", "--top", "0"], &database);
    let of_messages: i64 = rows(&waits, "explain")
        .iter()
        .filter(|row| row["call"] != "MPI_Allreduce")
        .map(|row| number(row, "waited_ns"))
        .sum();
    let late = |row: &Json| {
        let of = |end: &str, column: &str| if row[end] == 2 { number(row, column) } else { 0 };
        of("from", "late_sender_ns") + of("to", "late_receiver_ns")
    };
    assert_eq!(rows(&object, "messages").iter().map(late).sum::<i64>(), of_messages);
    // A neighbour's messages only.
    let of_one = json(&["messages", "--ranks", "0"], &database);
    assert!(of_one["notes"][0].as_str().unwrap().contains("leave out processes"), "{of_one}");
    assert!(
        rows(&of_one, "messages").iter().all(|row| row["from"] == 0 || row["to"] == 0 || row["to"].is_null())
    );
}

#[test]
fn messages_and_steps_of_a_job_under_mpi_are_those_that_sql_counts() {
    if let Some(why) = mpi_missing() {
        return skip("messages of a recorded job", why);
    }
    for pattern in ["chain", "stencil-sleep"] {
        let folder = tempfile::tempdir().unwrap();
        let database = recorded(folder.path(), "late.c", &[pattern, "1"]);
        let _ = assert_messages_are_those_of_sql(&database);
        let object = json(&["steps"], &database);
        assert_eq!(violations(&object), [] as [String; 0]);
        let notes = rows(&object, "notes").iter().any(|note| {
            let note = note.as_str().unwrap();
            note.contains("found by repetition of") || note.contains("of 1 s instead of steps")
        });
        assert!(notes || rows(&object, "steps").is_empty(), "{object}");
    }
}

#[test]
fn the_commands_keep_what_is_selected() {
    let (_, _folder, database) = slow_stencil();
    let ranks = json(&["ranks"], &database);
    let host = ranks["ranks"][2]["host"].as_str().unwrap();
    let of_host = format!(" --nodes {host}");
    // With a short name of the input, all of it fits into a line.
    let folder = database.parent().unwrap();
    for (selection, words) in [
        (&["--window", "0..99.5", "--ranks", "0-4"][..], " --window 0..99.5 --ranks 0-4"),
        (&["--ranks", "1,2", "--step", "step"], " --ranks 1-2 --step step"),
        (&["--nodes", host], of_host.as_str()),
    ] {
        let job = Job::new(binary("rpd-report")).args(selection).arg("trace.db").folder(folder);
        let screen = job.run().success().stdout;
        let next: Vec<&str> = screen.lines().filter(|line| line.starts_with("next ")).collect();
        let words = format!("{words} trace.db");
        assert!(!next.is_empty() && next.iter().all(|line| line.ends_with(&words)), "{screen}");
        run_next_in(folder, &screen);
    }
}

#[test]
fn ways_to_record_name_options_that_exist() {
    let (_, _folder, database) = slow_stencil();
    let help = |program: &str| Job::new(binary(program)).arg("--help").run().success().stdout;
    let help = help("rpd-collect") + &help("rpd-report");
    let mut ways = BTreeSet::new();
    for arguments in SUBCOMMANDS {
        let object = json(arguments, &database);
        let found =
            rows(&object, "unavailable").iter().filter_map(|missing| missing["how_to_record"].as_str());
        ways.extend(found.map(str::to_owned));
    }
    assert!(ways.contains("rpd-collect --backend"), "{ways:?}");
    for way in ways {
        for option in way.split_whitespace().filter(|word| word.starts_with("--")) {
            assert!(help.contains(&format!("{option} ")) || help.contains(&format!("{option}\n")), "{way}");
        }
    }
    let screen = printed(&[], &database);
    assert!(screen.contains("kernels: not recorded; to record: rpd-collect --backend"), "{screen}");
}

/// The same run as one table set, as one for each process, and as shards.
fn forms_of(run: &Path, folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let (partitioned, shards) = (folder.join("partitioned.db"), folder.join("shards"));
    fs::create_dir(&shards).unwrap();
    for entry in fs::read_dir(run).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|ending| ending == "rpdshard") {
            let _ = fs::copy(entry.path(), shards.join(entry.file_name())).unwrap();
        }
    }
    let merge = rpd_merge().args(["--quiet", "--layout", "partitioned", "-o"]).arg(&partitioned);
    let _ = merge.arg(&shards).run().success();
    vec![("merged", run.join("trace.db")), ("partitioned", partitioned), ("shards", shards)]
}

/// The object of a subcommand, without what depends on the form: the note that rows are of a temporary database.
fn object_text(arguments: &[&str], input: &Path, threads: usize) -> String {
    let job = Job::new(binary("rpd-report")).args(arguments).args(["--format", "json", "--quiet"]).arg(input);
    let text = job.env("RAYON_NUM_THREADS", threads.to_string()).run().success().stdout;
    let note = "    \"the run is not merged: rpd-merge of the same inputs writes rows with these keys\"";
    text.replace(&format!(",\n{note}"), "")
}

#[test]
fn every_form_of_a_run_gives_the_same_bytes_with_any_number_of_threads() {
    let (_, folder, database) = slow_stencil();
    let forms = forms_of(database.parent().unwrap(), folder.path());
    for arguments in SUBCOMMANDS {
        let expected = object_text(arguments, &database, 1);
        for (form, input) in &forms {
            for threads in 1..=4 {
                let found = object_text(arguments, input, threads);
                assert!(found == expected, "{arguments:?} of {form} with {threads} threads");
            }
        }
    }
}

#[test]
fn an_rpd_file_gives_the_same_times_of_calls() {
    let (_, folder, database) = slow_stencil();
    let rpd = folder.path().join("run.rpd");
    let shards = database.parent().unwrap();
    let merge = rpd_merge().args(["--quiet", "--format", "rpd", "-o"]).arg(&rpd).arg(shards);
    let _ = merge.run().success();
    for arguments in SUBCOMMANDS.into_iter().filter(|arguments| !arguments.contains(&"--rank")) {
        if arguments.contains(&"--range") {
            continue;
        }
        let object = json(arguments, &rpd);
        assert_eq!(violations(&object), [] as [String; 0], "{arguments:?}");
        let of = |threads: usize| object_text(arguments, &rpd, threads);
        assert!((2..=4).all(|threads| of(threads) == of(1)), "{arguments:?}");
    }
    // It has no ranks, communicators, sizes and names of ranges.
    let calls = |input: &Path| {
        let object = json(&["summary"], input);
        let of_mpi = |row: &&Json| row["name"].as_str().is_some_and(|name| name.starts_with("MPI_"));
        let text = |row: &Json| {
            let mut row = row.clone();
            row.as_object_mut().unwrap().remove("share");
            row.to_string()
        };
        rows(&object, "summary").iter().filter(of_mpi).map(text).collect::<BTreeSet<String>>()
    };
    assert_eq!(calls(&rpd), calls(&database));
    assert!(!calls(&rpd).is_empty());
    let lengths = |input: &Path| {
        let object = json(&["ranks"], input);
        let mut lengths: Vec<(i64, i64)> = rows(&object, "ranks")
            .iter()
            .map(|row| (number(row, "length_ns"), number(row, "mpi_ns")))
            .collect();
        lengths.sort_unstable();
        lengths
    };
    assert_eq!(lengths(&rpd), lengths(&database));
}
