//! The scripts of slurm/ without a cluster: what they do to a program, and what they do when something is not there.

use rpd_tests::harness::{Job, JobOutcome, RunFolder, binary, repository};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn script(name: &str) -> PathBuf {
    repository().join("slurm").join(name)
}

/// A folder with programs in the place of others.
struct Stage(TempDir);

impl Stage {
    fn new() -> Stage {
        Stage(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// A job's script that sources rpd-epilog.sh, with the built rpd-merge on its path.
    fn job(&self, text: &str) -> Job {
        let epilog = script("rpd-epilog.sh");
        let path = self.program("job.sh", &format!("set -euo pipefail\n. {}\n{text}", epilog.display()));
        let merge = binary("rpd-merge");
        let folders = format!("{}:/usr/bin:/bin", merge.parent().unwrap().display());
        Job::new(path).folder(self.0.path()).env("PATH", folders).env("SLURM_JOB_ID", "4711")
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

fn ended_with(outcome: &JobOutcome, code: i32) {
    assert_eq!(outcome.code(), Some(code), "{outcome}");
}

#[test]
fn a_program_has_its_input_its_signals_and_its_status() {
    let stage = Stage::new();
    fs::write(stage.path("input"), "of the program\n").unwrap();
    let outcome = stage.job("rpd_run cat <input").run().success();
    assert_eq!(outcome.stdout, "of the program\n");
    let ignored = "rpd_run grep SigIgn /proc/self/status";
    let plain = Job::new("grep").args(["SigIgn", "/proc/self/status"]).run().success();
    assert_eq!(stage.job(ignored).run().success().stdout, plain.stdout);
    ended_with(&stage.job("rpd_run sh -c 'exit 7'").run(), 7);
    ended_with(&stage.job("mine() { return 9; }\nrpd_run mine").run(), 9);
    // A warning in the middle of it, and an end before its merge has ended.
    let warned = |program: &str| stage.job(&format!("(sleep 0.3; kill -USR1 $$) &\n{program}"));
    ended_with(&warned("rpd_run sh -c 'sleep 0.6; exit 6'").run(), 6);
    ended_with(&warned("mine() { sleep 0.6 & wait; return 8; }\nrpd_run mine").run(), 8);
    // Nor does a message that finds no room.
    let full = format!("exec 2>/dev/full\n{}", "rpd_run sh -c 'sleep 0.6; exit 6'");
    ended_with(&warned(&full).run(), 6);
    // Nor a trap of the user's own, whatever is missing.
    let strict = "set -E\ntrap 'kill $$' ERR\nrpd_run sh -c 'sleep 0.6'";
    ended_with(&warned(strict).run(), 0);
    // It is printed on request.
    let handles = "trap 'echo heard' USR1; sleep 0.6 & wait; wait; exit 5";
    let outcome = warned(&format!("rpd_run bash -c \"{handles}\""));
    assert_eq!(outcome.clone().run().stdout, "");
    let outcome = outcome.env("RPD_EPILOG_FORWARD", "1").env("RPD_EPILOG_GRACE", "1").run();
    ended_with(&outcome, 5);
    assert_eq!(outcome.stdout, "heard\n", "{outcome}");
}

#[test]
fn the_collector_writes_where_the_merge_looks_and_a_job_without_a_run_is_told() {
    let stage = Stage::new();
    fs::create_dir(stage.path("below")).unwrap();
    let text = "cd below\nrpd_run sh -c 'echo $RPD_OUTPUT'";
    for (given, wanted) in [("", "rpd-out"), ("mine", "mine")] {
        let outcome = stage.job(text).env("RPD_OUTPUT", given).run().success();
        let wanted = stage.path(wanted).display().to_string();
        assert_eq!(outcome.stdout.trim_end(), wanted);
        assert!(outcome.stderr.contains(&format!("no run of job 4711 in {wanted}")), "{outcome}");
    }
    let by_itself =
        |words: &[&str]| Job::new(script("rpd-epilog.sh")).args(words).folder(stage.0.path()).run();
    ended_with(&by_itself(&["--job", "99"]), 4);
    for wrong in [&["--job=99"][..], &["--job", ""], &["--jobs", "99"]] {
        let outcome = by_itself(wrong);
        ended_with(&outcome, 2);
        assert!(outcome.stderr.contains("usage:"), "{outcome}");
    }
    ended_with(&Job::new(script("submit-with-merge.sh")).arg("--help").run(), 0);
    ended_with(&Job::new(script("submit-with-merge.sh")).run(), 2);
}

#[test]
fn the_time_that_a_job_has_bounds_its_merge() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("rpd-out/4711.0")).unwrap();
    let merge = stage.program("merge", &format!("echo \"$@\" >'{}'", stage.path("called").display()));
    // The last task of an array has its number, too: another task is over.
    stage.program(
        "bin/squeue",
        "date +'4710 %Y-%m-%dT%H:%M:%S'\ndate -d '+100 seconds' +'4711 %Y-%m-%dT%H:%M:%S'\ndate +'4712 %Y-%m-%dT%H:%M:%S'",
    );
    let path = format!("{}:/usr/bin:/bin", stage.path("bin").display());
    let job = stage.job("rpd_run true").env("RPD_EPILOG_MERGE", merge).env("PATH", path);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let told = job.clone().env("SLURM_JOB_END_TIME", (now + 100).to_string());
    for job in [told, job] {
        let _ = job.run().success();
        let called = stage.text("called");
        let words: Vec<&str> = called.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "--lease").unwrap_or_else(|| panic!("{called}"));
        let lease: u32 = words[at + 1].parse().unwrap();
        assert!((60..=85).contains(&lease), "{called}");
        fs::remove_file(stage.path("called")).unwrap();
    }
    // As somebody types it.
    for (seconds, lease) in [("08", "8"), ("soon", "1500"), ("99999999999999999999", "1500")] {
        let merge = stage.path("merge");
        let job = stage.job("rpd_run true").env("RPD_EPILOG_MERGE", merge).env("RPD_EPILOG_SECONDS", seconds);
        let _ = job.run().success();
        let called = stage.text("called");
        assert!(called.contains(&format!("--lease {lease} ")), "{seconds}: {called}");
    }
}

#[test]
fn a_cancelled_job_is_merged_also_if_its_program_does_not_end_or_ended_before() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("rpd-out/4711.0")).unwrap();
    let slow = format!("echo merged >>'{}'\nsleep 0.5", stage.path("called").display());
    let slow = stage.program("slow", &slow);
    stage.program("rpd-merge", &format!("echo last >>'{}'", stage.path("called").display()));
    let path = format!("{}:/usr/bin:/bin", stage.0.path().display());
    let job = |text: &str| {
        let job = stage.job(&format!("(sleep 0.5; kill -TERM $$) &\n{text}")).env("PATH", &path);
        job.env("RPD_EPILOG_MERGE", &slow).env("RPD_EPILOG_LAST_SECONDS", "2")
    };
    let outcome = job("rpd_run bash -c \"trap '' TERM; sleep 3\"").run();
    assert_eq!((outcome.code(), stage.text("called").as_str()), (None, "last\n"), "{outcome}");
    fs::remove_file(stage.path("called")).unwrap();
    // In the middle of the merge: that of rpd-merge is made once more, in time, and the status stays.
    let outcome = job("sleep 0.2; rpd_run sh -c 'exit 7'").run();
    ended_with(&outcome, 7);
    assert_eq!(stage.text("called"), "merged\nlast\n", "{outcome}");
}

