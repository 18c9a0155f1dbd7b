//! Options from presets, files, variables and the site, by the programs as they are built.

use rpd_tests::harness::{Database, Job, RunFolder, binary, python, repository, rpd_merge};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Programs installed below a prefix, with a file of the site.
struct Prefix(TempDir);

impl Prefix {
    fn new(site: &str) -> Prefix {
        let prefix = Prefix(tempfile::tempdir().unwrap());
        for (folder, file) in [("bin", "rpd-collect"), ("bin", "rpd-merge"), ("lib", "librpd_intercept.so")] {
            let folder = prefix.0.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::copy(binary("rpd-collect").with_file_name(file), folder.join(file)).unwrap();
        }
        let settings = prefix.0.path().join("etc/rpd");
        fs::create_dir_all(&settings).unwrap();
        fs::write(settings.join("rpd.toml"), site).unwrap();
        prefix
    }

    fn program(&self, name: &str) -> Job {
        Job::new(self.0.path().join("bin").join(name)).folder(self.0.path())
    }

    /// The line of a key in `--print-config`.
    fn line(job: &Job, key: &str) -> String {
        let outcome = job.clone().arg("--print-config").run().success();
        let found = outcome.stdout.lines().find(|line| line.trim_start_matches("# ").starts_with(key));
        let words: Vec<&str> = found.unwrap_or_else(|| panic!("{outcome}")).split_whitespace().collect();
        words.join(" ")
    }
}

fn presets() -> Vec<PathBuf> {
    let files = fs::read_dir(repository().join("configs")).unwrap().map(|entry| entry.unwrap().path());
    let is_preset = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "toml") && !path.ends_with("Cargo.toml")
    };
    let mut presets: Vec<PathBuf> = files.filter(is_preset).collect();
    presets.sort();
    assert!(presets.len() >= 6, "{presets:?}");
    presets
}

fn regions(database: &Path) -> Vec<(String, i64)> {
    Database::open(database).counts("SELECT name FROM regions").into_iter().collect()
}

#[test]
fn every_preset_runs_the_workload_and_its_merge() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    let training = |job: Job, counts: &Path| {
        let job = job.arg(python()).arg(repository().join("tests/workloads/train.py"));
        job.args(["--no-mpi", "--steps", "6", "--counts"]).arg(counts).run().success()
    };
    let printed = training(Job::new("env"), &plain).stdout;
    for preset in presets() {
        let name = preset.file_stem().unwrap().to_str().unwrap();
        // By its name and by its file.
        for by in [Path::new(name), &preset] {
            let runs = tempfile::tempdir().unwrap();
            let job = Job::new(binary("rpd-collect")).arg("--config").arg(by).arg("-o").arg(runs.path());
            let counts = runs.path().join("counts");
            let outcome = training(job.arg("--"), &counts);
            assert_eq!(outcome.stdout, printed, "{outcome}");
            let job = rpd_merge().arg("--config").arg(by).arg("-o").arg(runs.path().join("trace.db"));
            let _ = job.arg(runs.path()).run().success();
            let counted: std::collections::BTreeMap<String, i64> =
                serde_json::from_str(&fs::read_to_string(runs.path().join("counts.0.json")).unwrap())
                    .unwrap();
            let counted: Vec<(String, i64)> = counted.into_iter().collect();
            assert_eq!(regions(&runs.path().join("trace.db")), counted, "{name}");
        }
    }
}

#[test]
fn what_counts_is_shown_with_who_said_it() {
    let site = "[collect]\nmax-size = \"3G\"\nprobe-rate = 50\nring-size = \"2M\"\nshare = \"group\"\n\
                [merge]\nwait = 7\nmemory = \"2GiB\"\n";
    let prefix = Prefix::new(site);
    fs::write(
        prefix.0.path().join("mine.toml"),
        "[collect]\nprobe-rate = 60\nring-size = \"3M\"\nshare = \"user\"\n[merge]\nwait = 8\n",
    )
    .unwrap();
    let collect = prefix.program("rpd-collect").args(["--config", "./mine.toml"]);
    let collect = collect.env("RPD_RING_BYTES", "4M").env("RPD_SHARE", "group").args(["--share", "user"]);
    let by_site = prefix.0.path().join("etc/rpd/rpd.toml").display().to_string();
    for (key, line) in [
        ("share", "share = \"user\" # typed".to_owned()),
        ("ring-size", "ring-size = \"4M\" # RPD_RING_BYTES in the environment".to_owned()),
        ("probe-rate", "probe-rate = \"60\" # ./mine.toml, line 2".to_owned()),
        ("max-size", format!("max-size = \"3G\" # {by_site}, line 2")),
        ("ring-memory", "# ring-memory = \"64M\" # default".to_owned()),
    ] {
        assert_eq!(Prefix::line(&collect, key), line);
    }
    let merge = prefix.program("rpd-merge").env("RPD_CONFIG", "./mine.toml").env("RPD_MERGE_MEMORY", "3GiB");
    assert!(Prefix::line(&merge, "wait").starts_with("wait = \"8\" # ./mine.toml"));
    assert!(Prefix::line(&merge, "memory").starts_with("memory = \"3GiB\" # RPD_MERGE_MEMORY"));
    // What is shown is a file that says the same, to the program without any.
    let shown = collect.clone().arg("--print-config").run().success().stdout;
    fs::write(prefix.0.path().join("shown.toml"), shown).unwrap();
    let again = Job::new(binary("rpd-collect")).folder(prefix.0.path()).args(["--config", "./shown.toml"]);
    assert!(Prefix::line(&again, "max-size").starts_with("max-size = \"3G\" # ./shown.toml"));
}

