//! Bounds of clocks hold on nodes with busy cores, since kernels note when packets arrive.

use rpd_clocks::AlignChoice;
use rpd_shard::Shard;
use rpd_tests::clocks::{JudgedClock, RecordedRun, judge};
use rpd_tests::cluster::{SlurmCluster, StepLauncher};
use rpd_tests::harness::{Job, repository};

/// Seconds by which the clocks of four nodes are ahead: three clocks a run.
const AHEAD: [i64; 4] = [0, 1_500, 777_777, 200];
/// Ranks that sleep and ranks that spin, two runs each, of so many seconds.
const RANKS: [&str; 4] = ["sleep", "spin", "spin", "sleep"];
const SECONDS: &str = "6";

#[test]
fn bounds_of_twelve_clocks_hold_on_busy_nodes_alone() {
    let Some(cluster) = SlurmCluster::new(&AHEAD, "bounds of clocks on busy nodes") else { return };
    let program = cluster.folder.join("meetings");
    let compiler = Job::new("mpicc").arg("-O1").arg("-o").arg(&program);
    let _ = compiler.arg(repository().join("tests/workloads/meetings.c")).run().success();
    let program = program.display().to_string();
    let mut clocks: Vec<JudgedClock> = Vec::new();
    for ranks in RANKS {
        let command = [program.as_str(), SECONDS, ranks, "5"];
        let run = cluster.collect(StepLauncher::Mpirun, "exec \"$@\"", &[], &command);
        assert_eq!(run.outcome.code(), Some(0), "{}", run.outcome);
        // Any node may be the root, which asks none.
        let shards = (0..AHEAD.len()).map(|rank| Shard::open(&run.shard(rank)).unwrap());
        let by_kernels: Vec<bool> = shards
            .flat_map(|shard| shard.probes.iter().map(|burst| burst.kernel_times).collect::<Vec<_>>())
            .collect();
        let counted = by_kernels.iter().filter(|is_kernel| **is_kernel).count();
        assert!(by_kernels.len() >= 6 && counted * 10 >= by_kernels.len() * 8, "{ranks}: {by_kernels:?}");
        clocks.extend(judge(&RecordedRun::open(&run.folder()).unwrap(), AlignChoice::Auto));
        run.remove();
    }
    assert_eq!(clocks.len(), 12);
    let covered = clocks.iter().filter(|clock| clock.is_covered()).count();
    let coverage: Vec<String> = clocks.iter().map(|clock| format!("{:.2}", clock.coverage())).collect();
    assert!(covered >= 11, "{coverage:?}");
    assert!(clocks.iter().all(|clock| clock.jumps + clock.broken == 0));
    let mut bounds: Vec<i64> = clocks.iter().flat_map(|clock| clock.bounds.clone()).collect();
    bounds.sort_unstable();
    assert!(bounds[bounds.len() / 2] < 2_000, "a median bound of {} ns", bounds[bounds.len() / 2]);
}
