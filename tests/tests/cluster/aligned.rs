//! Clocks that are seconds and days apart.

use super::rig::{Cluster, Launcher, Merged};
use super::truth::{calls, offsets, worst_errors};
use rpd_tests::harness::{Database, binary, dump_difference};

/// Seconds. No more nodes than that: ranks that wait for a core do not leave together.
const UNDER_SLURM: [i64; 3] = [0, 1_500, 777_777];
/// A node may also have been started after the others.
const UNDER_MPIRUN: [i64; 3] = [0, 777_777, -30];
/// Before what else runs here.
const FIRST: &str = "exec nice -n -15 \"$@\"";
const STEPS: usize = 400;

#[test]
fn a_job_of_srun_gets_one_time_alone_under_slurm() {
    one_time(Launcher::Srun, &UNDER_SLURM);
}

#[test]
fn a_job_of_mpirun_gets_one_time_alone() {
    one_time(Launcher::Mpirun, &UNDER_MPIRUN);
}

fn one_time(by: Launcher, ahead: &[i64]) {
    let Some(cluster) = Cluster::new(ahead, "one time for nodes of a cluster") else { return };
    let training = cluster.training(STEPS);
    let training: Vec<&str> = training.iter().map(String::as_str).collect();
    let run = cluster.collect(by, FIRST, &[], &training);
    assert_eq!(run.outcome.code(), Some(0), "{}", run.outcome);
    let plot = cluster.folder.join("clocks.svg");
    let merged = run.merge("alone", &["--strict", "--clock-plot", &plot.display().to_string()]);
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
    assert!(!merged.stderr.contains("warning"), "{}", merged.stderr);

    assert_eq!(merged.method(0), "reference");
    let offsets = offsets(&cluster, &merged, 0);
    for offset in &offsets {
        assert!(["fusion", "probes"].contains(&offset.method.as_str()), "{offset:?}");
        assert!(offset.error.abs() <= offset.hard.unwrap(), "{offset:?}");
        assert!(offset.error.abs() < 100_000, "{offset:?}");
    }
    let worst = worst_errors(&cluster, &run, &merged, 0);
    assert!(worst[0] == 0 && worst.iter().all(|error| *error < 100_000), "{worst:?}");
    let bars: Vec<i64> =
        (0..ahead.len()).map(|node| merged.clock(node)["bar_ns"].as_i64().unwrap()).collect();
    exits_line_up(&merged, &bars, &worst);

    let alone = Database::open(merged.path());
    alone.assert_sound();
    let together = cluster.folder.join("together.db");
    let job = cluster.launch(by, 3).arg(binary("rpd-merge")).arg("-o").arg(&together).arg(run.folder());
    let _ = job.run().success();
    assert_eq!(dump_difference(&alone.dump(), &Database::open(&together).dump()), None);
}

/// Nobody leaves an allreduce before all have come, and all leave together.
fn exits_line_up(merged: &Merged, bars: &[i64], worst: &[i64]) {
    let calls = calls(merged, "MPI_Allreduce");
    assert_eq!(calls.len(), 2 * STEPS);
    let mut late = Vec::new();
    for call in &calls {
        assert_eq!(call.len(), bars.len(), "{call:?}");
        for one in call {
            for other in call {
                let room = worst[one.rank] + worst[other.rank];
                assert!(one.end >= other.start - room, "left {} ns early: {call:?}", other.start - one.end);
            }
        }
        // What is beyond the bars of the first and the last to leave.
        let first = call.iter().min_by_key(|region| region.end).unwrap();
        let last = call.iter().max_by_key(|region| region.end).unwrap();
        late.push(last.end - first.end - bars[first.rank] - bars[last.rank]);
    }
    late.sort_unstable();
    let at = |percent: usize| late[(late.len() - 1) * percent / 100];
    let within = late.iter().filter(|late| **late <= 200_000).count();
    eprintln!(
        "exits beyond the bars: p5 {} p25 {} p50 {} p75 {} p95 {} max {} ns; {within} of {} within 200 us",
        at(5),
        at(25),
        at(50),
        at(75),
        at(95),
        at(100),
        late.len()
    );
    // A rank that waits for a core leaves later than it could; no clock that is wrong by more looks like this.
    assert!(at(25) <= 200_000, "exits are {} ns apart beyond the bars", at(25));
}
