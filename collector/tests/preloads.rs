//! Together with other preloaded libraries, under common commands, and in programs that do unusual things:
//! the results are the same as without rpd-collect.

use crate::{odd_programs, support};
use odd_programs::{ODD, ODD_PROLOGUE};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Bench, Trace, exit_code, run, text};

/// Calls that do nothing without the library.
const CALLS: &str = r#"
static int push(const char *name) { return roctxRangePushA ? roctxRangePushA(name) : 0; }
static int pop(void) { return roctxRangePop ? roctxRangePop() : 0; }
static void mark(const char *name) { if (roctxMarkA) roctxMarkA(name); }
static void range(const char *name) { push(name); pop(); }
"#;

/// Exit code, stdout, and stderr without our lines.
fn seen(output: &Output) -> (i32, String, String) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let own = stderr.split_inclusive('\n').filter(|line| !line.starts_with("rpd-collect:"));
    (exit_code(output), String::from_utf8_lossy(&output.stdout).into_owned(), own.collect())
}

fn alone(bench: &Bench, words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(words[0]);
    run(bench.like_collect(&mut command).args(&words[1..]).envs(variables.iter().copied()))
}

fn traced(bench: &Bench, words: &[&str], variables: &[(&str, &str)]) -> Output {
    let _ = std::fs::remove_dir_all(bench.path("out"));
    run(bench.collect().envs(variables.iter().copied()).arg("--").args(words))
}

/// Runs alone and traced, and compares. Returns the second output.
fn same(bench: &Bench, words: &[&str], variables: &[(&str, &str)]) -> Output {
    let (alone, traced) = (alone(bench, words, variables), traced(bench, words, variables));
    assert_eq!(seen(&traced), seen(&alone), "{words:?} {variables:?}: {traced:?}");
    traced
}

/// Runs with a library preloaded: as set in the environment, and before ours and after it.
fn same_beside(bench: &Bench, library: &Path, program: &Path, check: impl Fn(&Trace, &str)) {
    let (library, program) = (library.to_str().unwrap(), program.to_str().unwrap());
    let expected = alone(bench, &[program], &[("LD_PRELOAD", library)]);
    let before_ours = format!("LD_PRELOAD={library}:$LD_PRELOAD exec \"$@\"");
    let after_ours = format!("LD_PRELOAD=$LD_PRELOAD:{library} exec \"$@\"");
    for (what, words, variables) in [
        ("kept", &[program][..], &[("LD_PRELOAD", library)][..]),
        ("before ours", &["sh", "-c", &before_ours, "sh", program], &[]),
        ("after ours", &["sh", "-c", &after_ours, "sh", program], &[]),
    ] {
        let output = traced(bench, words, variables);
        assert_eq!(seen(&output), seen(&expected), "{library} {what}: {output:?}");
        check(&bench.trace(), what);
    }
}

fn installed(name: &str) -> Option<PathBuf> {
    let cache = Command::new("/sbin/ldconfig").arg("-p").output().ok()?.stdout;
    let cache = String::from_utf8_lossy(&cache).into_owned();
    let line = cache.lines().find(|line| line.trim_start().starts_with(name));
    let path = line.and_then(|line| line.split(" => ").nth(1)).map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: no {name}");
    }
    path
}

/// A program that this machine's compiler may not be able to build.
fn compile(bench: &Bench, compiler: &str, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    let (path, file) =
        (bench.path(name), bench.path(name).with_extension(if compiler == "g++" { "cc" } else { "c" }));
    std::fs::write(&file, source).unwrap();
    let built = Command::new(compiler)
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&path)
        .arg(&file)
        .args(options)
        .output();
    if !built.as_ref().is_ok_and(|built| built.status.success()) {
        eprintln!("skipped: {compiler} {options:?}: {built:?}");
        return None;
    }
    Some(path)
}