#[test]
fn tasks_of_an_array_are_found_by_its_number_or_theirs() {
    let stage = Stage::new();
    for (run, task) in [("4712.0", 1), ("4711.0", 2)] {
        let run = stage.path("rpd-out").join(run);
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join(format!("slurm-array.4711_{task}")), "").unwrap();
    }
    let merge = stage.program("merge", "echo \"merged ${@: -1}\"");
    let merged = |job: &str| {
        let script = Job::new(script("rpd-epilog.sh")).args(["--job", job]).folder(stage.0.path());
        let outcome = script.env("RPD_EPILOG_MERGE", &merge).run();
        let mut lines: Vec<String> = outcome.stderr.lines().map(str::to_owned).collect();
        lines.sort();
        lines.dedup();
        (
            outcome.code(),
            lines.iter().filter_map(|line| Some(line.rsplit_once('/')?.1.to_owned())).collect::<Vec<_>>(),
        )
    };
    assert_eq!(merged("4711"), (Some(0), vec!["4711.0".to_owned(), "4712.0".to_owned()]));
    assert_eq!(merged("4711_1"), (Some(0), vec!["4712.0".to_owned()]));
    assert_eq!(merged("4711_3").0, Some(4));
    // The site merges what has asked for it.
    let own = Job::new(script("rpd-epilog.sh")).args(["--job", "4711"]).folder(stage.0.path());
    let own = own.env("RPD_EPILOG_MERGE", &merge).env("RPD_EPILOG_TASK", "1").run().success();
    assert!(own.stderr.contains("/4711.0") && !own.stderr.contains("/4712.0"), "{own}");
}