#[test]
fn what_a_site_has_locked_nobody_changes_and_a_job_runs_all_the_same() {
    let prefix = Prefix::new(
        "[collect]\ntrace = [\"roctx\"]\nmax-size = \"1G\"\nlocked = [\"trace\", \"max-size\", \"probes\"]\n",
    );
    fs::write(prefix.0.path().join("mine.toml"), "[collect]\ntrace = [\"mpi\"]\n").unwrap();
    let run = prefix.program("rpd-collect").args([
        "--config",
        "./mine.toml",
        "--max-size",
        "2G",
        "-o",
        "runs",
        "--",
    ]);
    let outcome = run.env("RPD_TRACE", "system").args(["sh", "-c", "echo ran; exit 7"]).run();
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (Some(7), "ran\n"), "{outcome}");
    let shown = prefix.program("rpd-collect").args(["--max-size", "2G", "--print-config"]);
    let shown = shown.env("RPD_TRACE", "system").env("RPD_PROBES", "off").run().success();
    assert!(shown.stdout.contains("max-size = \"1G\"") && !shown.stdout.contains("system"), "{shown}");
    // A user who asked for something else gets a warning.
    assert_eq!(shown.stderr.matches("locked").count(), 3, "{shown}");
    // Locked without a value: as it is without anybody's word, for the run, too.
    let doctor = prefix.program("rpd-collect").env("RPD_PROBES", "none-of-these").args(["--", "true"]);
    let outcome = doctor.env("RPD_OUTPUT", prefix.0.path().join("again")).run().success();
    assert!(!outcome.stderr.contains("RPD_PROBES"), "{outcome}");
}

#[test]
fn the_list_of_options_is_whole_and_each_may_be_said_as_it_stands() {
    let prefix = Prefix::new("");
    let list = fs::read_to_string(repository().join("configs/default.toml")).unwrap();
    let words: Vec<&str> = list.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).collect();
    let is_key = |line: &str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
    let bare = |line: &str| line.strip_prefix("# ").filter(|line| is_key(line)).unwrap_or(line).to_owned();
    let said: Vec<String> = list.lines().map(bare).collect();
    fs::write(prefix.0.path().join("all.toml"), said.join("\n")).unwrap();
    for name in ["rpd-collect", "rpd-merge"] {
        let shown = prefix.program(name).args(["--config", "./all.toml", "--print-config"]).run().success();
        assert_eq!(shown.stderr, "", "{shown}");
        let of_program =
            shown.stdout.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = "));
        let missing: Vec<&str> = of_program.map(|(key, _)| key).filter(|key| !words.contains(key)).collect();
        assert!(missing.is_empty(), "{missing:?} of {name}");
    }
    let run = RunFolder::new(&SyntheticRun::default());
    let merge = prefix.program("rpd-merge").args(["--config", "./all.toml", "--epilog"]).arg(&run.path);
    let _ = merge.run().success();
    assert!(run.path.join("trace.db").is_file());
}

