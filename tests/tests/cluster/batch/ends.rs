//! Jobs that are ended from outside, and ranks that die: each beside the same job without rpd, which ends alike.

use super::{Ended, Site, assert_status, status, ticks, ticks_of, until, words};
use rpd_tests::harness::Database;
use std::path::Path;

/// A job with rpd, and the same one without.
struct Pair {
    traced: u32,
    plain: u32,
}

impl Pair {
    fn ended(&self, site: &Site) -> Ended {
        let [traced, plain] = [self.traced, self.plain].map(|job| site.ended(job));
        assert_eq!(traced, plain, "the job ended in another way than without rpd\n{}", site.printed());
        traced
    }
}

/// `srun` is how the script starts it.
fn plain(site: &Site, name: &str, srun: &str, options: &[&str], program: &[String]) -> u32 {
    let script = site.script(name, &format!("{srun} --mpi=none {}\n", program.join(" ")));
    let output = format!("--output={name}.out");
    site.submit(&words(&[options, &[output.as_str(), script.as_str()]].concat(), &[]))
}

fn ranks_of(database: &Path) -> i64 {
    Database::open(database).number(
        "SELECT count(DISTINCT json_extract(extdata, '$.rpd.rank')) FROM rocpd_info_process \
         WHERE id IN (SELECT pid FROM rocpd_region)",
    )
}

#[test]
fn a_job_that_is_cancelled_or_loses_a_rank_or_a_node_is_merged_by_the_job_behind_it_under_slurm() {
    let Some(site) = Site::new("jobs that are ended") else { return };
    let [template, mpi] = [site.template("collect.sbatch"), "none".to_owned()];
    let mpi = [("RPD_SRUN_MPI", mpi.as_str())];
    let endless = |name: &str| ticks(&format!("--ticks 100000 --counts {name}"));
    let submit = |name: &str, options: &[&str], program: &[String]| {
        let output = format!("--output={name}.out");
        let [traced, behind] = site
            .submit_both(&mpi, &words(&[options, &[output.as_str(), template.as_str()]].concat(), program));
        (traced, behind)
    };

    // One rank dies, the others go on to their ends.
    let dies = ticks("--ticks 50 --die 1 --counts dead");
    let small = ["-N", "2", "--ntasks-per-node=1", "--no-requeue"];
    let (dead, dead_behind) = submit("dead", &small, &dies);
    let dead = Pair {
        traced: dead,
        plain: plain(&site, "dead-plain", "exec srun", &small, &ticks("--ticks 50 --die 1")),
    };
    let ended = dead.ended(&site);
    assert_eq!(ended.state, "FAILED");
    site.completed(dead_behind);
    let database = site.run(dead.traced).join("trace.db");
    assert_eq!([0, 1].map(|rank| ticks_of(&database, rank)), [50, 50], "{}", site.printed());
    assert_status(&site.run(dead.traced), "done", "1 process died");

    // Two at a time: one is cancelled in the middle, the other one loses a node.
    let on = |nodes: &'static str| ["-N", "2", "--ntasks-per-node=1", "--no-requeue", "-w", nodes];
    let (cancelled, cancelled_behind) = submit("cancelled", &on("n0,n1"), &endless("cancelled"));
    let cancelled = Pair {
        traced: cancelled,
        plain: plain(&site, "cancelled-plain", "exec srun", &on("n0,n1"), &endless("cancelled-plain")),
    };
    let (lost, lost_behind) = submit("lost", &on("n2,n3"), &endless("lost"));
    let lost = Pair {
        traced: lost,
        plain: plain(&site, "lost-plain", "exec srun", &on("n2,n3"), &endless("lost-plain")),
    };
    for name in ["cancelled", "cancelled-plain", "lost", "lost-plain"] {
        site.has_counted(name, 2, 300);
    }
    let both = [cancelled.traced, cancelled.plain].map(|job| job.to_string());
    let _ = site.user(&["scancel"]).args(&both).run().success();
    // What was recorded a second before is on the disk.
    let safe = site.counted("lost", 1) - 250;
    let pid = std::fs::read_to_string(site.cluster.folder.join("nodes/n3.pid")).unwrap();
    let _ = site.cluster.on("head").args(["kill", "-KILL", pid.trim()]).run().success();

    let ended = cancelled.ended(&site);
    assert_eq!(ended.state, "CANCELLED");
    site.completed(cancelled_behind);
    let run = site.run(cancelled.traced);
    for rank in 0..2 {
        // The range that it was in, too.
        let [found, counted] = [ticks_of(&run.join("trace.db"), rank), site.counted("cancelled", rank)];
        assert!((counted..=counted + 1).contains(&found), "rank {rank} counted {counted} of {found}");
    }
    assert_status(&run, "done", "2 processes died");

    let ended = lost.ended(&site);
    assert_eq!(ended.state, "NODE_FAIL");
    site.completed(lost_behind);
    let run = site.run(lost.traced);
    assert_eq!(ranks_of(&run.join("trace.db")), 2);
    let [found, counted] = [ticks_of(&run.join("trace.db"), 1), site.counted("lost", 1)];
    assert!((safe..=counted + 1).contains(&found), "rank 1 counted {counted} of {found}");
    assert_status(&run, "partial", "rank-00001.rpdshard was not finished by its collector");
}

