//! PyTorch's profiler under rpd-collect, with a real torch: the program does what it does without.

use rpd_shard::Shard;
use rpd_tests::harness::{Database, Job, JobOutcome, binary, free_port, rpd_merge, skip};
use std::fs;
use std::path::{Path, PathBuf};

/// Two ranks train over gloo, with worker processes that load data, and print each loss to the last bit.
const TRAIN: &str = r#"
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
step = torch.optim.SGD(model.parameters(), lr=0.01)
noise = torch.Generator().manual_seed(rank)
data = TensorDataset(torch.randn(64, 16, generator=noise), torch.randn(64, 1, generator=noise))
for x, y in DataLoader(data, batch_size=8, num_workers=2):
    loss = torch.nn.functional.mse_loss(model(x), y)
    step.zero_grad()
    loss.backward()
    step.step()
    print(loss.item().hex())
dist.destroy_process_group()
"#;

/// Two ranks by torch.multiprocessing.spawn, each with a worker that loads data and is spawned, too. Their numbers are
/// not those of spawn.
const SPAWN: &str = r#"
import ctypes, os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def rank(index, size):
    marks = ctypes.CDLL(None)
    if hasattr(marks, "roctxRangePushA"):
        marks.roctxRangePushA(f"spawned {size - 1 - index}".encode())
        marks.roctxRangePop()
    dist.init_process_group("gloo", rank=size - 1 - index, world_size=size)
    data = TensorDataset(torch.arange(8.0))
    total = torch.zeros(1)
    for (x,) in DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="spawn"):
        total += x.sum()
    dist.all_reduce(total)
    print(f"{index} {total.item()}\n", end="", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(rank, args=(2,), nprocs=2)
"#;

/// Two processes by torch.multiprocessing.spawn that join no process group; the second one ends without a word.
const QUIET_END: &str = r#"
import os, torch, torch.multiprocessing as mp

def rank(index, size):
    torch.ones(8) + 1
    if index == 1:
        os._exit(0)

if __name__ == "__main__":
    mp.spawn(rank, args=(2,), nprocs=2)
"#;

/// Two processes of multiprocessing. Each is a process group of its own, as rank 0, if there is a port for it.
const CHILDREN: &str = r#"
import sys, torch, torch.multiprocessing as mp
from torch.distributed import init_process_group, destroy_process_group

def child(port):
    torch.ones(8) + 1
    if port:
        init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
        torch.ones(8) * 2
        destroy_process_group()

if __name__ == "__main__":
    context = mp.get_context(METHOD)
    children = [context.Process(target=child, args=(port,)) for port in (PORT, 0)]
    for process in children:
        process.start()
    for process in children:
        process.join()
"#;

/// A program with a profiler of its own.
const OWN: &str = r#"
import importlib.util
importlib.util.find_spec("torch")
import torch
from torch.autograd import profiler_legacy
with profiler_legacy.profile(enabled=False):
    torch.ones(3) + 1
with profiler_legacy.profile() as mine:
    for i in range(5):
        torch.ones(3) * 2
print(len([event for event in mine.function_events if event.name == "aten::mul"]))
"#;

/// A Python that has torch, and whether that has no Kineto.
fn python() -> Option<&'static str> {
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let asked = std::process::Command::new(python).args(["-c", "import torch.distributed"]).output();
        asked.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        skip("the torch backend", "no Python here has torch");
    }
    found
}

fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The program, under rpd-collect with these options, or as it is.
fn job(folder: &Path, python: &str, script: &Path, options: Option<&[&str]>) -> Job {
    let job = match options {
        Some(options) => Job::new(binary("rpd-collect"))
            .args(["--run-id", "run", "-o"])
            .arg(folder.join("out"))
            .args(options)
            .arg("--")
            .arg(python),
        None => Job::new(python),
    };
    let scratch = folder.join("scratch");
    fs::create_dir_all(&scratch).unwrap();
    job.arg(script).env("TMPDIR", scratch).env("PYTHONDONTWRITEBYTECODE", "1").folder(folder)
}

/// Both ranks at once.
fn train(folder: &Path, python: &str, port: u16, options: Option<&[&str]>) -> Vec<JobOutcome> {
    let path = script(folder, "train.py", TRAIN);
    let rank = |rank: u32| {
        job(folder, python, &path, options)
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            [0, 1].map(|number| scope.spawn(move || rank(number).run())).into_iter().collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().success()).collect()
    })
}