const ALLOCATES: &str = r#"
#include <dlfcn.h>
static void *work(void *seed) {
    uint64_t sum = (uint64_t)seed;
    void *kept[64] = {0};
    for (int i = 0; i < 3000; i++) {
        sum = sum * 6364136223846793005u + 1442695040888963407u;
        free(kept[sum % 64]);
        push("allocate");
        kept[sum % 64] = memset(malloc(sum >> 50), 1, sum >> 50);
        pop();
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    return (void *)sum;
}
int main(void) {
    pthread_t threads[8];
    uint64_t sum = 0;
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 8; i++) { void *one; pthread_join(threads[i], &one); sum ^= (uint64_t)one; }
    int status = 0;
    if (fork() == 0) _exit((uint64_t)work((void *)9) & 63);
    wait(&status);
    printf("%lx %d %d %d\n", sum, status, dlsym(RTLD_DEFAULT, "mallctl") != 0,
           dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty") != 0);
    return 3;
}
"#;

#[test]
fn allocators() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("allocates", &format!("{CALLS}{ALLOCATES}"));
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let Some(library) = installed(name) else { continue };
        same_beside(&bench, &library, &program, |trace, what| {
            assert_eq!(trace.ranges_named("allocate") as u64 + trace.lost(), 9 * 3000, "{name} {what}");
        });
    }
}

#[test]
fn a_clock_that_is_shifted() {
    let Some(bench) = Bench::new() else { return };
    let library = Path::new("/usr/lib").read_dir().unwrap().filter_map(|entry| {
        let path = entry.unwrap().path().join("faketime/libfaketime.so.1");
        path.exists().then_some(path)
    });
    let Some(library) = library.last() else {
        eprintln!("skipped: no libfaketime");
        return;
    };
    let source = r#"
int main(void) { for (int i = 0; i < 100; i++) range("x"); puts("same"); return 4; }
"#;
    let program = bench.program("shifted", &format!("{CALLS}{source}"));
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("FAKETIME", "+1000s")];
    same(&bench, &[program.to_str().unwrap()], &variables);
    assert_eq!(bench.trace().ranges.len(), 100);
}

/// Wraps calls as Darshan does: MPI calls go on to their PMPI forms, calls of the system to the next library.
/// Prints its counts to stderr at the end.
const DARSHAN: &str = include_str!("programs/like_darshan.c");

const MPI_PROGRAM: &str = r#"
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int sum = 0;
    char text[8];
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 50; i++) {
        int got = 0;
        MPI_Request request;
        MPI_Irecv(&got, 1, MPI_INT, 0, i, MPI_COMM_SELF, &request);
        MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sum += got;
    }
    int file = open("file.test", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 10; i++) sum += write(file, text, i % 8);
    lseek(file, 0, SEEK_SET);
    while (read(file, text, 4) > 0) sum++;
    for (int i = 0; i < 5; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) _exit(i);
        waitpid(child, &status, 0);
        sum += status;
    }
    MPI_Finalize();
    printf("%d\n", sum);
    return 5;
}
"#;

#[test]
fn a_library_that_wraps_what_darshan_wraps() {
    let Some(bench) = Bench::new() else { return };
    let Some(program) = compile(&bench, "mpicc", "program", MPI_PROGRAM, &[]) else { return };
    let Some(library) = compile(&bench, "cc", "libdarshan.so", DARSHAN, &["-shared", "-fPIC"]) else {
        return;
    };
    let expected = alone(&bench, &[program.to_str().unwrap()], &[("LD_PRELOAD", library.to_str().unwrap())]);
    let stderr = String::from_utf8_lossy(&expected.stderr);
    assert!(stderr.contains("darshan: 1 50 1, 1 "), "{expected:?}");
    same_beside(&bench, &library, &program, |trace, what| {
        let calls = |name: &str| trace.calls.iter().filter(|row| text(row, "name_id") == name).count();
        let counts = ["MPI_Init", "MPI_Send", "MPI_Irecv", "MPI_Wait", "MPI_Finalize"].map(calls);
        // Before ours it passes its calls on to the PMPI forms: our library sees all other calls.
        let expected = if what == "before ours" { [0, 0, 50, 50, 0] } else { [1, 50, 50, 50, 1] };
        assert_eq!(counts, expected, "{what}");
    });
}

