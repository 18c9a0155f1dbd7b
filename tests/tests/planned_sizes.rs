//! How large an output becomes is planned before it is written, printed, and bounded.

use rpd_shard::model::{Value, native};
use rpd_tests::crafted::{push_thread, write_rows};
use rpd_tests::databases::DatabaseJob;
use rpd_tests::harness::{Job, JobOutcome, RunFolder, assert_refused, binary, leftovers, rpd_merge, skip};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

fn config() -> SyntheticRun {
    SyntheticRun { nodes: 1, ranks_per_node: 1, events_per_rank: 60, ..SyntheticRun::default() }
}

/// A run of so many MPI calls, as regular as those of a solver that repeats one step.
fn regular_calls(calls: i64) -> RunFolder {
    let run = RunFolder::new(&config());
    write_rows(&run, &config(), 0, |shard| {
        let thread = push_thread(shard)?;
        let [reduce, world] = [b"MPI_Allreduce", &b"MPI_COMM_WORLD"[..]].map(|text| shard.string(text));
        let (reduce, world) = (reduce?, world?);
        for call in 0..calls {
            let start = 1_000_000 + 10_000 * call;
            let span = [thread, start, start + 5_000, reduce, call + 1, 0].map(Value::Int);
            let values = [world.into(), Value::Null, Value::Null, Value::Null, 8.into(), (call + 1).into()];
            shard.push(1, native::MPI_CALL, &[&span[..], &values].concat())?;
        }
        Ok(())
    });
    run
}

/// A run of communicators, each with a list of neighbours that is so long.
fn wide_topologies(rows: i64, list: &[u8]) -> RunFolder {
    let run = RunFolder::new(&config());
    write_rows(&run, &config(), 0, |shard| {
        let thread = push_thread(shard)?;
        let (name, comm) = (shard.string(b"MPI_Cart_create")?, shard.string(b"MPI_COMM_WORLD/1@0")?);
        for row in 0..rows {
            let point = [thread, 1_000_000 + row, name, row + 1, 0, comm].map(Value::Int);
            let lists = [Value::Null, 4.into(), 0.into(), Value::Null, Value::Text(list), Value::Text(list)];
            shard.push(1, native::COMMUNICATOR, &[&point[..], &lists].concat())?;
        }
        Ok(())
    });
    run
}

/// A run of ranges with a name of so many bytes, which is in the shard once.
fn ranges_of_one_name(rows: i64, name: &[u8]) -> RunFolder {
    let run = RunFolder::new(&config());
    write_rows(&run, &config(), 0, |shard| {
        let thread = push_thread(shard)?;
        let name = shard.string(name)?;
        for row in 0..rows {
            let start = 1_000_000 + 10 * row;
            shard.push(1, native::RANGE, &[thread, start, start + 5, name, row + 1, 0].map(Value::Int))?;
        }
        Ok(())
    });
    run
}

/// A run with long names of communicators: every call repeats it in an argument.
fn calls_of_a_long_name(calls: i64) -> RunFolder {
    let run = RunFolder::new(&config());
    write_rows(&run, &config(), 0, |shard| {
        let thread = push_thread(shard)?;
        let (name, world) = (shard.string(b"MPI_Barrier")?, shard.string(&[b'x'; 60_000])?);
        let span = [thread, 1, 2, name, 0, 0].map(Value::Int);
        let values = [world.into(), Value::Null, Value::Null, Value::Null, Value::Null, Value::Null];
        let row = [&span[..], &values].concat();
        (0..calls).try_for_each(|_| shard.push(1, native::MPI_CALL, &row).map(drop))
    });
    run
}