#[test]
fn losses_are_the_same_to_the_last_bit_and_workers_are_left_alone() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plain = train(folder, python, free_port(), None);
    let profiled = train(folder, python, free_port(), Some(&["--backend", "torch,native"]));
    for (plain, profiled) in plain.iter().zip(&profiled) {
        assert_eq!(plain.stdout.lines().count(), 8);
        assert_eq!(plain.stdout, profiled.stdout);
    }
    assert_eq!(fs::read_dir(folder.join("scratch")).unwrap().count(), 0, "scratch is removed");

    // One trace for each rank, and none of the four workers that load data.
    let run = folder.join("out/run");
    let log = |rank: u32| fs::read_to_string(run.join(format!("rank-{rank:05}.log"))).unwrap();
    for rank in [0, 1] {
        let shard = Shard::open(&run.join(format!("rank-{rank:05}.torch-1.rpdshard"))).unwrap();
        assert!(shard.complete(), "{}", log(rank));
        let process = &shard.processes[&1];
        assert_eq!((process.rank, process.size, process.worker), (Some(rank), Some(2), false));
        assert!(!run.join(format!("rank-{rank:05}.torch-2.rpdshard")).exists(), "{}", log(rank));
        assert!(!log(rank).contains("warning"), "{}", log(rank));
    }
    let outcome = rpd_merge().args(["--strict", "-o"]).arg(folder.join("all.db")).arg(&run).run().success();
    assert!(outcome.stderr.contains("run run: 2 ranks"), "{}", outcome.stderr);
    // Calls of gloo block, so their times show which rank waited.
    assert!(!outcome.stderr.contains("do not say when ranks waited"), "{}", outcome.stderr);
    let database = Database::open(&folder.join("all.db"));
    database.assert_sound();
    // Each rank calls it once a step, while it runs.
    let sql = "SELECT count(*), count(DISTINCT pid), \
                   sum(r.start BETWEEN p.start AND p.end AND r.\"end\" BETWEEN p.start AND p.end)
               FROM regions r JOIN (SELECT pid AS id, start, end FROM rocpd_info_process) p ON p.id = r.pid
               WHERE r.name = 'aten::mse_loss'";
    assert_eq!(database.rows(sql), [["16", "2", "16"]], "{}", outcome.stderr);
}

#[test]
fn ranks_that_torch_spawns_are_recorded_and_their_workers_are_not() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "spawn.py", SPAWN);
    let options = ["--backend", "torch,native", "--trace", "roctx"];
    let outcome = job(folder.path(), python, &path, Some(&options))
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", free_port().to_string())
        // A launcher has started this and another, with other rank numbers.
        .env("OMPI_COMM_WORLD_RANK", "1")
        .env("OMPI_COMM_WORLD_SIZE", "2")
        .run()
        .success();
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 56.0", "1 56.0"], "{outcome:?}");
    assert_eq!(
        recorded(folder.path()),
        [(Some(0), Some(2), "torch.distributed, spawned"), (Some(1), Some(2), "torch.distributed, spawned")]
            .map(|(rank, size, from)| (rank, size, Some(from.to_owned()), false))
    );
    // What our own library saw of them is of the same ranks.
    let out = folder.path().join("out.db");
    let _ = rpd_merge().arg("-o").arg(&out).arg(folder.path().join("out/run")).run().success();
    let ranks = "SELECT DISTINCT r.name, json_extract(p.extdata, '$.rpd.rank') FROM regions r
        JOIN rocpd_info_process p ON p.pid = r.pid WHERE r.name LIKE 'spawned %' ORDER BY 1";
    assert_eq!(Database::open(&out).rows(ranks), [["'spawned 0'", "0"], ["'spawned 1'", "1"]]);
}

/// Rank, size, the variable that they are from, and whether it is a worker.
type Identity = (Option<u32>, Option<u32>, Option<String>, bool);

/// The process of each trace of torch.
fn recorded(folder: &Path) -> Vec<Identity> {
    let files = fs::read_dir(folder.join("out/run")).unwrap().map(|entry| entry.unwrap().path());
    let shards = files.filter(|path| path.to_string_lossy().contains(".torch-"));
    let mut ranks: Vec<_> = shards
        .map(|path| Shard::open(&path).unwrap().processes[&1].clone())
        .map(|process| (process.rank, process.size, process.rank_from, process.worker))
        .collect();
    ranks.sort_unstable();
    ranks
}

fn log_of(folder: &Path, rank: u32) -> String {
    fs::read_to_string(folder.join(format!("out/run/rank-{rank:05}.log"))).unwrap()
}

#[test]
fn a_rank_that_nobody_knows_has_none_and_one_that_wrote_nothing_is_named() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = script(folder, "quiet.py", QUIET_END);
    let job = job(folder, python, &path, Some(&["--backend", "torch"]))
        .env("OMPI_COMM_WORLD_RANK", "1")
        .env("OMPI_COMM_WORLD_SIZE", "2");
    let _ = job.run().success();
    assert_eq!(recorded(folder), [(None, None, Some("torch.multiprocessing.spawn".to_owned()), false)]);
    let log = log_of(folder, 1);
    assert!(log.contains("is a rank, and nobody knows which"), "{log}");
    let told: Vec<_> = log.lines().filter(|line| line.contains("torch wrote no file for process")).collect();
    assert!(told.len() == 1 && told[0].contains("(number 1 of torch.multiprocessing.spawn)"), "{log}");
}

