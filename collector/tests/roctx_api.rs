//! roctx besides ranges and marks: pausing, names, thread ids, a real library after ours. Also from Python.

use crate::support;
use support::{Bench, exit_code, run, text};

/// Declarations as in rocprofiler-sdk-roctx.
const API: &str = r#"
int roctxProfilerPause(uint64_t) WEAK;
int roctxProfilerResume(uint64_t) WEAK;
int roctxGetThreadId(uint64_t *) WEAK;
int roctxNameOsThread(const char *) WEAK;
int roctxNameHsaAgent(const char *, const void *) WEAK;
int roctxNameHipDevice(const char *, int) WEAK;
int roctxNameHipStream(const char *, const void *) WEAK;
"#;

fn names(rows: &[support::Row]) -> Vec<&str> {
    rows.iter().map(|row| text(row, "name_id")).collect()
}

#[test]
fn a_pause_leaves_out_what_begins_in_it_and_nothing_else() {
    let Some(bench) = Bench::new() else { return };
    let source = format!(
        r#"{API}
static void range(const char *name) {{ roctxRangePushA(name); roctxRangePop(); }}
static void *thread(void *unused) {{
    uint64_t id;
    roctxGetThreadId(&id);
    range("thread before");
    roctxProfilerPause(id);
    range("thread paused");
    return unused;
}}
int main(void) {{
    roctxRangePushA("around");
    uint64_t async = roctxRangeStartA("async");
    range("before");
    int a = roctxProfilerPause(0);
    range("paused");
    roctxMarkA("paused");
    roctxRangePushA("opened in the pause");
    roctxRangeStop(async);
    uint64_t lost = roctxRangeStartA("started in the pause");
    int b = roctxProfilerResume(0);
    range("after");
    roctxRangePop();
    roctxRangeStop(lost);
    roctxRangePop();
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    range("the others go on");
    return a | b;
}}
"#
    );
    let program = bench.program("pause", &source);
    assert_eq!(exit_code(&bench.run(&program, &[])), 0);
    let trace = bench.trace();
    let mut recorded = names(&trace.ranges);
    recorded.sort_unstable();
    assert_eq!(recorded, ["after", "around", "async", "before", "the others go on", "thread before"]);
    assert!(trace.ranges.iter().all(|row| row["end"].is_some()));
    assert_eq!(names(&trace.marks), ["roctxProfilerPause", "roctxProfilerResume", "roctxProfilerPause"]);
    assert_eq!(trace.lost(), 0, "what was not asked for is not lost");
}

#[test]
fn names_are_kept() {
    let Some(bench) = Bench::new() else { return };
    let source = format!(
        r#"{API}
int main(void) {{
    uint64_t id = 0;
    int sum = roctxNameOsThread("data loader of a long name 12") + roctxGetThreadId(&id);
    roctxRangePushA("x");
    roctxRangePop();
    sum += roctxNameOsThread("another") + roctxNameHsaAgent("agent", &id) + roctxNameHipDevice("device", 1);
    sum += roctxNameHipStream("stream", &id);
    printf("%d %d", sum, id == (uint64_t)gettid());
    return 0;
}}
"#
    );
    let program = bench.program("names", &source);
    let output = bench.run(&program, &[]);
    assert_eq!(output.stdout, b"0 1");
    let trace = bench.trace();
    assert_eq!(text(&trace.threads[0], "name"), "data loader of a long name 12");
    let expected =
        ["another", "roctxNameHsaAgent: agent", "roctxNameHipDevice: device", "roctxNameHipStream: stream"];
    assert_eq!(names(&trace.marks), expected);
}

