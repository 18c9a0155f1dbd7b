//! The files of a trace: the same whoever wrote them, whole or not there, counted in their index.
#![allow(clippy::unwrap_used)]

use rpd_tests::harness::{
    Job, RunFolder, assert_refused, leftovers, mpi_missing, rpd_merge, rpd_merge_mpi, skip,
};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Longest run.
const LIMIT: Duration = Duration::from_secs(60);

fn run() -> RunFolder {
    RunFolder::new(&SyntheticRun {
        nodes: 3,
        ranks_per_node: 2,
        events_per_rank: 900,
        workers: true,
        equal_pids: true,
        max_drift_ppb: 20_000,
        ..SyntheticRun::default()
    })
}

/// A merged database of a run.
fn database(run: &RunFolder) -> std::path::PathBuf {
    let database = run.beside("merged.db");
    let _ = rpd_merge().arg("-o").arg(&database).arg(&run.path).run().success();
    database
}

/// All files of a folder.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
        .collect()
}

fn index(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap()
}

/// How much of a sort is in all files.
fn sum(index: &Value, what: &str) -> u64 {
    let files = index["files"].as_array().unwrap();
    files.iter().map(|file| file["events"][what].as_u64().unwrap()).sum()
}

/// Runs a job for the trace in a new folder, and compares that with the one before.
fn compare(run: &RunFolder, wanted: &mut Option<BTreeMap<String, Vec<u8>>>, what: &str, job: Job) {
    let folder = run.beside("other");
    fs::create_dir(&folder).unwrap();
    let _ = job.arg("-o").arg(&folder).limit(LIMIT).run().success();
    let found = content(&folder);
    let wanted = wanted.get_or_insert_with(|| found.clone());
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in &found {
        assert!(bytes == &wanted[name], "{name} differs: {what}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The ways to write a trace that are compared.
const WAYS: [&[&str]; 5] = [
    &["--format", "perfetto"],
    &["--split-by-time", "7"],
    &["--split-by-events", "500", "--no-annotations"],
    &["--split-by-size", "100K", "--window", "0.0005.."],
    &["--format", "chrome-json", "--split-by-time", "3"],
];

#[test]
fn threads_and_memory_change_nothing() {
    let run = run();
    let merged = database(&run);
    for way in WAYS {
        let mut wanted = None;
        for others in
            [&["--threads", "1"][..], &["--threads", "2"], &["--threads", "7"], &["--memory", "32M"]]
        {
            let job = rpd_merge().args(way).args(others).arg(&merged);
            compare(&run, &mut wanted, &format!("{way:?} {others:?}"), job);
        }
        assert!(wanted.unwrap().len() >= 2);
    }
}

#[test]
fn ranks_change_nothing_nor_does_it_matter_whether_the_inputs_were_merged_before() {
    let run = run();
    let merged = database(&run);
    let ranks = match mpi_missing() {
        None => &[1, 2, 3, 5][..],
        Some(why) => {
            skip("traces under mpirun", why);
            &[]
        }
    };
    for way in WAYS {
        let mut wanted = None;
        compare(&run, &mut wanted, "alone", rpd_merge().args(way).arg(&merged));
        compare(&run, &mut wanted, "from shards", rpd_merge().args(way).arg(&run.path));
        for ranks in ranks {
            let what = format!("{way:?} on {ranks} ranks");
            compare(&run, &mut wanted, &what, rpd_merge_mpi(*ranks).args(way).arg(&merged));
        }
    }
    if let [.., most] = ranks {
        let mut wanted = None;
        compare(&run, &mut wanted, "alone", rpd_merge().args(WAYS[1]).arg(&merged));
        compare(&run, &mut wanted, "merged by ranks", rpd_merge_mpi(*most).args(WAYS[1]).arg(&run.path));
    }
}

#[test]
fn the_index_says_what_is_in_the_files() {
    let run = run();
    let merged = database(&run);
    let whole = run.beside("whole");
    fs::create_dir(&whole).unwrap();
    let _ = rpd_merge().args(["--format", "perfetto", "-o"]).arg(&whole).arg(&merged).run().success();
    let folder = run.beside("slices");
    let _ = rpd_merge().args(["--split-by-time", "50", "-o"]).arg(&folder).arg(&merged).run().success();
    let (one, many) = (index(&whole), index(&folder));
    for what in ["slices", "instants", "counters", "samples", "flows"] {
        assert_eq!(sum(&one, what), sum(&many, what), "{what}");
    }
    assert!(sum(&one, "slices") > 1_000 && sum(&one, "continued") == 0, "{one}");
    assert!(sum(&many, "continued") > 0);
    assert_eq!(one["files"][0]["name"], "trace.pftrace.gz");
    assert_eq!((&one["t0_ns"], &one["run_id"]), (&many["t0_ns"], &many["run_id"]));
    assert!(one["wall_clock"].as_str().unwrap().ends_with('Z'));

    let files = many["files"].as_array().unwrap();
    assert_eq!(files.len(), 50);
    let mut end = 0;
    for (number, file) in files.iter().enumerate() {
        let name = file["name"].as_str().unwrap();
        assert_eq!(name, format!("trace-{:05}-of-00050.pftrace.gz", number + 1));
        assert_eq!(file["from_ns"], end);
        end = file["to_ns"].as_i64().unwrap();
        let path = folder.join(name);
        assert_eq!(file["bytes"], fs::metadata(&path).unwrap().len());
        let raw = Job::new("gzip").args(["-dc"]).arg(&path).limit(LIMIT);
        let raw = raw.wrapped("sh", &["-c", "\"$0\" \"$@\" | wc -c"]).run().success();
        assert_eq!(raw.stdout.trim(), file["raw_bytes"].to_string());
        let hash = Job::new("sha256sum").arg(&path).limit(LIMIT).run().success();
        assert_eq!(hash.stdout.split_whitespace().next(), file["sha256"].as_str());
    }
    assert_eq!(files[0]["ranks"], "0-5");
    assert_eq!(end, one["files"][0]["to_ns"].as_i64().unwrap());
}

#[test]
fn files_are_private_and_nothing_else_is_left() {
    let run = run();
    let folder = run.beside("slices");
    let _ = rpd_merge().args(["--split-by-time", "3", "-o"]).arg(&folder).arg(&run.path).run().success();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for name in content(&folder).keys() {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
    assert_eq!(content(&folder).len(), 4);
    assert_eq!(leftovers(&folder), Vec::<std::path::PathBuf>::new());
    assert_eq!(leftovers(&run.path), Vec::<std::path::PathBuf>::new());
    // By default they go to the run.
    let _ = rpd_merge().args(["--split-by-time", "3"]).arg(&run.path).run().success();
    assert!(
        run.path.join("trace-00003-of-00003.pftrace.gz").exists() && run.path.join("index.json").exists()
    );
}

#[test]
fn an_older_trace_is_replaced_as_a_whole_and_only_if_asked() {
    let run = run();
    let merged = database(&run);
    let folder = run.beside("slices");
    let slices = |args: &[&str]| rpd_merge().args(args).arg("-o").arg(&folder).arg(&merged).run();
    let _ = slices(&["--split-by-time", "5"]).success();
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    let before = content(&folder);
    assert_refused(&slices(&["--split-by-time", "3"]), 5, &["holds a trace already", "--force"]);
    assert!(content(&folder) == before);
    let _ = slices(&["--split-by-time", "3", "--force"]).success();
    let names: Vec<String> = content(&folder).into_keys().collect();
    let three = (1..=3).map(|number| format!("trace-{number:05}-of-00003.pftrace.gz"));
    assert_eq!(
        names,
        ["index.json", "notes.txt"].map(str::to_owned).into_iter().chain(three).collect::<Vec<_>>()
    );

    // What is not of rpd-merge stays, with --force too.
    fs::write(folder.join("index.json"), r#"{"files": []}"#).unwrap();
    assert_refused(
        &slices(&["--split-by-time", "3", "--force"]),
        5,
        &["index.json", "was not written by rpd-merge"],
    );
    let file = run.beside("one.pftrace.gz");
    fs::write(&file, "a text").unwrap();
    let one = |args: &[&str]| rpd_merge().args(args).arg("-o").arg(&file).arg(&merged).run();
    assert_refused(&one(&["--format", "perfetto"]), 5, &["is there already"]);
    assert_refused(&one(&["--format", "perfetto", "--force"]), 5, &["is not a trace"]);
    assert_refused(&one(&["--split-by-time", "2", "--force"]), 5, &["is a file", "name a folder"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "a text");
    fs::remove_file(&file).unwrap();
    let _ = one(&["--format", "perfetto"]).success();
    let _ = one(&["--format", "perfetto", "--force"]).success();
    let database = rpd_merge().args(["--format", "perfetto", "-o", "trace.db"]).arg(&merged).run();
    assert_refused(&database, 2, &["named like a database"]);
}

#[test]
fn what_somebody_else_compressed_is_never_overwritten() {
    let run = run();
    let merged = database(&run);
    let folder = run.beside("slices");
    let backup = folder.join("backup.tar.gz");
    let slice = folder.join("trace-00001-of-00002.pftrace.gz");
    fs::create_dir(&folder).unwrap();
    let _ = Job::new("sh").args(["-c", "echo backup | gzip > \"$0\""]).arg(&backup).run().success();
    let before = fs::read(&backup).unwrap();
    let drawn = |output: &Path, options: &[&str]| {
        rpd_merge().args(["--force", "-o"]).arg(output).args(options).arg(&merged).run()
    };
    assert_refused(&drawn(&backup, &["--format", "perfetto"]), 5, &["is not a trace"]);
    assert_eq!(fs::read(&backup).unwrap(), before);
    // Also where a name tells otherwise.
    for text in [&before[..], b"x"] {
        fs::write(&slice, text).unwrap();
        assert_refused(&drawn(&folder, &["--split-by-time", "3"]), 5, &["was not written by rpd-merge"]);
        assert_eq!(fs::read(&slice).unwrap(), text);
    }
    fs::remove_file(&slice).unwrap();
    std::os::unix::fs::symlink(&backup, &slice).unwrap();
    assert_refused(&drawn(&folder, &["--split-by-time", "3"]), 5, &["was not written by rpd-merge"]);
    fs::remove_file(&slice).unwrap();
    for format in ["perfetto", "chrome-json", "perfetto"] {
        let _ = drawn(&folder, &["--split-by-time", "3", "--format", format]).success();
    }
    assert_eq!(fs::read(&backup).unwrap(), before);
    assert!(!folder.join("trace-00001-of-00003.json.gz").exists());
}

#[test]
fn names_say_what_is_in_the_files() {
    let run = run();
    let merged = database(&run);
    let output = |name: &str, options: &[&str]| {
        let outcome = rpd_merge().args(options).arg("-o").arg(run.beside(name)).arg(&merged).run();
        assert!(!run.beside(name).exists(), "{outcome}");
        outcome
    };
    assert_refused(
        &output("too-large", &["--split-by-time", "2", "--max-file-size", "1K"]),
        5,
        &["--max-file-size is 1K; use --split-by-size 512"],
    );
    assert_refused(
        &output("too-large", &["--format", "perfetto", "--max-file-size", "900"]),
        5,
        &["--max-file-size is 900; "],
    );
    assert_refused(&output("a.pftrace.gz", &[]), 2, &["named like a trace", "--format perfetto"]);
    assert_refused(&output("a.json", &[]), 2, &["named like a trace", "--format chrome-json"]);
    assert_refused(&output("a.json.gz", &["--format", "perfetto"]), 2, &["this trace is .pftrace.gz"]);
    assert_refused(&output("a.json", &["--format", "chrome-json"]), 2, &["this trace is .json.gz"]);
    assert_refused(&output("a.pftrace", &["--format", "chrome-json"]), 2, &["this trace is .json.gz"]);
}

/// A rank that opened the database before it was whole failed one time in ten.
#[test]
fn all_ranks_wait_for_the_database_that_they_draw() {
    if let Some(why) = mpi_missing() {
        return skip("ranks that merge and draw", why);
    }
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 100, ..SyntheticRun::default() });
    for _ in 0..20 {
        let mut job = rpd_merge_mpi(2).args(["--split", "auto", "--force", "-o"]).arg(run.beside("drawn/"));
        job = job.arg(&run.path).limit(LIMIT);
        let _ = job.run().success();
    }
}

#[test]
fn what_a_killed_run_left_is_no_trace_and_is_cleared_away() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 6_000, ..SyntheticRun::default() });
    let merged = database(&run);
    let folder = run.beside("slices");
    let job = || rpd_merge().args(["--split-by-time", "40", "-o"]).arg(&folder).arg(&merged);
    let mut killed = 0;
    for milliseconds in [20, 60, 100, 150, 200, 260, 320, 400] {
        let mut child = job().start();
        std::thread::sleep(Duration::from_millis(milliseconds));
        let _ = child.kill();
        let _ = child.wait();
        let names: Vec<String> = fs::read_dir(&folder)
            .map(|entries| entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        if names.iter().any(|name| name == "index.json") {
            // It was faster: all is there.
            assert!(names.iter().filter(|name| name.ends_with(".pftrace.gz")).count() == 40);
            fs::remove_dir_all(&folder).unwrap();
        } else {
            killed += 1;
        }
    }
    assert!(killed > 0);
    // What was left of a run that was at giving names.
    fs::create_dir_all(folder.join("trace.partial")).unwrap();
    fs::write(folder.join("trace.partial/made-by-rpd-merge"), "").unwrap();
    let names = r#"{"version": 1, "t0_ns": 0, "files": [{"name": "trace-00001-of-00099.pftrace.gz"}, {"name": "../merged.db"}]}"#;
    fs::write(folder.join("trace.partial/index.json"), names).unwrap();
    fs::write(folder.join("trace-00001-of-00099.pftrace.gz"), "").unwrap();
    let _ = job().run().success();
    assert!(merged.exists());
    assert_eq!(content(&folder).len(), 41);
    fs::remove_dir_all(&folder).unwrap();

    // A folder of somebody else is not touched.
    fs::create_dir_all(folder.join("trace.partial")).unwrap();
    fs::write(folder.join("trace.partial/data"), "mine").unwrap();
    assert_refused(&job().run(), 5, &["trace.partial", "was not left by rpd-merge"]);
    assert_eq!(fs::read_to_string(folder.join("trace.partial/data")).unwrap(), "mine");
}

#[test]
fn files_that_would_be_too_large_are_refused_with_a_split_that_fits() {
    let run = run();
    let merged = database(&run);
    let folder = run.beside("slices");
    let slices = |args: &[&str]| {
        rpd_merge().args(["--max-file-size", "512K"]).args(args).arg("-o").arg(&folder).arg(&merged).run()
    };
    for args in [&["--format", "perfetto"][..], &["--split-by-time", "2"], &["--split-by-events", "1000000"]]
    {
        let refused = slices(args);
        assert_refused(&refused, 5, &["--max-file-size", "--split-by-size"]);
        assert!(!folder.exists() || content(&folder).is_empty());
        let line = refused.stderr.lines().find(|line| line.contains("--split-by-size")).unwrap();
        let size = line.split("--split-by-size ").nth(1).unwrap().split_whitespace().next().unwrap();
        let _ = slices(&["--split-by-size", size]).success();
        let most = index(&folder)["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["raw_bytes"].as_u64().unwrap())
            .max();
        assert!(most.unwrap() <= 512 << 10);
        fs::remove_dir_all(&folder).unwrap();
    }
    let tiny = slices(&["--split", "auto", "--max-file-size", "1K"]);
    assert_eq!(tiny.code(), Some(2), "given twice");
}

#[test]
fn splits_by_events_and_size_give_files_of_that_size() {
    let run = run();
    let merged = database(&run);
    let folder = run.beside("slices");
    let slices = |args: &[&str]| {
        let _ = rpd_merge().args(args).arg("-o").arg(&folder).arg(&merged).run().success();
        let index = index(&folder);
        fs::remove_dir_all(&folder).unwrap();
        index
    };
    let by_events = slices(&["--split-by-events", "1000"]);
    let files = by_events["files"].as_array().unwrap();
    assert!(files.len() > 5);
    for file in files {
        let events = &file["events"];
        let begun: u64 =
            ["slices", "instants", "counters", "samples"].iter().map(|k| events[k].as_u64().unwrap()).sum();
        assert!((500..=1300).contains(&begun), "{events}");
    }
    let by_size = slices(&["--split-by-size", "200K"]);
    let files = by_size["files"].as_array().unwrap();
    assert!(files.len() > 5);
    for file in files {
        assert!((60_000..=225_280).contains(&file["raw_bytes"].as_u64().unwrap()), "{file}");
    }
}

#[test]
fn files_below_what_they_say_of_their_tracks_are_refused_with_a_size_that_works() {
    let run = run();
    let merged = database(&run);
    let folder = run.beside("slices");
    for format in ["perfetto", "chrome-json"] {
        let slices = |size: &str| {
            let order = ["--format", format, "--split-by-size", size];
            rpd_merge().args(order).arg("-o").arg(&folder).arg(&merged).limit(LIMIT).run()
        };
        for size in ["1", "1K", "3K"] {
            let refused = slices(size);
            assert_refused(&refused, 2, &["cannot be made", "says of its tracks", "use --split-by-size "]);
            assert!(!folder.exists() || content(&folder).is_empty());
            let works = refused.stderr.split("use --split-by-size ").nth(1).unwrap();
            let works = works.split_whitespace().next().unwrap();
            let _ = slices(works).success();
            let most = works.trim_end_matches('K').parse::<u64>().unwrap() << 10;
            let files = index(&folder)["files"].as_array().unwrap().clone();
            assert!(files.len() > 2, "{} files of {works}", files.len());
            for file in files {
                assert!(file["raw_bytes"].as_u64().unwrap() <= most + most / 8, "{works}: {file}");
            }
            fs::remove_dir_all(&folder).unwrap();
        }
    }
    // The largest file may be what is too small.
    let order = ["--split-by-size", "1M", "--max-file-size", "2K", "-o"];
    let refused = rpd_merge().args(order).arg(&folder).arg(&merged).limit(LIMIT).run();
    assert_refused(&refused, 5, &["says of its tracks", "--max-file-size is 2K", "give it --max-file-size "]);
}

#[test]
fn a_trace_is_written_into_the_folder_where_the_user_is() {
    let run = RunFolder::new(&SyntheticRun { kernels: 5, events_per_rank: 40, ..SyntheticRun::default() });
    let below = run.path.join("below");
    fs::create_dir(&below).unwrap();
    let draw = |folder: &Path, options: &[&str]| rpd_merge().folder(folder).args(options).run();
    let database = draw(&run.path, &["-o", "trace.db", "."]);
    assert_eq!(database.code(), Some(0), "{database}");
    for (folder, options) in [
        (&run.path, &["--format", "perfetto", "trace.db"][..]),
        (&run.path, &["--force", "--format", "perfetto", "-o", "t.pftrace.gz", "trace.db"]),
        (&run.path, &["--force", "--split-by-time", "2", "-o", ".", "trace.db"]),
        (&run.path, &["--force", "--split-by-time", "2", "-o", "./", "trace.db"]),
        (&below, &["--force", "--split-by-time", "2", "-o", "..", "../trace.db"]),
    ] {
        let outcome = draw(folder, options);
        assert_eq!(outcome.code(), Some(0), "{options:?}: {outcome}");
    }
    assert!(run.path.join("t.pftrace.gz").exists() && run.path.join("index.json").exists());
}