#[test]
fn a_child_that_is_spawned_is_a_rank_once_it_joins_a_process_group() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = CHILDREN.replace("METHOD", "'spawn'").replace("PORT", &free_port().to_string());
    let path = script(folder, "children.py", &text);
    let _ = job(folder, python, &path, Some(&["--backend", "torch"])).run().success();
    assert_eq!(recorded(folder), [(Some(0), Some(1), Some("torch.distributed, spawned".to_owned()), false)]);
    let (strings, _) = Shard::open(&folder.join("out/run/rank-00000.torch-1.rpdshard")).unwrap().strings();
    let has = |name: &[u8]| strings.iter().any(|(_, text)| text == name);
    assert!(has(b"aten::mul") && !has(b"aten::add"), "from the process group on");
}

#[test]
fn children_that_are_left_out_are_told_with_what_to_do() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = CHILDREN.replace("METHOD", "'fork'").replace("PORT", &free_port().to_string());
    let path = script(folder, "children.py", &text);
    let _ = job(folder, python, &path, Some(&["--backend", "torch"])).run().success();
    assert_eq!(recorded(folder), []);
    let log = log_of(folder, 0);
    assert!(log.contains("processes that were forked are ranks of a process group"), "{log}");
    assert!(log.contains("children of multiprocessing were left out; start ranks by torchrun"), "{log}");
}

#[test]
fn a_python_that_cannot_load_the_hook_is_told() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = script(folder, "nothing.py", "");
    let told = |option: &str| {
        let run = folder.join("out/run");
        let _ = fs::remove_dir_all(&run);
        let collect = Job::new(binary("rpd-collect")).args(["--run-id", "run", "-o"]).arg(folder.join("out"));
        let _ = collect
            .args(["--backend", "torch", "--scratch"])
            .arg(folder)
            .args(["--", python, option])
            .arg(&path)
            .run()
            .success();
        log_of(folder, 0)
    };
    assert!(told("-I").contains("has loaded its hook: with -E, -I or -S"));
    assert!(told("-B").contains("the program did not import torch"));
}

#[test]
fn a_program_with_a_profiler_of_its_own_keeps_it() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = script(folder, "own.py", OWN);
    let plain = job(folder, python, &path, None).run();
    if plain.code() != Some(0) {
        return skip("a profiler of its own", "this torch has no legacy profiler");
    }
    let profiled = job(folder, python, &path, Some(&["--backend", "torch"])).run().success();
    assert_eq!((plain.stdout.as_str(), profiled.stdout.as_str()), ("5\n", "5\n"));
    let log = fs::read_to_string(folder.join("out/run/rank-00000.log")).unwrap();
    assert!(log.contains("started a profiler of its own"), "{log}");
    let shard = Shard::open(&folder.join("out/run/rank-00000.torch-1.rpdshard")).unwrap();
    let (strings, _) = shard.strings();
    let has = |name: &[u8]| strings.iter().any(|(_, text)| text == name);
    assert!(has(b"aten::add") && !has(b"aten::mul"), "ours has what was before, and no more");
}

#[test]
fn a_window_of_the_program_is_recorded_in_its_own_thread() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "import time, torch\nuntil, done = time.monotonic() + 2, 0\nwhile time.monotonic() < until:\n    \
                torch.ones(3) * 2\n    done += 1\n    time.sleep(0.01)\nprint(done)\n";
    let path = script(folder, "loop.py", text);
    let options = ["--backend", "torch", "--backend-arg", "delay=0.4", "--backend-arg", "duration=0.8"];
    let outcome = job(folder, python, &path, Some(&options)).run().success();
    let done: i64 = outcome.stdout.trim().parse().unwrap();
    let out = folder.join("all.db");
    let _ = rpd_merge().arg("-o").arg(&out).arg(folder.join("out/run")).run().success();
    let seen = Database::open(&out).number("SELECT count(*) FROM regions WHERE name = 'aten::mul'");
    assert!(seen > 0 && seen < done, "{seen} of {done}");
}

#[test]
fn a_sitecustomize_that_was_there_is_run_once_and_nothing_else_is_imported() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("site")).unwrap();
    script(&folder.join("site"), "sitecustomize.py", "print('site', __name__)\nMARK = 7\n");
    let text = "import sys, sitecustomize\nprint(sitecustomize.MARK, sorted(set(sys.modules) & {'torch', 'json', 'threading'}))\n";
    let path = script(folder, "plain.py", text);
    let run =
        |options| job(folder, python, &path, options).env("PYTHONPATH", folder.join("site")).run().success();
    let (plain, profiled) = (run(None), run(Some(&["--backend", "torch"])));
    assert_eq!(plain.stdout, "site sitecustomize\n7 []\n");
    assert_eq!(plain.stdout, profiled.stdout);
}