#[test]
fn a_real_library_gets_every_call_and_gives_the_values() {
    let Some(bench) = Bench::new() else { return };
    let library = bench.library_of(
        "librocprofiler-sdk-roctx.so",
        r#"
int calls;
int roctxProfilerPause(uint64_t t) { calls++; return 10 + (int)t; }
int roctxProfilerResume(uint64_t t) { calls++; return 20 + (int)t; }
int roctxGetThreadId(uint64_t *t) { calls++; *t = 77; return 30; }
int roctxNameOsThread(const char *n) { calls++; return 40 + (n[0] == 'n'); }
int roctxNameHsaAgent(const char *n, const void *a) { calls++; return 50 + (a == n); }
int roctxNameHipDevice(const char *n, int d) { calls++; return 60 + d + (n[0] == 'x'); }
int roctxNameHipStream(const char *n, const void *s) { calls++; return 70 + (s == n); }
"#,
    );
    let source = format!(
        r#"{API}
extern int calls;
int main(void) {{
    uint64_t id;
    const char *n = "name";
    int a = roctxGetThreadId(&id);
    printf("%d %d %d %d %d ", a, (int)id, roctxNameOsThread(n), roctxNameHsaAgent(n, n), roctxNameHipDevice(n, 3));
    printf("%d %d ", roctxNameHipStream(n, n), roctxProfilerPause(0));
    printf("%d ", roctxProfilerResume(0));
    printf("%d", calls);
    return 0;
}}
"#
    );
    let program = bench.linked_program("real", &source, &library);
    assert_eq!(bench.run(&program, &[]).stdout, b"30 77 41 51 63 71 10 20 7");
}

#[test]
fn what_is_not_to_be_traced_is_not() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"int main(void) { int l = roctxRangePushA("x"); return l + roctxRangePop() + (roctxMarkA("y"), 0); }"#;
    let program = bench.program("untraced", source);
    let output = run(bench.collect().env("RPD_TRACE", "mpi,rccl").arg("--").arg(&program));
    assert_eq!(exit_code(&output), 0);
    assert!(!bench.shard_path().exists() || bench.trace().ranges.is_empty());
}

const PYTHON: &str = r#"
import ctypes, json, multiprocessing, os, threading
roctx = ctypes.CDLL(None)
roctx.roctxRangeStartA.restype = ctypes.c_uint64
roctx.roctxRangeStop.argtypes = [ctypes.c_uint64]
def work(n):
    for i in range(n):
        roctx.roctxRangePushA(b"step %d" % (i % 10))
        roctx.roctxMarkA(b"mark")
        roctx.roctxRangePop()
        roctx.roctxRangeStop(roctx.roctxRangeStartA(b"async"))
def child(n):
    work(n)
    return n
if __name__ == "__main__":
    total = 500
    work(500)
    threads = [threading.Thread(target=work, args=(300,)) for _ in range(4)]
    [t.start() for t in threads]; [t.join() for t in threads]
    total += 1200
    for method in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(3) as pool:
            total += sum(pool.map(child, [100] * 9))
            pool.close()
            pool.join()
    print(total)
"#;

#[test]
fn python_its_threads_and_its_worker_processes_are_recorded() {
    let Some(bench) = Bench::new() else { return };
    std::fs::write(bench.path("work.py"), PYTHON).unwrap();
    let output = run(bench.collect().args(["--", "python3", "work.py"]));
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let counted: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let trace = bench.trace();
    assert_eq!((trace.ranges.len(), trace.marks.len(), trace.lost()), (2 * counted, counted, 0));
    assert!(trace.shard.processes.len() >= 4, "the pools had workers");
    assert!(trace.shard.processes.values().skip(1).all(|process| process.worker));
}

#[test]
fn a_real_library_that_is_unloaded_and_loaded_again_is_found_again() {
    let Some(bench) = Bench::new() else { return };
    let real = "int roctxRangePushA(const char *name) { return name ? 1000 : 0; }";
    let library = bench.library_of("libroctx64.so", real);
    // A library that was unloaded is loaded at another address, because its old one is taken.
    let source = r#"
#include <dlfcn.h>
#include <sys/mman.h>
static void *use(const char *path) {
    void *real = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    Dl_info place;
    if (!real || roctxRangePushA("x") != 1000 || !dladdr(dlsym(real, "roctxRangePushA"), &place)) exit(1);
    dlclose(real);
    return place.dli_fbase;
}
int main(int argc, char **argv) {
    if (argc < 2) return 1;
    void *base = use(argv[1]);
    mmap(base, 4 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    use(argv[1]);
    return 0;
}
"#;
    let program = bench.program("loads", source);
    let output = bench.run(&program, &[library.to_str().unwrap()]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    assert_eq!(bench.trace().ranges.len(), 2);
}