#[test]
fn what_nobody_typed_stops_no_job_whatever_it_says() {
    let job = |prefix: &Prefix| prefix.program("rpd-collect").args(["-o", "runs", "--backend-wait", "1"]);
    let ran = |job: Job| {
        let outcome = job.args(["--", "sh", "-c", "echo ran; exit 4"]).run();
        assert_eq!((outcome.code(), outcome.stdout.as_str()), (Some(4), "ran\n"), "{outcome}");
    };
    let both = "backend = [\"rpd-tracer\", \"native\"]\n";
    let mine = |prefix: &Prefix, text: &str| fs::write(prefix.0.path().join("mine.toml"), text).unwrap();

    let prefix = Prefix::new("");
    mine(&prefix, &format!("[collect]\n{both}trace = [\"roctx\", \"mpi\"]\n"));
    ran(job(&prefix).env("RPD_CONFIG", "./mine.toml"));
    ran(job(&prefix).args(["--config", "./mine.toml"]));
    let shown =
        prefix.program("rpd-collect").args(["--config", "./mine.toml", "--print-config"]).run().success();
    assert!(shown.stderr.contains("native leaves it to the profiler"), "{shown}");

    let prefix = Prefix::new(&format!("[collect]\n{both}"));
    ran(job(&prefix).env("RPD_TRACE", "roctx"));
    ran(job(&prefix).args(["--trace", "roctx"]));
    let prefix = Prefix::new("[collect]\ntrace = [\"roctx\", \"mpi\"]\n");
    ran(job(&prefix).args(["--backend", "rpd-tracer,native"]));

    let prefix = Prefix::new("[collect]\nbackend = [\"rocprofv3\", \"native\"]\nlocked = [\"backend\"]\n");
    for preset in presets() {
        ran(job(&prefix).arg("--config").arg(preset.file_stem().unwrap()));
    }
    ran(job(&prefix).args(["--trace", "roctx"]));
    // Both cannot hold, so typing both is an error.
    let prefix = Prefix::new("");
    let typed = job(&prefix).args(["--backend", "rpd-tracer,native", "--trace", "roctx", "--", "true"]);
    assert_eq!(typed.run().code(), Some(2));

    // Of a merge, the user's file counts before the site's.
    let prefix = Prefix::new("[merge]\nverify = true\n");
    mine(&prefix, "[merge]\ndry-run = true\n");
    let merge = || prefix.program("rpd-merge").env("RPD_CONFIG", "./mine.toml");
    let shown = merge().arg("--print-config").run().success();
    assert!(shown.stdout.contains("dry-run = true") && !shown.stdout.contains("\nverify = true"), "{shown}");
    assert!(shown.stderr.contains("--verify") && shown.stderr.contains("left out"), "{shown}");
    // What is said of traces is for traces, and of two ways to split one counts.
    let run = RunFolder::new(&SyntheticRun::default());
    let prefix = Prefix::new("[merge]\nmax-file-size = \"2GiB\"\nsplit-by-size = \"1M\"\n");
    let merge = |words: &[&str], output: &str| {
        let merge = prefix.program("rpd-merge").args(words).arg("-o").arg(run.beside(output));
        merge.arg(&run.path).run().success()
    };
    let _ = merge(&["--format", "rocpd"], "a.db");
    assert!(run.beside("a.db").is_file());
    let _ = merge(&["--split-by-time", "2"], "split");
    let prefix = Prefix::new("[merge]\nverify = true\nformat = \"rpd\"\nwindow = \"0..1\"\n");
    let merge = |words: &[&str], output: &str| {
        let merge = prefix.program("rpd-merge").args(words).arg("-o").arg(run.beside(output));
        merge.arg(&run.path).run().success()
    };
    let _ = merge(&[], "b.rpd");
    let _ = merge(&["--split-by-time", "2"], "again");
    assert!(run.beside("again").is_dir());
}

