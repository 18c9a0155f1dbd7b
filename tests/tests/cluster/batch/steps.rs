//! Steps of all kinds are runs with the right ranks, while they run, too.

use super::{PATIENCE, Site, assert_status, node_python, ticks, ticks_of, until};
use rpd_tests::harness::Database;
use std::fs;
use std::path::{Path, PathBuf};

/// The ranks of a run, with the ranges of each.
fn ranks(site: &Site, run: &Path) -> Vec<(i64, i64)> {
    let database = site.work().join(format!("{}.db", run.file_name().unwrap().display()));
    let _ = site.user(&["rpd-merge", "-q", "--force", "-o"]).arg(&database).arg(run).run().success();
    let rows = Database::open(&database).rows(
        "SELECT json_extract(p.extdata, '$.rpd.rank'), count(*) FROM rocpd_region r JOIN rocpd_info_process p ON r.pid = p.id \
         WHERE r.name_id IN (SELECT id FROM rocpd_string WHERE string = 'tick') GROUP BY 1 ORDER BY 1",
    );
    rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect()
}

fn runs(folder: &Path) -> Vec<PathBuf> {
    let mut runs: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    runs.sort();
    runs
}

#[test]
fn steps_of_every_kind_have_their_ranks_under_slurm() {
    let Some(site) = Site::new("steps of every kind") else { return };
    let program = |count: &str| ticks(&format!("--ticks {count} --pause-ms 5")).join(" ");
    // mpirun in an allocation: its ranks are not Slurm's.
    let mpirun = format!(
        "mpirun -n 4 --map-by node --mca oob_tcp_if_include 10.77.0.0/24 rpd-collect -o by-mpirun -- {} && \
         RPD_OUTPUT=$PWD/by-mpirun '{}'",
        program("10"),
        site.template("rpd-epilog.sh")
    );
    let outcome = site.user(&["salloc", "-N", "2", "-n", "4", "bash", "-c", &mpirun]).limit(PATIENCE).run();
    let outcome = outcome.success();
    let by_mpirun = runs(&site.work().join("by-mpirun"));
    assert_eq!(by_mpirun.len(), 1, "{by_mpirun:?}\n{outcome}");
    // Its name is not that of the job, which finds it all the same.
    assert_status(&by_mpirun[0], "done", "all that was recorded");
    assert_eq!(ranks(&site, &by_mpirun[0]), [(0, 10), (1, 10), (2, 10), (3, 10)]);

    // Two steps at once on the same cores, and two beside each other.
    let step = |options: &str, count: &str| {
        format!("srun --mpi=none {options} rpd-collect -o steps -- {} &\n", program(count))
    };
    let script = format!(
        "#SBATCH -N 2 -n 4 --output=steps.out\n{}{}wait\n{}{}wait\n",
        step("--overlap -n 4", "11"),
        step("--overlap -n 2", "12"),
        step("--exclusive -N 1 -n 2", "13"),
        step("--exclusive -N 1 -n 1", "14"),
    );
    let job = site.submit(&[&site.script("steps", &script)]);
    site.completed(job);
    let found = runs(&site.work().join("steps"));
    let mut found: Vec<Vec<(i64, i64)>> = found.iter().map(|run| ranks(&site, run)).collect();
    found.sort_by_key(|ranks| ranks[0].1);
    let all = |count: i64, ranks: i64| (0..ranks).map(|rank| (rank, count)).collect::<Vec<_>>();
    assert_eq!(found, [all(11, 4), all(12, 2), all(13, 2), all(14, 1)], "{}", site.printed());

    // One step over two kinds of nodes.
    let het = format!(
        "#SBATCH -n 2 --output=het.out\n#SBATCH hetjob\n#SBATCH -n 1\n\
         srun --mpi=none --het-group=0,1 rpd-collect -o het -- {}\n",
        program("15")
    );
    let job = site.submit(&[&site.script("het", &het)]);
    site.completed(job);
    let found = runs(&site.work().join("het"));
    assert_eq!(found.len(), 1, "{found:?} {}", site.printed());
    assert_eq!(ranks(&site, &found[0]), all(15, 3), "{}", site.printed());
}

