//! A real torchrun with eight workers under one collector, and a restart of its workers.

use crate::support;
use rpd_shard::record::ProcessExit;
use std::collections::BTreeMap;
use std::process::Command;
use support::{Bench, exit_code, number, run, text};

const WORKERS: u32 = 8;

/// Every worker counts its events. In the first round worker 3 dies by SIGKILL inside a range, when all
/// others have recorded theirs. Then torchrun starts all of them again.
const WORKER: &str = r#"
import ctypes, os, signal, sys, time
roctx = ctypes.CDLL(None)
rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for i in range(100 + rank):
    roctx.roctxRangePushA(b"restart %d" % restart)
    roctx.roctxRangePop()
open("done-%d-%d" % (restart, rank), "w").close()
if restart == 0:
    roctx.roctxRangePushA(b"open at the end")
    while any(not os.path.exists("done-0-%d" % other) for other in range(8)):
        time.sleep(0.01)
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
"#;

/// A Python interpreter with torchrun.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let found = Command::new(python).args(["-c", "import torch.distributed.run"]).output();
        found.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn eight_workers_and_their_restart_are_told_apart() {
    let Some(bench) = Bench::new() else { return };
    let Some(python) = python() else {
        eprintln!("skipped: no Python here has torch.distributed.run");
        return;
    };
    std::fs::write(bench.path("worker.py"), WORKER).unwrap();
    let mut command = bench.collect();
    command.args(["--", python, "-m", "torch.distributed.run", "--standalone"]);
    // Without redirections torch 1.13 does not start on Python 3.11.
    command.args([
        "--nproc_per_node=8",
        "--max_restarts=1",
        "--monitor_interval=0.2",
        "--redirects=1",
        "--tee=1",
        "worker.py",
    ]);
    let output = run(&mut command);
    assert_eq!(exit_code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));

    let trace = bench.trace();
    assert_eq!(trace.lost(), 0);
    let workers: BTreeMap<(u32, u32), _> = trace
        .shard
        .processes
        .values()
        .filter(|process| process.rank.is_some())
        .map(|process| ((process.restart, process.rank.unwrap()), process))
        .collect();
    assert_eq!(workers.len() as u32, 2 * WORKERS);
    for ((restart, rank), process) in &workers {
        assert_eq!((process.size, process.local_rank), (Some(WORKERS), Some(*rank)));
        assert_eq!(process.rank_from.as_deref(), Some("RANK"));
        assert!(!process.worker, "it is the rank itself");
        let own = |name: &str| {
            let of_it = |row: &&support::Row| {
                number(row, "source") == i64::from(process.source) && text(row, "name_id") == name
            };
            trace.ranges.iter().filter(of_it).count() as u32
        };
        assert_eq!(own(&format!("restart {restart}")), 100 + rank);
        assert_eq!(own("open at the end"), 1 - restart);
        let expected = match (restart, rank) {
            (0, 3) => ProcessExit::Signal(9),
            // torchrun ends the others by SIGTERM.
            (0, _) => ProcessExit::Signal(15),
            _ => ProcessExit::Code(0),
        };
        assert_eq!(process.exit, Some(expected), "rank {rank}, restart {restart}");
    }
}