#[test]
fn a_job_that_is_out_of_time_has_merged_what_is_there_under_slurm() {
    let Some(site) = Site::new("jobs out of time") else { return };
    let template = site.template("collect-and-merge.sbatch");
    let small = ["-N", "1", "--ntasks-per-node=2", "--time=1", "--signal=B:USR1@25", "--output=over.out"];
    let mpi = [
        ("RPD_SRUN_MPI", "none"),
        ("RPD_EPILOG_MERGE", "rpd-merge"),
        ("RPD_EPILOG_FORWARD", "1"),
        ("RPD_EPILOG_GRACE", "1"),
    ];
    let program = ticks("--ticks 100000 --counts over");
    let over = site.submit_with(&mpi, &words(&[&small[..], &[template.as_str()]].concat(), &program));
    // All ranks are warned.
    let each = ["-N", "1", "--ntasks-per-node=2", "--time=1", "--signal=USR1@25", "--output=each.out"];
    let template = site.template("collect.sbatch");
    let program = ticks("--ticks 100000 --counts each");
    let mpi = [("RPD_SRUN_MPI", "none")];
    let [each, behind] =
        site.submit_both(&mpi, &words(&[&each[..], &[template.as_str()]].concat(), &program));
    let options = ["-N", "1", "--ntasks-per-node=2", "--time=1"];
    let endless = ticks("--ticks 100000");
    let plain = ["srun", "exec srun"].map(|srun| plain(&site, srun, srun, &options, &endless));

    // Merged when it was warned, and it runs.
    let run = site.run(over);
    let first = until("a merge before the end", || {
        let status = run.join("merge.status").exists().then(|| status(&run.join("merge.status")))?;
        (status["state"] == "partial").then_some(status)
    });
    let early = ticks_of(&run.join("trace.db"), 0);
    assert_eq!(site.facts(over)["JobState"], "RUNNING", "{first}");
    assert!(early > 0 && early <= site.counted("over", 0));

    for (job, plain) in [(over, plain[0]), (each, plain[1])] {
        let ended = site.ended(plain);
        assert_eq!(ended.state, "TIMEOUT");
        assert_eq!(site.ended(job), ended, "job {job}\n{}", site.printed());
    }
    site.completed(behind);
    for (job, name) in [(over, "over"), (each, "each")] {
        for rank in 0..2 {
            let [found, counted] =
                [ticks_of(&site.run(job).join("trace.db"), rank), site.counted(name, rank)];
            assert!((counted..=counted + 1).contains(&found), "{name}, rank {rank}: {counted} of {found}");
        }
        let log = std::fs::read_to_string(site.run(job).join("rank-00001.log")).unwrap();
        assert!(log.contains("USR1"), "{log}");
    }
    let last = status(&run.join("merge.status"));
    assert!(last["inputs"]["bytes"].as_u64() > first["inputs"]["bytes"].as_u64(), "{first} {last}");
}