#[test]
fn sanitizers() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((weak)) int roctxRangePushA(const char *);
__attribute__((weak)) int roctxRangePop(void);
static void *work(void *unused) {
    for (int i = 0; i < 1000; i++) if (roctxRangePushA) { roctxRangePushA("work"); roctxRangePop(); }
    return unused;
}
int main(int argc, char **argv) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    int status = 0;
    if (fork() == 0) { work(0); _exit(9); }
    wait(&status);
    volatile char *heap = malloc(10);
    printf("%d\n", status);
    fflush(stdout);
    if (argc > 1) heap[10] = 1;
    free((void *)heap);
    return 6;
}
"#;
    for kind in ["address", "thread", "undefined"] {
        let option = format!("-fsanitize={kind}");
        let Some(program) = compile(&bench, "cc", kind, source, &[&option]) else { continue };
        let program = program.to_str().unwrap();
        let output = same(&bench, &[program], &[]);
        assert_eq!(exit_code(&output), 6, "{kind}: {output:?}");
        let trace = bench.trace();
        assert_eq!(trace.ranges_named("work") as u64 + trace.lost(), 5000, "{kind}");
        // The user's own options of it stay.
        same(&bench, &[program], &[("ASAN_OPTIONS", "exitcode=23"), ("TSAN_OPTIONS", "exitcode=24")]);
        if kind == "address" {
            let found = traced(&bench, &[program, "overflow"], &[("ASAN_OPTIONS", "exitcode=23")]);
            assert_eq!(exit_code(&found), 23, "{found:?}");
            assert!(String::from_utf8_lossy(&found.stderr).contains("heap-buffer-overflow"), "{found:?}");
        }
        // As users preload its runtime by hand.
        let short = if kind == "undefined" { "ubsan" } else { &format!("{}san", &kind[..1]) };
        let asked = Command::new("cc").arg(format!("-print-file-name=lib{short}.so")).output().unwrap();
        let runtime = String::from_utf8(asked.stdout).unwrap().trim().to_owned();
        if Path::new(&runtime).is_absolute() {
            same(&bench, &[program], &[("LD_PRELOAD", &runtime)]);
        }
    }
}

#[test]
fn programs_that_nothing_can_be_preloaded_into() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>
int main(int argc, char **argv) {
    printf("%d %d %d\n", argc, geteuid() != getuid(), (int)getauxval(AT_SECURE));
    return 7;
}
"#;
    if let Some(program) = compile(&bench, "cc", "static", source, &["-static"]) {
        same(&bench, &[program.to_str().unwrap(), "x"], &[]);
        assert!(bench.trace().shard.processes.is_empty());
    }
    let Some(program) = compile(&bench, "cc", "setuid", source, &[]) else { return };
    let given = Command::new("sh")
        .args(["-c", "chmod 755 . && chown 65534 setuid && chmod 4755 setuid"])
        .current_dir(bench.path(""))
        .status();
    let output = same(&bench, &[program.to_str().unwrap(), "x"], &[]);
    assert!(bench.trace().shard.processes.is_empty());
    if !given.unwrap().success() || output.stdout != b"2 1 1\n" {
        eprintln!("skipped: no setuid program can be made here: {output:?}");
    }
}

#[test]
fn commands_of_every_day() {
    let Some(bench) = Bench::new() else { return };
    std::fs::create_dir(bench.path("files")).unwrap();
    for name in ["a", "b", "c d"] {
        std::fs::write(bench.path("files").join(name), name).unwrap();
    }
    std::fs::write(
        bench.path("Makefile"),
        "all: one two three\none two three:\n\t@sleep 0.0$(words $@); test $@ != three || echo $@; \n.PHONY: all one two three\n",
    )
    .unwrap();
    for words in [
        &["true"][..],
        &["false"],
        &["bash", "-c", "echo $((6*7)); exit 3"],
        &["bash", "-c", "set -m; sleep 0.01 & wait %1; echo $?; (exit 5); echo $?; kill -TERM $$"],
        &["bash", "-c", "trap 'echo usr1' USR1; kill -USR1 $$; trap 'echo end' EXIT"],
        &["sh", "-c", "printf 'b\\na\\n' | sort | tr a-z A-Z | head -1; echo out >&2"],
        &["sh", "-c", "yes | head -1000 | wc -l; ls /nonexistent 2>/dev/null || echo $?"],
        &["sh", "-c", "sh -c 'kill -9 $$'; echo $?"],
        &["env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", "env | grep -c -e RPD -e LD_"],
        &["python3", "-c", "pass"],
        &[
            "python3",
            "-c",
            "import subprocess as s; print(s.run(['sh','-c','exit 9']).returncode, s.check_output('echo x', shell=True))",
        ],
        &[
            "python3",
            "-c",
            "import multiprocessing as m\nif __name__ == '__main__':\n  p = m.get_context('fork').Pool(2); print(p.map(abs, [-1, 2, -3])); p.close(); p.join()",
        ],
        &["perl", "-e", "print `echo x`; system('exit 4'); print $? >> 8; exit 8"],
        &["find", "files", "-type", "f", "-exec", "wc", "-c", "{}", ";"],
        &["sh", "-c", "find files -type f -print0 | sort -z | xargs -0 -P4 -n1 cat | wc -c"],
        &["make", "-s", "-j2"],
        &["nice", "-n", "1", "timeout", "10", "stdbuf", "-oL", "nohup", "echo", "wrapped"],
        &["setsid", "-w", "sh", "-c", "exit 12"],
    ] {
        if Command::new(words[0]).arg("--version").output().is_err() {
            eprintln!("skipped: no {}", words[0]);
            continue;
        }
        same(&bench, words, &[]);
        assert!(bench.trace().shard.processes.is_empty(), "{words:?}");
    }
}

