//! Clocks that are seconds and days apart.

use super::truth::{Region, Times, offsets};
use rpd_tests::cluster::{SlurmCluster, StepLauncher};
use rpd_tests::harness::{Database, binary, dump_difference};
use std::time::Duration;

/// Seconds. No more nodes than that: ranks that wait for a core do not leave together.
const UNDER_SLURM: [i64; 3] = [0, 1_500, 777_777];
/// A node may also have been started after the others.
const UNDER_MPIRUN: [i64; 3] = [0, 777_777, -30];
/// Before what else runs here: each session has its share of the machine, and within it each process.
const FIRST: &str = "echo -15 2>/dev/null >/proc/self/autogroup; exec nice -n -15 \"$@\"";
const STEPS: usize = 400;
/// Where nodes share cores, ranks that wait for one leave late in truth. If fewer of a hundred calls end together, the
/// machine is busy with something else, and the job is run again.
const TOGETHER_OF_100: usize = 5;
const TRIES: usize = 3;
/// A merge on all nodes takes no longer.
const MERGE: Duration = Duration::from_secs(40);
/// Exits that are no further apart in truth are together, ns.
const TOGETHER: i64 = 200_000;
/// Those that are not either, once they are merged.
const SURELY_TOGETHER: i64 = 180_000;

#[test]
fn a_job_of_srun_gets_one_time_alone_under_slurm() {
    one_time(StepLauncher::Srun, &UNDER_SLURM);
}

#[test]
fn a_job_of_mpirun_gets_one_time_alone() {
    one_time(StepLauncher::Mpirun, &UNDER_MPIRUN);
}

fn one_time(by: StepLauncher, ahead: &[i64]) {
    for attempt in 1..=TRIES {
        let Some(cluster) = SlurmCluster::new(ahead, "one time for nodes of a cluster") else { return };
        let training = cluster.training(STEPS);
        let training: Vec<&str> = training.iter().map(String::as_str).collect();
        let run = cluster.collect(by, FIRST, &[], &training);
        assert_eq!(run.outcome.code(), Some(0), "{}", run.outcome);
        let plot = cluster.folder.join("clocks.svg");
        let merged = run.merge("alone", &["--strict", "--clock-plot", &plot.display().to_string()]);
        let times = Times::new(&cluster, &run, &merged, 0);
        let calls = times.calls(&merged, "MPI_Allreduce");
        let together = calls.iter().filter(|call| apart(call) <= TOGETHER).count();
        if together * 100 < TOGETHER_OF_100 * calls.len() && attempt < TRIES {
            eprintln!("RETRY: only {together} of {} calls ended together", calls.len());
            continue;
        }
        assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
        assert!(!merged.stderr.contains("warning"), "{}", merged.stderr);
        assert_eq!(merged.method(0), "reference");
        for offset in &offsets(&cluster, &merged, 0) {
            assert!(["fusion", "probes"].contains(&offset.method.as_str()), "{offset:?}");
            assert!(offset.error.abs() <= offset.hard.unwrap(), "{offset:?}");
            assert!(offset.error.abs() < 100_000, "{offset:?}");
        }
        let bars: Vec<i64> =
            (0..ahead.len()).map(|node| merged.clock(node)["bar_ns"].as_i64().unwrap()).collect();
        let worst: Vec<i64> = (0..ahead.len()).map(|rank| times.worst(rank)).collect();
        eprintln!("largest error of any time of a rank: {worst:?} ns");
        assert!(worst[0] == 0 && worst.iter().all(|error| *error < 100_000), "{worst:?}");
        exits_line_up(&calls, &bars);

        let alone = Database::open(merged.path());
        alone.assert_sound();
        let together = cluster.folder.join("together.db");
        let merge = || {
            let job = cluster.launch(by, 3).arg(binary("rpd-merge")).arg("-o").arg(&together);
            job.arg("--force").arg(run.folder()).limit(MERGE).run()
        };
        let mut outcome = merge();
        // On a busy machine MPI's start was seen to crash, of other programs as well.
        if outcome.stderr.contains("task 2: Segmentation fault") {
            eprintln!("RETRY: {outcome}");
            outcome = merge();
        }
        let _ = outcome.success();
        assert_eq!(dump_difference(&alone.dump(), &Database::open(&together).dump()), None);
        return;
    }
}

/// How far apart the exits of a call were in truth, ns.
fn apart(call: &[(Region, Region)]) -> i64 {
    let ends = || call.iter().map(|(_, truth)| truth.end);
    ends().max().unwrap() - ends().min().unwrap()
}

/// No rank leaves an allreduce before all have come, and ranks that left together leave together.
fn exits_line_up(calls: &[Vec<(Region, Region)>], bars: &[i64]) {
    assert_eq!(calls.len(), 2 * STEPS);
    let mut beyond_bars = Vec::new();
    let mut together = 0;
    for call in calls {
        assert_eq!(call.len(), bars.len(), "{call:?}");
        let merged: Vec<Region> = call.iter().map(|(merged, _)| *merged).collect();
        let early = |one: &Region, other: &Region| other.start - one.end - bars[one.rank] - bars[other.rank];
        let pairs = merged.iter().flat_map(|one| merged.iter().map(move |other| early(one, other)));
        assert!(pairs.max().unwrap() <= 0, "left before another one came: {call:?}");

        let first = merged.iter().min_by_key(|region| region.end).unwrap();
        let last = merged.iter().max_by_key(|region| region.end).unwrap();
        let beyond = last.end - first.end - bars[first.rank] - bars[last.rank];
        beyond_bars.push(beyond);
        // A rank that had to wait for a core left later, in truth as well.
        let apart = apart(call);
        // Those that ended apart are as far apart as they were in truth.
        assert!(beyond <= apart + 100_000, "apart by {apart} ns, and {beyond} ns beyond the bars: {call:?}");
        if apart <= TOGETHER {
            together += 1;
        }
        // The bars are the usual ones: a time may be off by a little more.
        if apart <= SURELY_TOGETHER {
            assert!(beyond <= TOGETHER, "apart by {apart} ns, and {beyond} ns beyond the bars: {call:?}");
        }
    }
    beyond_bars.sort_unstable();
    let at = |percent: usize| beyond_bars[(beyond_bars.len() - 1) * percent / 100] / 1000;
    eprintln!(
        "exits of {} calls beyond the bars: {} {} {} {} {} us at 5, 25, 50, 75, 95 %; {} within 200 us, {together} in truth",
        calls.len(),
        at(5),
        at(25),
        at(50),
        at(75),
        at(95),
        beyond_bars.iter().filter(|beyond| **beyond <= TOGETHER).count()
    );
}