#[test]
fn a_job_is_merged_while_it_runs_and_warned_without_an_end_under_slurm() {
    let Some(site) = Site::new("a job that runs") else { return };
    // Takes the signal itself: counts it and goes on.
    let trap = "import signal, runpy, sys\n\
                def heard(*_): print('heard', flush=True)\n\
                signal.signal(signal.SIGUSR1, heard)\n\
                sys.argv = sys.argv[1:]\n\
                runpy.run_path(sys.argv[0], run_name='__main__')\n";
    let trap_path = site.work().join("trap.py");
    fs::write(&trap_path, trap).unwrap();
    let mut handles = ticks("--ticks 1500 --counts runs");
    handles.insert(1, trap_path.display().to_string());
    assert_eq!(handles[0], node_python());
    let script = format!(
        "#SBATCH -n 2 --output=runs.out\nsrun --mpi=none rpd-collect --warn-signal USR1 -- {}\n",
        handles.join(" ")
    );
    let job = site.submit(&[&site.script("runs", &script)]);
    // A script of its own kind, with a function that has the step: only the script is warned, and it merges.
    let script = format!(
        "#SBATCH -n 1 --output=script.out\nset -euo pipefail\n\
         . \"$(dirname \"$(command -v rpd-collect)\")/../share/rpd/slurm/rpd-epilog.sh\"\n\
         steps() {{ srun --mpi=none rpd-collect -- {} & wait $!; }}\nrpd_run steps\n",
        ticks("--ticks 1000 --counts script").join(" ")
    );
    let of_script = site.submit(&[&site.script("script", &script)]);
    site.has_counted("runs", 2, 200);
    let before = [0, 1].map(|rank| site.counted("runs", rank));
    let _ = site.user(&["scancel", "--signal=USR1", &format!("{job}.0")]).run().success();
    let log = site.run(job).join("rank-00001.log");
    until("the collector was warned", || fs::read_to_string(&log).ok()?.contains("USR1").then_some(()));
    let outcome = site.user(&["rpd-merge"]).arg(site.run(job)).run().success();
    assert_eq!(site.facts(job)["JobState"], "RUNNING");
    let database = site.run(job).join("trace.db");
    for rank in 0..2 {
        let found = ticks_of(&database, rank as u32);
        assert!((before[rank]..1500).contains(&found), "{found} of {before:?}\n{outcome}");
    }
    site.has_counted("script", 1, 100);
    let before = site.counted("script", 0);
    let _ = site.user(&["scancel", "--batch", "--signal=USR1", &of_script.to_string()]).run().success();
    let run = site.run(of_script);
    until("a merge of the script", || run.join("trace.db").exists().then_some(()));
    // What was recorded a second before is on the disk.
    let found = ticks_of(&run.join("trace.db"), 0);
    assert!((before - 250..1000).contains(&found), "{found} of {before}");
    site.completed(of_script);
    assert_eq!(ticks_of(&run.join("trace.db"), 0), 1000, "{}", site.printed());
    site.completed(job);
    assert_eq!(site.printed().matches("heard").count(), 2, "{}", site.printed());
    assert_eq!(ranks(&site, &site.run(job)), [(0, 1500), (1, 1500)]);
}

#[test]
fn a_script_that_alone_gets_term_leaves_its_ranks_the_time_to_end_under_slurm() {
    let Some(site) = Site::new("a script with TERM") else { return };
    // Ends in its own time, as a program does that writes a checkpoint.
    let ends = "import signal, runpy, sys, time\n\
                def asked(*_):\n    time.sleep(3)\n    print('saved', flush=True)\n    sys.exit(3)\n\
                signal.signal(signal.SIGTERM, asked)\n\
                sys.argv = sys.argv[1:]\n\
                runpy.run_path(sys.argv[0], run_name='__main__')\n";
    fs::write(site.work().join("ends.py"), ends).unwrap();
    let submit = |name: &str, text: &str| {
        let mut program = ticks(&format!("--ticks 3000 --counts {name}"));
        program.insert(1, "ends.py".to_owned());
        let step = format!("srun --mpi=none rpd-collect -- {}", program.join(" "));
        let script = format!(
            "#SBATCH -n 2 --output={name}.out\nset -euo pipefail\n\
             . \"$(dirname \"$(command -v rpd-collect)\")/../share/rpd/slurm/rpd-epilog.sh\"\n{}\n",
            text.replace("STEP", &step)
        );
        site.submit(&[&site.script(name, &script)])
    };
    let jobs = [
        ("step", submit("step", "rpd_run STEP")),
        ("both", submit("both", "both() { STEP; }\nrpd_run both")),
    ];
    for (name, job) in jobs {
        site.has_counted(name, 2, 20);
        let _ = site.user(&["scancel", "--batch", "--signal=TERM", &job.to_string()]).run().success();
    }
    for (name, job) in jobs {
        assert_ne!(site.ended(job).state, "COMPLETED");
        let printed = fs::read_to_string(site.work().join(format!("{name}.out"))).unwrap();
        assert_eq!(printed.matches("saved").count(), 2, "{printed}");
        // All that each has counted; the last one may have been interrupted.
        for rank in 0..2 {
            let (found, counted) =
                (ticks_of(&site.run(job).join("trace.db"), rank), site.counted(name, rank));
            assert!((counted..=counted + 1).contains(&found), "{found} of {counted}: {printed}");
        }
        assert_status(&site.run(job), "done", "all that was recorded");
    }
}