#[test]
fn the_time_that_commands_take() {
    let Some(bench) = Bench::new() else { return };
    let words = ["sh", "-c", "for i in $(seq 200); do /bin/true; done"];
    let time = |run: &dyn Fn() -> Output| {
        let best = (0..5).map(|_| {
            let began = Instant::now();
            assert_eq!(exit_code(&run()), 0);
            began.elapsed()
        });
        best.min().unwrap()
    };
    let without = time(&|| alone(&bench, &words, &[]));
    let nothing = time(&|| traced(&bench, &["true"], &[]));
    let with = time(&|| traced(&bench, &words, &[])).saturating_sub(nothing);
    let factor = with.as_secs_f64() / without.as_secs_f64();
    eprintln!("200 x /bin/true: {without:?} alone, {with:?} preloaded ({factor:.2}), and {nothing:?} once");
    assert!(factor < 3.0 || with < Duration::from_millis(500), "{factor}");
}

#[test]
fn programs_that_do_what_is_seldom_done() {
    let Some(bench) = Bench::new() else { return };
    for (what, source, ranges) in ODD {
        let program = bench.program("odd", &format!("{ODD_PROLOGUE}{CALLS}{source}"));
        same(&bench, &[program.to_str().unwrap()], &[]);
        let trace = bench.trace();
        assert!(trace.shard.complete(), "{what}");
        if let Some(ranges) = ranges {
            assert_eq!(trace.ranges.len() as u64 + trace.lost(), *ranges, "{what}");
        }
    }
}

#[test]
fn exceptions_pass_through_ranges() {
    let Some(bench) = Bench::new() else { return };
    let source = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
extern "C" __attribute__((weak)) int roctxRangePushA(const char *);
extern "C" __attribute__((weak)) int roctxRangePop();
struct Range {
    Range() { if (roctxRangePushA) roctxRangePushA("x"); }
    ~Range() { if (roctxRangePop) roctxRangePop(); }
};
static void deep(int n) {
    Range range;
    if (n == 0) throw std::runtime_error("deep");
    deep(n - 1);
}
int main() {
    int caught = 0;
    for (int i = 0; i < 100; i++) try { deep(4); } catch (const std::exception &e) { caught += std::string(e.what()) == "deep"; }
    std::printf("%d\n", caught);
    return 9;
}
"#;
    let Some(program) = compile(&bench, "g++", "throws", source, &[]) else { return };
    same(&bench, &[program.to_str().unwrap()], &[]);
    let trace = bench.trace();
    assert_eq!((trace.ranges.len(), trace.lost()), (500, 0));
    assert!(trace.ranges.iter().all(|row| row["end"].is_some()));
}

#[test]
fn libraries_come_and_go() {
    let Some(bench) = Bench::new() else { return };
    let plugin = bench.library_of(
        "plugin.so",
        &format!("{CALLS}int run(int n) {{ range(\"x\"); mark(\"m\"); return n + 1; }}"),
    );
    let source = r#"
#include <dlfcn.h>
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < 200; i++) {
        void *plugin = dlopen(argv[1], i % 2 ? RTLD_NOW | RTLD_LOCAL : RTLD_LAZY | RTLD_GLOBAL);
        if (!plugin) { puts(dlerror()); return 1; }
        sum += ((int (*)(int))dlsym(plugin, "run"))(i);
        dlclose(plugin);
    }
    printf("%d %d\n", sum, dlerror() == 0);
    return 4;
}
"#;
    let program = bench.program("loads", source);
    same(&bench, &[program.to_str().unwrap(), plugin.to_str().unwrap()], &[]);
    let trace = bench.trace();
    assert_eq!((trace.ranges.len(), trace.marks.len(), trace.lost()), (200, 200, 0));
}
