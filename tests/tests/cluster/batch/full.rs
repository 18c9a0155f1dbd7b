//! Nodes without room: in `/dev/shm`, and in the folder of the run.

use super::{Site, assert_status, status, ticks, ticks_of, words};
use rpd_tests::harness::Database;
use serde_json::Value as Json;
use std::fs;

#[test]
fn a_full_dev_shm_and_a_full_folder_cost_what_they_say_and_never_the_job_under_slurm() {
    let Some(site) = Site::new("nodes without room") else { return };
    // Room for less than one ring.
    let fill = "cat /dev/zero >/dev/shm/full 2>/dev/null; truncate --size=-64K /dev/shm/full; df --output=avail /dev/shm";
    let filled = site.cluster.on("n1").args(["bash", "-c", fill]).run().success();
    let template = site.template("collect-and-merge.sbatch");
    let none = [("RPD_SRUN_MPI", "none"), ("RPD_EPILOG_MERGE", "rpd-merge")];
    let options = ["-N", "1", "--ntasks-per-node=2", "-w", "n1", "--output=shm.out", &template];
    let shm = site.submit_with(&none, &words(&options, &ticks("--ticks 200 --pause-ms 1")));
    // 1 MiB for all of it: each range has a name of its own, which does not compress.
    let small = [&none[..], &[("RPD_OUTPUT", "/mnt/small/rpd-out")]].concat();
    let options = ["-N", "1", "--ntasks-per-node=1", "-w", "n2", "--output=small.out", &template];
    let program = ticks("--ticks 3000 --pause-ms 0.5 --texts 1000");
    let full = site.submit_with(&small, &words(&options, &program));

    site.completed(shm);
    let printed = site.printed();
    assert!(printed.contains("rank 0: 200 ticks") && printed.contains("rank 1: 200 ticks"), "{printed}");
    let run = site.run(shm);
    let recorded = [0, 1].map(|rank| ticks_of(&run.join("trace.db"), rank));
    let told = status(&run.join("merge.status"));
    let log =
        [0, 1].map(|rank| fs::read_to_string(run.join(format!("rank-{rank:05}.log"))).unwrap_or_default());
    // Rings are no files there.
    assert_eq!(recorded, [200, 200], "{filled} {told} {log:?}");
    assert_status(&run, "done", "all that was recorded");

    site.completed(full);
    assert!(site.printed().contains("rank 0: 3000 ticks"), "{}", site.printed());
    // The run's own folder has no room for a database; for a word of it, it had.
    let output = site.work().join(format!("rpd-{full}.0.db"));
    let run = format!("/mnt/small/rpd-out/{full}.0");
    let told = site.user(&["cat", &format!("{run}/merge.status")]).run().success().stdout;
    let told: Json = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (told["state"].as_str(), told["output"].as_str()),
        (Some("partial"), output.to_str()),
        "{told}"
    );
    let why = told["why"].as_str().unwrap();
    assert!(why.contains("no_space"), "{why}");
    let database = Database::open(&output);
    let ranges = database.number("SELECT count(*) FROM rocpd_region");
    assert!((1..3000).contains(&ranges), "{ranges}");
    assert!(why.contains(&format!("{} rows of range (no_space)", 3000 - ranges)), "{ranges} and {why}");

    // Without any: both are beside the database.
    fs::remove_file(&output).unwrap();
    let fill =
        format!("rm {run}/merge.status; cat /dev/zero >/mnt/small/fill 2>/dev/null; test -s /mnt/small/fill");
    let _ = site.user(&["sh", "-c", &fill]).run().success();
    let again = site.user(&[&site.template("rpd-epilog.sh"), &run]);
    let _ = again.env("RPD_EPILOG_ELSEWHERE", site.work()).run().success();
    let beside = status(&site.work().join(format!("rpd-{full}.0.db.status")));
    assert_eq!(beside["state"], "partial", "{beside}");
    assert_eq!(Database::open(&output).number("SELECT count(*) FROM rocpd_region"), ranges);
}