#[test]
fn what_is_typed_of_a_merge_is_done_whatever_files_say() {
    let run = RunFolder::new(&SyntheticRun::default());
    let merged = |file: &str, words: &[&str], output: &str| {
        let prefix = Prefix::new(&format!("[merge]\n{file}"));
        let merge = prefix.program("rpd-merge").args(words).arg("-o").arg(run.beside(output)).arg(&run.path);
        merge.run().success().stderr
    };
    let left_out = |told: &str| -> Vec<String> {
        let lines = told.lines().filter(|line| line.contains(" is left out"));
        let word = |line: &str| line.trim_start_matches("warning: --").split(' ').next().unwrap().to_owned();
        lines.map(word).collect()
    };
    // What else is said of traces counts for the trace that is typed.
    let file = "verify = true\nlayout = \"partitioned\"\nranks = \"0\"\nwindow = \"0..1000\"\n";
    let told = merged(file, &["--split-by-time", "2"], "split");
    assert_eq!(left_out(&told), ["verify", "layout"], "{told}");
    let index = fs::read_to_string(run.beside("split/index.json")).unwrap();
    assert!(!index.contains("rank 1"), "{index}");
    let trace = "format = \"perfetto\"\nwindow = \"0..1\"\n";
    for (words, output) in [
        (&["--verify"][..], "verified.db"),
        (&["--layout", "partitioned"], "partitioned.db"),
        (&["--dry-run"], "none.db"),
        (&[], "named.db"),
    ] {
        let told = merged(trace, words, output);
        assert_eq!(left_out(&told), ["format"], "{words:?}: {told}");
        assert_eq!(run.beside(output).is_file(), output != "none.db");
    }
    let told = merged("dry-run = true\n", &["--split-by-time", "2"], "made");
    assert!(left_out(&told) == ["dry-run"] && run.beside("made").is_dir(), "{told}");
    let told = merged("format = \"rpd\"\nlayout = \"partitioned\"\n", &[], "of.rpd");
    assert!(left_out(&told) == ["layout"] && run.beside("of.rpd").is_file(), "{told}");
    // A variable that makes no sense is named.
    let outcome = Prefix::new("")
        .program("rpd-merge")
        .env("RPD_MERGE_WAIT", "abc")
        .arg("--print-config")
        .run()
        .success();
    assert!(
        outcome.stderr.contains("RPD_MERGE_WAIT: ") && outcome.stderr.contains("counts as unset"),
        "{outcome}"
    );
    // Nothing is in the way of these.
    for (file, words, output) in [
        ("verify = true\n", &["--format", "rocpd"][..], "one.db"),
        ("split-by-time = 2\n", &["--format", "perfetto"], "two"),
        ("window = \"0..1\"\nformat = \"chrome-json\"\n", &[], "three.json.gz"),
    ] {
        assert_eq!(left_out(&merged(file, words, output)), [""; 0], "{file}");
    }
}

#[test]
fn what_does_not_go_together_with_a_lock_names_it() {
    let prefix = Prefix::new("[merge]\nformat = \"rocpd\"\nlocked = [\"format\"]\n");
    let outcome = prefix.program("rpd-merge").args(["--split-by-time", "2"]).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    assert!(outcome.stderr.contains("--format is locked by the site:"), "{outcome}");
    for locked in ["verify = true", "layout = \"partitioned\""] {
        let key = locked.split(' ').next().unwrap();
        let prefix = Prefix::new(&format!("[merge]\n{locked}\nlocked = [\"{key}\"]\n"));
        let outcome = prefix.program("rpd-merge").args(["--split-by-time", "2"]).run();
        assert_eq!(outcome.code(), Some(2), "{outcome}");
        assert!(outcome.stderr.contains(&format!("--{key} is locked by the site:")), "{outcome}");
    }
    let prefix = Prefix::new("[merge]\nverify = true\nlocked = [\"verify\"]\n");
    let outcome = prefix.program("rpd-merge").arg("--dry-run").run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    for words in ["--verify is locked by the site:", "rpd.toml, line 2", "'--dry-run"] {
        assert!(outcome.stderr.contains(words), "{words} in {outcome}");
    }
}

#[test]
fn a_mistake_of_the_site_costs_its_file_and_one_that_was_typed_ends_the_call() {
    let prefix = Prefix::new("[collect]\nmax-size = \"3G\"\nmax-sise = \"1G\"\n");
    let shown = prefix.program("rpd-collect").arg("--print-config").run().success();
    assert!(shown.stdout.contains("# max-size"), "{shown}");
    for words in ["rpd.toml:3:", "max-sise", "max-size"] {
        assert!(shown.stderr.contains(words), "{words} in {shown}");
    }
    let outcome = prefix.program("rpd-collect").args(["-o", "runs", "--", "echo", "ran"]).run().success();
    assert_eq!(outcome.stdout, "ran\n");
    fs::write(prefix.0.path().join("mine.toml"), "[merge]\n\nmemry = \"1GiB\"\n").unwrap();
    let outcome = prefix.program("rpd-merge").args(["--config", "./mine.toml"]).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    // A pipe that nobody writes to is no file.
    let pipe = prefix.0.path().join("pipe.toml");
    let _ = Job::new("mkfifo").arg(&pipe).run().success();
    let piped =
        prefix.program("rpd-collect").env("RPD_CONFIG", &pipe).args(["-o", "runs", "--", "echo", "ran"]);
    assert_eq!(piped.run().success().stdout, "ran\n");
    for words in ["./mine.toml:3:", "memry", "memory"] {
        assert!(outcome.stderr.contains(words), "{words} in {outcome}");
    }
    let outcome = prefix.program("rpd-collect").args(["--config", "hpc-mp", "--", "true"]).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    assert!(outcome.stderr.contains("hpc-mpi"), "{outcome}");
}