#[test]
fn a_template_runs_its_program_without_the_script_that_merges() {
    let stage = Stage::new();
    let runs = "while [[ $1 == -* ]]; do shift; done\nexec \"$@\"";
    stage.program("bin/srun", runs);
    // A wrapper of the site's own.
    stage.program("bin/rpd-collect", "while [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"");
    stage.program("bin/torchrun", runs);
    let path = format!("{}:/usr/bin:/bin", stage.path("bin").display());
    for name in ["collect-and-merge.sbatch", "torchrun.sbatch", "array.sbatch", "collect.sbatch"] {
        let job =
            Job::new("bash").arg(script(name)).args(["sh", "-c", "echo ran; exit 7"]).env("PATH", &path);
        let job = job.env("SLURM_JOB_ID", "4711").env("SLURM_SUBMIT_DIR", stage.0.path());
        let outcome = job.env("SLURM_JOB_NUM_NODES", "1").env("MASTER_ADDR", "n0").run();
        ended_with(&outcome, 7);
        assert_eq!(outcome.stdout, "ran\n", "{outcome}");
        assert_eq!(outcome.stderr.contains("is not merged"), name != "collect.sbatch", "{outcome}");
    }
}

#[test]
fn who_is_asked_to_merge_does_so_whatever_stands_in_the_environment() {
    let run = RunFolder::new(&SyntheticRun::default());
    let stage = Stage::new();
    let root = run.beside("out");
    fs::create_dir(&root).unwrap();
    fs::rename(&run.path, root.join("4711.0")).unwrap();
    let merged = root.join("4711.0/merge.status");
    let job = |text: &str| stage.job(text).env("RPD_OUTPUT", &root);
    // The strict mode of many scripts, and numbers that are none.
    let outcome =
        job("IFS=$'\\n\\t'\nset -f\nshopt -s failglob\nexport RPD_EPILOG_MERGE='env rpd-merge' RPD_EPILOG_ARGS='--align none' \
                       RPD_EPILOG_SECONDS=10m RPD_EPILOG_GRACE=2x\nrpd_run true")
        .run()
        .success();
    assert!(fs::read_to_string(&merged).unwrap().contains("\"done\""), "{outcome}");
    // A merge step that dies with the lease.
    fs::remove_file(&merged).unwrap();
    fs::remove_file(root.join("4711.0/trace.db")).unwrap();
    let dies = stage.program(
        "dies",
        "printf '{\"host\":\"%s\",\"pid\":%d,\"until\":99999999999}' \"$(hostname)\" $$ >\"${@: -1}/merge.lease.0\"\nkill -KILL $$",
    );
    let outcome = job("rpd_run true").env("RPD_EPILOG_MERGE", &dies).run().success();
    assert!(outcome.stderr.contains("merging in one process"), "{outcome}");
    assert!(fs::read_to_string(&merged).unwrap().contains("\"done\""), "{outcome}");
    // A job of a shell that is not bash runs.
    let sh = format!(". {}\nrpd_run echo ran", script("rpd-epilog.sh").display());
    let outcome = Job::new("dash").args(["-c", &sh]).run().success();
    assert_eq!(outcome.stdout, "ran\n");
}

/// A folder as it is installed, with an sbatch that notes how it was called.
fn site(stage: &Stage) -> PathBuf {
    let folder = stage.path("slurm");
    let _ = Job::new("cp").arg("-r").arg(repository().join("slurm")).arg(&folder).run().success();
    stage.program(
        "bin/sbatch",
        &format!("env >'{0}/env'\necho \"$@\" >'{0}/called'\necho 12", stage.0.path().display()),
    );
    fs::write(
        folder.join("site/rpd-site.conf"),
        format!("RPD_SITE_PATH='{}'\nRPD_SITE_SCRATCH=$NOBODY_SET_THIS\n", stage.path("bin").display()),
    )
    .unwrap();
    folder.join("site")
}

#[test]
fn the_controllers_epilogue_submits_a_job_of_the_owner_and_nothing_for_root() {
    if rustix::process::geteuid().as_raw() != 0 {
        return rpd_tests::harness::skip("the controller's epilogue", "only root can become others");
    }
    let stage = Stage::new();
    fs::set_permissions(stage.0.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let scripts = site(&stage);
    let run = stage.path("work/rpd-out/4711.0");
    fs::create_dir_all(&run).unwrap();
    let give = |uid| std::os::unix::fs::chown(&run, Some(uid), None).unwrap();
    let epilogue = |uid: &str, comment: &str| {
        let job =
            Job::new("env").args(["-i", "SLURM_JOB_ID=4711", "SLURM_JOB_USER=nobody", "SLURM_JOB_GID=65534"]);
        let work = format!("SLURM_JOB_WORK_DIR={}", stage.path("work").display());
        job.arg(format!("SLURM_JOB_UID={uid}"))
            .arg(comment)
            .arg(work)
            .arg(scripts.join("epilogslurmctld.sh"))
            .run()
    };
    // Nobody asks.
    ended_with(&epilogue("65534", "SLURM_JOB_COMMENT="), 0);
    assert_eq!(stage.text("called"), "");
    fs::write(run.join("merge.wanted"), "").unwrap();
    // Another user's run, and numbers that are root's.
    for (owner, uid) in [(60_001, "65534"), (0, "0"), (0, "00"), (0, "000")] {
        give(owner);
        ended_with(&epilogue(uid, "SLURM_JOB_COMMENT="), 0);
        assert_eq!(stage.text("called"), "", "uid {uid}");
    }
    give(65_534);
    ended_with(&epilogue("65534", "SLURM_JOB_COMMENT="), 0);
    assert!(stage.text("called").ends_with("/merge.sbatch 4711\n"), "{}", stage.text("called"));
    let environment = stage.text("env");
    // Slurm would take an empty one for a path.
    assert!(!environment.lines().any(|line| line.starts_with("SLURM_CONF=")), "{environment}");
    assert!(environment.contains(&format!("RPD_OUTPUT={}", stage.path("work/rpd-out").display())));
    // Somewhere else, as the job's comment says.
    let aside = stage.path("my %j runs");
    fs::rename(stage.path("work/rpd-out"), &aside).unwrap();
    // Only there has the merge a log: the owner alone writes to it.
    assert!(stage.text("called").contains(" --output=/dev/null "), "{}", stage.text("called"));
    std::os::unix::fs::chown(&aside, Some(65_534), None).unwrap();
    fs::set_permissions(stage.0.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let comment = format!("SLURM_JOB_COMMENT=a 'b' rpd-output='{}' c", aside.display());
    fs::remove_file(stage.path("env")).unwrap();
    ended_with(&epilogue("65534", &comment), 0);
    assert!(stage.text("called").contains("/my %%j runs/rpd-merge-%j.out"), "{}", stage.text("called"));
    assert!(
        stage.text("env").contains(&format!("RPD_OUTPUT={}\n", aside.display())),
        "{}",
        stage.text("env")
    );
}

#[test]
fn an_epilogue_succeeds_whatever_stands_in_its_settings() {
    let stage = Stage::new();
    let scripts = site(&stage);
    for settings in ["RPD_SITE_SBATCH=$NOBODY_SET_THIS", "[ -d /nowhere ] || exit 1", "if then", "false"] {
        // Of the machine's own folders nothing is that old.
        fs::write(scripts.join("rpd-site.conf"), format!("RPD_SITE_AGE=100000000\n{settings}")).unwrap();
        for name in ["epilog.sh", "epilogslurmctld.sh", "task-prolog.sh", "task-epilog.sh"] {
            let job = Job::new("env").args([
                "-i",
                "SLURM_JOB_ID=4711",
                "SLURM_JOB_UID=65534",
                "SLURM_JOB_GID=65534",
            ]);
            let work = format!("SLURM_JOB_WORK_DIR={}", stage.0.path().display());
            ended_with(&job.arg("SLURM_JOB_USER=nobody").arg(work).arg(scripts.join(name)).run(), 0);
        }
    }
}

#[test]
fn a_merge_that_cannot_be_submitted_leaves_the_jobs_number() {
    let stage = Stage::new();
    stage.program("bin/sbatch", "case \"$*\" in *merge.sbatch*) exit 1 ;; esac\necho 17");
    let submit = |words: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", stage.path("bin").display());
        Job::new(script("submit-with-merge.sh")).args(words).env("PATH", path).run()
    };
    let outcome = submit(&["job.sh"]);
    ended_with(&outcome, 1);
    assert!(outcome.stderr.contains("job 17 was submitted"), "{outcome}");
    // Nothing was submitted.
    stage.program("bin/sbatch", "exit 0");
    let outcome = submit(&["--test-only", "job.sh"]);
    ended_with(&outcome, 0);
    assert_eq!(outcome.stdout, "");
    // Words of the program are its own; on another cluster it is merged there.
    stage.program(
        "bin/sbatch",
        "case \"$*\" in *merge.sbatch*) echo \"$@\" >&2; echo '18;big' ;; *) echo '17;big' ;; esac",
    );
    let outcome = submit(&["-M", "big", "job.sh", "--test-only", "-a"]);
    ended_with(&outcome, 0);
    assert!(outcome.stderr.contains("--dependency=afterany:17 --clusters=big"), "{outcome}");
    assert_eq!(outcome.stdout, "job 17, merged by job 18\n");
    // A job that was waited for, and a wrapper that says more.
    stage.program("bin/sbatch", "case \"$*\" in *merge.sbatch*) echo 18 ;; *) echo 17; exit 7 ;; esac");
    ended_with(&submit(&["--wait", "job.sh"]), 7);
    stage.program(
        "bin/sbatch",
        "echo 'be nice'\ncase \"$*\" in *merge.sbatch*) echo 18 ;; *) echo 17 ;; esac",
    );
    assert_eq!(submit(&["job.sh"]).stdout, "job 17, merged by job 18\n");
}

#[test]
fn every_script_is_run_by_a_test_of_jobs() {
    fn all(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
            match entry.extension().and_then(|extension| extension.to_str()) {
                Some("sh" | "sbatch") => found.push(name),
                _ if entry.is_dir() && name != "modulefiles" => all(&entry, found),
                _ => {}
            }
        }
    }
    let mut scripts = Vec::new();
    all(&repository().join("slurm"), &mut scripts);
    // Those that only other scripts start.
    let inner = ["merge.sbatch", "wanted.sh", "merge-as-owner.sh", "clean-scratch.sh", "remove-scratch.sh"];
    let tests: String = ["mod.rs", "site.rs", "templates.rs", "steps.rs", "ends.rs", "full.rs"]
        .map(|name| fs::read_to_string(repository().join("tests/tests/cluster/batch").join(name)).unwrap())
        .concat();
    for name in scripts.iter().filter(|name| !inner.contains(&name.as_str())) {
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is run by no job");
    }
}

#[test]
fn a_merge_for_the_owner_starts_no_program_of_its_callers_path() {
    let stage = Stage::new();
    let scripts = site(&stage);
    let run = stage.path("work/rpd-out/4711.0");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("merge.wanted"), "").unwrap();
    for name in ["timeout", "sbatch", "dirname"] {
        stage.program(&format!("evil/{name}"), &format!("touch '{}'", stage.path("evil-was-run").display()));
    }
    let evil = stage.path("evil").display().to_string();
    let merge = Job::new(scripts.join("merge-as-owner.sh")).arg(stage.path("work/rpd-out"));
    // As sudo would, and as the script took it once.
    ended_with(&merge.args(["4711", &evil, &evil, ""]).env("PATH", &evil).run(), 0);
    assert!(!stage.path("evil-was-run").exists());
    assert!(stage.text("called").ends_with("/merge.sbatch 4711\n"), "{}", stage.text("called"));
}