fn planned(inputs: &[&Path], options: &[&str]) -> u64 {
    let outcome = rpd_merge().args(["--dry-run", "--json"]).args(options).args(inputs).run().success();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert!(outcome.stderr.contains("would take about"), "{outcome}");
    report["planned_bytes"].as_u64().unwrap()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Merges the input into forms of output, and compares the plan of each with what is written.
fn assert_planned(what: &str, input: &Path, beside: &dyn Fn(&str) -> PathBuf) {
    let merged = |name: &str, options: &[&str]| {
        let output = beside(name);
        let _ = rpd_merge().args(["--force", "-o"]).arg(&output).args(options).arg(input).run().success();
        length(&output)
    };
    let database = merged("planned.db", &[]);
    let partitioned = ["--layout", "partitioned"];
    let cases = [
        ("merged", planned(&[input], &[]), database),
        ("partitioned", planned(&[input], &partitioned), merged("sets.db", &partitioned)),
        (
            "rpd",
            planned(&[input], &["--format", "rpd"]),
            database + merged("planned.rpd", &["--format", "rpd"]),
        ),
    ];
    for (form, planned, written) in cases {
        let percent = planned * 100 / written;
        eprintln!("PLAN {what} {form}: {planned} planned, {written} written, {percent} %");
        // Of a small output the tables themselves are most, and of a .rpd half of it is a guess.
        let least = if form == "rpd" { 90 } else { 95 };
        let most = if form == "rpd" { 220 } else { 130 };
        assert!((least..most).contains(&percent), "{what} {form}: {planned} planned, {written} written");
    }
    let trace = merged("trace.pftrace.gz", &["--format", "perfetto"]);
    eprintln!("PLAN {what} trace: {trace} of a database of {database}, {} %", trace * 100 / database);
    assert!(trace < database / 2);
}

#[test]
fn a_run_that_grows_370_fold_is_planned_before_it_is_written() {
    let run = regular_calls(60_000);
    let shard = length(&run.shard(0));
    let planned = planned(&[&run.path], &[]);
    let outcome = rpd_merge().arg(&run.path).run().success();
    let written = length(&run.path.join("trace.db"));
    assert!(written > 370 * shard, "{written} bytes of {shard}: {outcome}");
    let percent = planned * 100 / written;
    assert!((95..130).contains(&percent), "{planned} planned, {written} written");
}

#[test]
fn plans_come_near_to_what_is_written() {
    let run =
        RunFolder::new(&SyntheticRun { events_per_rank: 2_000, workers: true, ..SyntheticRun::default() });
    assert_planned("shards", &run.path, &|name| run.beside(name));
    let run = regular_calls(5_000);
    assert_planned("calls", &run.path, &|name| run.beside(name));
    let run = wide_topologies(3_000, &[b'1'; 500]);
    assert_planned("topologies", &run.path, &|name| run.beside(name));
    let run = ranges_of_one_name(3_000, &[b'n'; 700]);
    assert_planned("ranges", &run.path, &|name| run.beside(name));
    let job = DatabaseJob::new(&SyntheticRun { events_per_rank: 2_000, ..SyntheticRun::default() });
    assert_planned("databases", &job.place(), &|name| job.beside(name));
}

#[test]
fn an_output_beyond_max_output_ends_before_and_while_it_is_written() {
    let run = regular_calls(5_000);
    let merge = |options: &[&str]| -> JobOutcome { rpd_merge().args(options).arg(&run.path).run() };
    for options in [&["--max-output", "1M"][..], &["--max-output", "1M", "--format", "rpd"]] {
        let words = ["takes about", "MiB, and --max-output allows 1 MiB", "raise it"];
        assert_refused(&merge(options), 5, &words);
    }
    let dry = merge(&["--max-output", "1M", "--dry-run"]).success();
    assert!(dry.stderr.contains("note       cannot write") && dry.stderr.contains("allows 1 MiB"), "{dry}");
    assert_eq!(leftovers(&run.path), Vec::<PathBuf>::new());
    let _ = merge(&["--max-output", "20M"]).success();

    // Control characters are six times as long in the output: that is not planned, and noticed.
    let run = ranges_of_one_name(3_000, &[1; 4_000]);
    let outcome = rpd_merge().args(["--max-output", "30M"]).arg(&run.path).run();
    assert_refused(&outcome, 5, &["exceeds the limit of 30 MiB", "--max-output"]);
    assert_eq!(leftovers(&run.path), Vec::<PathBuf>::new());
}

#[test]
fn an_output_that_does_not_fit_the_disk_ends_before_it_is_written() {
    let run = regular_calls(20_000);
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 99; folder=$1; shift; \"$@\"; code=$?; \
                  ls -A \"$folder\"; exit $code";
    let user =
        if rustix::process::geteuid().is_root() { &["--mount"][..] } else { &["--mount", "--map-root-user"] };
    let job = Job::new("unshare").args(user).args(["sh", "-c", script, "sh"]).arg(folder.path());
    let merge = |name: &str, options: &[&str]| {
        job.clone()
            .arg(binary("rpd-merge"))
            .args(options)
            .arg("-o")
            .arg(folder.path().join(name))
            .arg(&run.path)
            .run()
    };
    let outcome = merge("out.db", &[]);
    if outcome.code() == Some(99) || outcome.stderr.contains("unshare") {
        return skip("an output that does not fit", "a tmpfs cannot be mounted here");
    }
    let words = ["MiB are needed", "4.0 MiB are free", "-o"];
    let words = if outcome.stderr.contains(" 4 MiB are free") {
        ["MiB are needed", "4 MiB are free", "-o"]
    } else {
        words
    };
    assert_refused(&outcome, 5, &words);
    assert_eq!(outcome.stdout, "", "{outcome}");
    let traces = merge("traces", &["--split-by-time", "2"]);
    assert_refused(&traces, 5, &["MiB are needed", "are free"]);
    assert_eq!(traces.stdout, "", "{traces}");
}

#[test]
fn files_of_another_owner_and_epilogs_have_a_limit_that_nobody_typed() {
    let run = calls_of_a_long_name(400_000);
    let shard = run.shard(0);
    let planned = planned(&[&run.path], &[]);
    eprintln!("PLAN a shard of {} bytes: {planned}", length(&shard));
    assert!(planned > 20 << 30 && length(&shard) < 1 << 20, "{planned} of {}", length(&shard));
    let limit = ["16 GiB are the limit for --epilog and for files of another owner", "--max-output"];
    assert_refused(&rpd_merge().arg("--epilog").arg(&run.path).run(), 5, &limit);
    let allowed = rpd_merge().args(["--epilog", "--max-output", "17G"]).arg(&run.path).run();
    assert_refused(&allowed, 5, &["--max-output allows 17 GiB"]);
    if !rustix::process::geteuid().is_root() {
        return skip("files of another owner", "the tests do not run as root");
    }
    chown(&shard, Some(60_001), None).unwrap();
    assert_eq!(fs::metadata(&shard).unwrap().uid(), 60_001);
    assert_refused(&rpd_merge().arg(&run.path).run(), 5, &limit);
    assert!(!run.path.join("trace.db").exists());
}
