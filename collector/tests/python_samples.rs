//! Samples of Python stacks, against what real interpreters measured of themselves.

use crate::support;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Bench, Row, Trace, exit_code, number, run, text};

/// Python that records a range in each thread that calls `begin`.
const ROCTX: &str = "
import ctypes
roctx = ctypes.CDLL(None)
def begin(name=b'work'):
    roctx.roctxRangePushA(name)
";

/// A frame of a sample: name, base name of the file, line.
type PythonFrame = (String, String, i64);

/// A sample: source and thread id, time, frames from the innermost one.
struct StackSample {
    thread: (i64, i64),
    time: i64,
    frames: Vec<PythonFrame>,
}

/// Interpreters of this machine that can be sampled, with their versions: every second one, or with RPD_SOAK=1 all.
fn interpreters() -> Vec<(String, PathBuf)> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let installed = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let installed = installed.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
    let named = (9..=13).map(|minor| PathBuf::from(format!("python3.{minor}")));
    let named = named.chain([PathBuf::from("python3"), PathBuf::from("/usr/bin/python3")]);
    let mut found = BTreeMap::new();
    for python in named.chain(installed) {
        let script = "import sys; print('%d.%02d' % sys.version_info[:2], sys.executable)";
        let Ok(output) = Command::new(&python).args(["-c", script]).stderr(Stdio::null()).output() else {
            continue;
        };
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        let Some((version, path)) = answer.trim().split_once(' ') else { continue };
        if ("3.09"..="3.13").contains(&version) {
            found.entry(version.to_owned()).or_insert_with(|| PathBuf::from(path));
        }
    }
    let step = if std::env::var_os("RPD_SOAK").is_some() { 1 } else { 2 };
    found.into_iter().step_by(step).map(|(version, path)| (version.replace(".0", "."), path)).collect()
}