#[test]
fn the_log_of_a_merge_for_the_owner_lies_where_the_owner_alone_writes() {
    let stage = Stage::new();
    let scripts = site(&stage);
    let root = stage.path("work/rpd-out");
    fs::create_dir_all(root.join("4711.0")).unwrap();
    fs::write(root.join("4711.0/merge.wanted"), "").unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let log = || {
        ended_with(&Job::new(scripts.join("merge-as-owner.sh")).arg(&root).arg("4711").run(), 0);
        let called = stage.text("called");
        let log = called.split(" --output=").nth(1).and_then(|rest| rest.split(" --chdir=").next());
        log.unwrap_or_else(|| panic!("{called}")).to_owned()
    };
    let real = root.canonicalize().unwrap();
    let own = format!("{}/rpd-merge-%j.out", real.display());
    for (of_root, above, expected) in [
        (0o755, 0o755, own.as_str()),
        (0o700, 0o1777, &own),
        // Others may put a link into the folder, or exchange the folder.
        (0o775, 0o755, "/dev/null"),
        (0o1777, 0o755, "/dev/null"),
        (0o755, 0o777, "/dev/null"),
        (0o755, 0o770, "/dev/null"),
    ] {
        set(&root, of_root);
        set(&stage.path("work"), above);
        assert_eq!(log(), expected, "{of_root:o} below {above:o}");
    }
    // A link that is exchanged later leads nowhere else.
    set(&stage.path("work"), 0o755);
    fs::rename(&root, stage.path("work/aside")).unwrap();
    std::os::unix::fs::symlink("aside", &root).unwrap();
    assert_eq!(log(), own.replace("/rpd-out/", "/aside/"));
}

#[test]
fn runs_of_other_users_and_links_are_left_out_by_name() {
    if rustix::process::geteuid().as_raw() != 0 {
        return rpd_tests::harness::skip("runs of other users", "only root can give them away");
    }
    let stage = Stage::new();
    let foreign = stage.path("rpd-out/4711.0");
    fs::create_dir_all(&foreign).unwrap();
    std::os::unix::fs::chown(&foreign, Some(60_001), None).unwrap();
    fs::create_dir(stage.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(stage.path("elsewhere"), stage.path("rpd-out/4711.1")).unwrap();
    let outcome = Job::new(script("rpd-epilog.sh")).args(["--job", "4711"]).folder(stage.0.path()).run();
    ended_with(&outcome, 4);
    for name in ["4711.0", "4711.1"] {
        let line = format!("{name} is a link, or belongs to another user");
        assert!(outcome.stderr.contains(&line), "{outcome}");
    }
    assert_eq!(fs::read_dir(stage.path("elsewhere")).unwrap().count(), 0);
}