fn samples(trace: &Trace) -> Vec<StackSample> {
    let by_key = |rows: &[Row]| -> BTreeMap<(i64, i64), Row> {
        rows.iter().map(|row| ((number(row, "source"), number(row, "key")), row.clone())).collect()
    };
    let (tracks, events, threads) = (by_key(&trace.tracks), by_key(&trace.events), by_key(&trace.threads));
    let mut found = Vec::new();
    for sample in &trace.samples {
        let source = number(sample, "source");
        let event = &events[&(source, number(sample, "event_id"))];
        let track = &tracks[&(source, number(sample, "track_id"))];
        if text(event, "category_id") != "PYTHON_SAMPLE" {
            assert_ne!(text(track, "name_id"), "Python stack");
            continue;
        }
        assert_eq!(text(track, "name_id"), "Python stack");
        let thread = &threads[&(source, number(track, "tid"))];
        let json: Json = serde_json::from_str(text(event, "call_stack")).unwrap();
        let frame = |frame: &Json| {
            let file = frame["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (frame["name"].as_str().unwrap().to_owned(), file, frame["line"].as_i64().unwrap())
        };
        let frames: Vec<PythonFrame> = json["frames"].as_array().unwrap().iter().map(frame).collect();
        assert!(!frames.is_empty());
        let thread = (source, number(thread, "tid"));
        found.push(StackSample { thread, time: number(sample, "timestamp"), frames });
    }
    found
}

/// Returns the share of the samples with a function.
fn share(samples: &[StackSample], function: &str) -> f64 {
    let has = |sample: &&StackSample| sample.frames.iter().any(|(name, ..)| name == function);
    samples.iter().filter(has).count() as f64 / samples.len() as f64
}

/// Two functions, one of which computes twice as long, and a third that sleeps. Prints how long each took.
const SHARES: &str = "
import sys, time
def compute(seconds):
    end, total = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        total += sum(i * i for i in range(50))
    return total
def first():
    compute(0.040)
def second():
    compute(0.020)
def rest():
    time.sleep(0.020)
took = {first: 0.0, second: 0.0, rest: 0.0}
start = time.perf_counter()
while time.perf_counter() - start < 4.0:
    for function in took:
        begin()
        before = time.perf_counter()
        function()
        took[function] += time.perf_counter() - before
        roctx.roctxRangePop()
whole = time.perf_counter() - start
print(*(seconds / whole for seconds in took.values()))
";

#[test]
fn the_share_of_each_function_is_that_which_the_program_measured() {
    let Some(bench) = Bench::new() else { return };
    let found = interpreters();
    if found.is_empty() {
        return eprintln!("skipped: no Python from 3.9 to 3.13");
    }
    for (version, python) in found {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        std::fs::write(bench.path("shares.py"), format!("{ROCTX}{SHARES}")).unwrap();
        let output = run(bench.collect().args(["--trace", "python", "--"]).arg(&python).arg("shares.py"));
        assert_eq!(exit_code(&output), 0, "{version}: {output:?}");
        let measured = String::from_utf8(output.stdout).unwrap();
        let measured: Vec<f64> = measured.split_whitespace().map(|share| share.parse().unwrap()).collect();
        let trace = bench.trace();
        let samples = samples(&trace);
        // On a machine where each takes longer, there are fewer than 99 a second.
        assert!(samples.len() > 100, "{version}: {} samples in 4 s", samples.len());
        let tolerance = 0.03 + 0.98 / (samples.len() as f64).sqrt();
        assert!(samples.windows(2).all(|pair| pair[0].time < pair[1].time), "{version}");
        for (function, measured) in ["first", "second", "rest"].iter().zip(measured) {
            let sampled = share(&samples, function);
            eprintln!("Python {version}: {function} {sampled:.3}, measured {measured:.3}");
            assert!(
                (sampled - measured).abs() < tolerance,
                "{version}: {function} {sampled} and not {measured}"
            );
        }
        for StackSample { frames, .. } in &samples {
            let (name, file, _) = frames.last().unwrap();
            assert_eq!((name.as_str(), file.as_str()), ("<module>", "shares.py"), "{version}: {frames:?}");
        }
        let callers: Vec<i64> = samples
            .iter()
            .filter(|sample| share(std::slice::from_ref(sample), "first") > 0.0)
            .map(|sample| sample.frames.last().unwrap().2)
            .collect();
        let source = std::fs::read_to_string(bench.path("shares.py")).unwrap();
        let line = 1 + source.lines().position(|line| line.trim() == "function()").unwrap() as i64;
        // A function may return while its callers are read.
        let right = callers.iter().filter(|found| **found == line).count();
        assert!(right * 50 >= callers.len() * 49, "{version}: {right} of {} in line {line}", callers.len());
        assert_eq!(trace.lost(), 0, "{version}");
        assert_eq!(bench.log(), "", "{version}");
    }
}

/// Collects garbage, by itself and on request, and measures how long. Another thread waits meanwhile.
const GARBAGE: &str = "
import gc, threading, time
done = threading.Event()
def waits():
    begin()
    while not done.is_set():
        done.wait(0.02)
threading.Thread(target=waits).start()
collecting, began = 0.0, 0.0
def measure(phase, info):
    global collecting, began
    now = time.perf_counter()
    if phase == 'start':
        began = now
    else:
        collecting += now - began
gc.callbacks.append(measure)
kept = [[number] for number in range(300000)]
def computes():
    end, total = time.perf_counter() + 0.05, 0
    while time.perf_counter() < end:
        total += 1
def makes_garbage():
    cycles = []
    for _ in range(100000):
        cycle = []
        cycle.append(cycle)
        cycles.append(cycle)
begin()
collecting, start = 0.0, time.perf_counter()
while time.perf_counter() - start < 4.0:
    computes()
    makes_garbage()
    gc.collect()
print(collecting / (time.perf_counter() - start))
done.set()
";

#[test]
fn garbage_collection_is_seen_as_long_as_the_program_measured() {
    let Some(bench) = Bench::new() else { return };
    for (version, python) in interpreters() {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        std::fs::write(bench.path("garbage.py"), format!("{ROCTX}{GARBAGE}")).unwrap();
        let output = run(bench.collect().args(["--trace", "python", "--"]).arg(&python).arg("garbage.py"));
        assert_eq!(exit_code(&output), 0, "{version}: {output:?}");
        let measured: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let (waiting, samples): (Vec<StackSample>, Vec<StackSample>) = samples(&bench.trace())
            .into_iter()
            .partition(|sample| sample.frames.iter().any(|(name, ..)| name == "waits"));
        let sampled = share(&samples, "<garbage collection>");
        eprintln!("Python {version}: garbage collection {sampled:.3}, measured {measured:.3}");
        assert!(
            measured > 0.15 && (sampled - measured).abs() < 0.08,
            "{version}: {sampled} and not {measured}"
        );
        assert!(
            share(&waiting, "<garbage collection>") < 0.02,
            "{version}: the other thread collects nothing"
        );
    }
}

/// A thread collects garbage whose finalizer waits, so that another thread runs during the collection. A third one runs a
/// generator that C calls.
const FINALIZERS: &str = "
import gc, threading, _thread, time
end = time.perf_counter() + 2.5
class Slow:
    def __del__(self):
        time.sleep(0.02)
def collects():
    begin()
    while time.perf_counter() < end:
        garbage = Slow()
        garbage.itself = garbage
        del garbage
        gc.collect()
def computes():
    begin()
    total = 0
    while time.perf_counter() < end:
        for number in range(100):
            total += number * number
def generates():
    begin()
    while time.perf_counter() < end:
        time.sleep(0.01)
    yield
gc.disable()
others = [threading.Thread(target=collects), threading.Thread(target=computes)]
for other in others:
    other.start()
_thread.start_new_thread(generates().__next__, ())
for other in others:
    other.join()
";

#[test]
fn a_thread_that_runs_during_the_collection_of_another_collects_nothing() {
    let Some(bench) = Bench::new() else { return };
    for (version, python) in interpreters() {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        std::fs::write(bench.path("finalizers.py"), format!("{ROCTX}{FINALIZERS}")).unwrap();
        let output = run(bench.collect().args(["--trace", "python", "--"]).arg(&python).arg("finalizers.py"));
        assert_eq!(exit_code(&output), 0, "{version}: {output:?}");
        let mut samples = samples(&bench.trace());
        let mut of = |function: &str| -> Vec<StackSample> {
            let has = |sample: &StackSample| sample.frames.iter().any(|(name, ..)| name == function);
            let (found, rest) = std::mem::take(&mut samples).into_iter().partition(has);
            samples = rest;
            found
        };
        let (computing, generating) = (of("computes"), of("generates"));
        assert!(computing.len() > 80, "{version}: {} samples", computing.len());
        let collecting = share(&computing, "<garbage collection>");
        assert!(collecting < 0.1, "{version}: {collecting} of the thread that computes");
        assert!(generating.len() > 80, "{version}: {} samples of a generator", generating.len());
    }
}

/// Threads that wait or compute in functions of their own, a deep recursion, generators, names that are not ASCII, and a
/// process that executes another program and one that forks.
const ODD: &str = "
import os, sys, threading, time
def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
def waits_0(seconds):
    time.sleep(seconds)
def computes_1(seconds):
    compute(seconds)
def größe_2_日本_𠀀(seconds):
    time.sleep(seconds)
def deep_3(seconds, depth=900):
    if depth:
        deep_3(seconds, depth - 1)
    else:
        time.sleep(seconds)
def steps(seconds):
    for _ in range(100):
        yield time.sleep(seconds / 100)
def generates_4(seconds):
    list(steps(seconds))
def thread(function):
    begin()
    function(2.0)
    roctx.roctxRangePop()
if sys.argv[1] == 'again':
    begin()
    waits_0(1.0)
    sys.exit(7)
functions = [waits_0, computes_1, größe_2_日本_𠀀, deep_3, generates_4]
threads = [threading.Thread(target=thread, args=(function,)) for function in functions]
for started in threads:
    started.start()
for started in threads:
    started.join()
child = os.fork()
if not child:
    begin(b'child')
    computes_1(1.0)
    os._exit(0)
os.waitpid(child, 0)
os.execv(sys.executable, [sys.executable, sys.argv[0], 'again'])
";

#[test]
fn each_thread_and_each_program_of_a_process_has_its_own_stacks() {
    let Some(bench) = Bench::new() else { return };
    for (version, python) in interpreters() {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        std::fs::write(bench.path("odd.py"), format!("{ROCTX}{ODD}")).unwrap();
        let run_it =
            |collect: &mut Command| run(collect.arg(&python).args(["-W", "ignore", "odd.py", "first"]));
        let output = run_it(bench.collect().args(["--trace", "python", "--"]));
        assert_eq!((exit_code(&output), output.stdout, output.stderr), (7, vec![], vec![]), "{version}");
        let trace = bench.trace();
        let mut by_thread: BTreeMap<(i64, i64), Vec<StackSample>> = BTreeMap::new();
        samples(&trace)
            .into_iter()
            .for_each(|sample| by_thread.entry(sample.thread).or_default().push(sample));
        let names = ["waits_0", "computes_1", "größe_2_日本_𠀀", "deep_3", "generates_4"];
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for samples in by_thread.values() {
            let of_thread: Vec<&str> = names.into_iter().filter(|name| share(samples, name) > 0.0).collect();
            let last = &samples.last().unwrap().frames;
            assert_eq!(of_thread.len(), 1, "{version}: {of_thread:?} in {} samples, {last:?}", samples.len());
            assert!(share(samples, of_thread[0]) > 0.9, "{version}: {of_thread:?}");
            *found.entry(of_thread[0]).or_default() += 1;
        }
        // The child computes as a thread does, and the other program waits as a thread does.
        let expected =
            BTreeMap::from([(names[0], 2), (names[1], 2), (names[2], 1), (names[3], 1), (names[4], 1)]);
        assert_eq!(found, expected, "{version}");
        let deep = by_thread.values().flatten().find(|sample| sample.frames[0].0 == "deep_3").unwrap();
        assert_eq!(deep.frames.len(), 256, "{version}: the innermost frames of a deep stack");
        assert_eq!(trace.lost(), 0, "{version}");
    }
}

#[test]
fn the_output_is_the_same_and_a_program_that_is_not_python_has_no_stacks() {
    let Some(bench) = Bench::new() else { return };
    let program =
        bench.program("c", "int main() { roctxMarkA(\"m\"); usleep(400000); puts(\"out\"); return 3; }");
    let output = run(bench.collect().args(["--trace", "all,python", "--"]).arg(&program));
    assert_eq!(
        (exit_code(&output), output.stdout.as_slice(), output.stderr.as_slice()),
        (3, &b"out\n"[..], &b""[..])
    );
    assert!(bench.trace().tracks.iter().all(|track| text(track, "name_id") != "Python stack"));
    let log = bench.log();
    assert!(log.contains("note: no Python stacks are recorded") && log.lines().count() == 1, "{log}");
}

#[test]
fn an_interpreter_that_cannot_be_read_is_named() {
    let Some(bench) = Bench::new() else { return };
    for (number, reason) in [
        ("0x030e00f0UL", "CPython 3.14 is not supported"),
        ("0x030d00b1UL", "not known"),
        ("0x030d00f0UL", "table of offsets"),
    ] {
        let _ = std::fs::remove_dir_all(bench.path("out"));
        let source = format!(
            "const unsigned long Py_Version = {number}; long _PyRuntime[100]; long PyCode_Type[50];
             int main() {{ roctxMarkA(\"m\"); usleep(900000); return 0; }}"
        );
        let program = bench.program_with("python3", &source, &["-rdynamic"]);
        let output = run(bench.collect().args(["--trace", "python", "--"]).arg(&program));
        assert_eq!(exit_code(&output), 0);
        let log = bench.log();
        assert!(log.contains("warning: no Python stacks of process ") && log.contains(reason), "{log}");
    }
}

/// Root itself lacks the right to read any process here, which would hide the reason; of other users it is certain.
#[test]
fn a_process_that_is_not_dumpable_is_refused_by_name() {
    let other = ["--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=-all"];
    let root = ["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    let users: [(&[&str], &str); 2] = [
        (&root, "perhaps it is not dumpable"),
        (&other, "it is not dumpable: it called prctl(PR_SET_DUMPABLE)"),
    ];
    for (rights, reason) in users {
        if *rights == root && support::yama_restricts() {
            eprintln!("skipped: Yama is the reason for root here");
            continue;
        }
        let Some(bench) = Bench::new() else { return };
        let Some((_, python)) = interpreters().into_iter().next() else { return };
        let script = format!(
            "{ROCTX}import time\nbegin()\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nbegin()\ntime.sleep(0.9)\n"
        );
        std::fs::write(bench.path("private.py"), script).unwrap();
        std::fs::set_permissions(bench.path("."), std::fs::Permissions::from_mode(0o777)).unwrap();
        let collect = bench.collect();
        let may_run = |program: &Path| {
            let status = Command::new("setpriv").args(rights).arg(program).arg("--version").output();
            status.is_ok_and(|output| output.status.success())
        };
        if !may_run(Path::new(collect.get_program())) || !may_run(&python) {
            eprintln!(
                "skipped: setpriv is not there, or may not set {rights:?}, or they may not run the build or Python"
            );
            continue;
        }
        let mut command = Command::new("setpriv");
        bench.like_collect(&mut command);
        command.args(rights).arg(collect.get_program());
        command.args(collect.get_args()).args(["--trace", "python", "--"]).arg(python).arg("private.py");
        let output = run(&mut command);
        assert_eq!(exit_code(&output), 0, "{output:?}");
        let log = bench.log();
        assert!(log.contains(reason), "{log}");
    }
}
