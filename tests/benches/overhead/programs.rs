//! The programs that are measured, in C. Each measures itself, in bursts that a ring can hold, so that
//! start-up and the writing of the shard are not in it.
//!
//! A burst counts if its thread did not wait for a CPU and had a whole core: a loop before and after it takes as long as it
//! does at best. At the end, each program prints how long it waited for a CPU, percent; the lowest share of bursts that count
//! among its parts, percent; and the longest best time of that loop among its parts, ns.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROLOGUE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define WEAK __attribute__((weak))
int roctxRangePushA(const char *) WEAK;
int roctxRangePop(void) WEAK;
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
static int by_value(const void *a, const void *b) { double d = *(double *)a - *(double *)b; return (d > 0) - (d < 0); }
/* Nanoseconds for which this thread could have run and had no CPU; 0 if the kernel does not count them. */
static double delay(void) {
    double run = 0, delay = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file) {
        if (fscanf(file, "%lf %lf", &run, &delay) != 2) delay = 0;
        fclose(file);
    }
    return delay;
}
/* Nanoseconds of a step of a loop that keeps all adders of a core busy. It takes about twice as long while another
   hardware thread uses the same core, perhaps in another virtual machine. */
static double control(void) {
    unsigned long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
    long began = now();
    for (int i = 0; i < 10000; i++) {
        a += 1; b += 1; c += 1; d += 1; e += 1; f += 1;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return (now() - began) / 1e4;
}
#define MAX_BURSTS 2000
#define WHOLE_BURSTS 200
static double delayed, measured, slowest_control, least_whole = 100;
/* Percent of the time of all bursts. */
static double waited(void) { return 100 * delayed / measured; }
/* Median of the bursts that had a whole core, ns per round. There are more bursts until there are enough of these. */
#define MEASURE(result, rounds, body) do { \
    static double each[MAX_BURSTS], slower[MAX_BURSTS], whole[MAX_BURSTS]; \
    int bursts = 0, wholes = 0; \
    double fastest = 1e9; \
    while (bursts < MAX_BURSTS && wholes < WHOLE_BURSTS) { \
        double before = delay(); \
        long since = now(); \
        double first = control(); \
        long began = now(); \
        for (int i = 0; i < (rounds); i++) { body; } \
        long took = now() - began; \
        double last = control(); \
        double waits = delay() - before; \
        each[bursts] = (double)took / (rounds); \
        slower[bursts] = waits > 0 ? 1e9 : first > last ? first : last; \
        if (first < fastest) fastest = first; \
        if (last < fastest) fastest = last; \
        delayed += waits; \
        measured += now() - since; \
        bursts++; \
        wholes = 0; \
        for (int i = 0; i < bursts; i++) \
            if (slower[i] < 1.15 * fastest) whole[wholes++] = each[i]; \
        usleep(4000); \
    } \
    qsort(whole, wholes, sizeof(double), by_value); \
    result = wholes ? whole[wholes / 2] : 0; \
    if (100.0 * wholes / bursts < least_whole) least_whole = 100.0 * wholes / bursts; \
    if (fastest > slowest_control) slowest_control = fastest; \
} while (0)
/* Leaves the other CPUs to the collector. Kernels of some virtual machines keep as few CPUs busy as they can: a thread that is
   woken waits for the CPU of the thread that woke it, although others are idle. */
static void use_first_cpu(void) {
    cpu_set_t all, first;
    CPU_ZERO(&first);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&first); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &first);
    sched_setaffinity(0, sizeof first, &first);
}
/* What each program prints last. */
static void print_run(void) { printf("%f %f %f", waited(), least_whole, slowest_control); }
"#;

/// Prints ns of a push and pop pair, of two reads of the clock, of two reads of the processor's counter (0 where none is
/// read), and how it ran. Without a library there is no roctx: then the pair is a function call and a return.
pub(crate) const PAIRS: &str = r#"
#ifdef __x86_64__
#include <x86intrin.h>
#define COUNT() __asm__ volatile("" : : "r"(__rdtsc()))
#else
#define COUNT() ((void)0)
#endif
static __attribute__((noinline)) int no_push(const char *m) { __asm__ volatile("" : : "r"(m)); return 0; }
static __attribute__((noinline)) int no_pop(void) { __asm__ volatile(""); return 0; }
int main(void) {
    int (*volatile push)(const char *) = roctxRangePushA ? roctxRangePushA : no_push;
    int (*volatile pop)(void) = roctxRangePop ? roctxRangePop : no_pop;
    struct timespec t;
    double pair, clocks, counts;
    use_first_cpu();
    push("warm"); pop();
    MEASURE(pair, 2000, push("forward"); pop());
    MEASURE(clocks, 2000, clock_gettime(CLOCK_BOOTTIME, &t); clock_gettime(CLOCK_BOOTTIME, &t));
    MEASURE(counts, 2000, COUNT(); COUNT());
    printf("%f %f %f ", pair, clocks, counts);
    print_run();
    return 0;
}
"#;

/// Prints ns of a send to no rank, which costs MPI next to nothing, of a poll, and how it ran.
pub(crate) const MPI_CALLS: &str = r#"
#include <mpi.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    char data[8] = {0};
    int flag;
    double send, poll;
    use_first_cpu();
    MPI_Send(data, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MEASURE(send, 1000, MPI_Send(data, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    MEASURE(poll, 1000, MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    printf("%f %f ", send, poll);
    print_run();
    MPI_Finalize();
    return 0;
}
"#;

/// Threads, ranges a second of all together, seconds.
pub(crate) const PACED: &str = r#"
static long pace, seconds;
static int threads;
static void *work(void *unused) {
    long start = now(), count = pace * seconds / threads;
    for (long i = 0; i < count; i++) {
        if (i % 100 == 0) {
            long wait = start + i * threads * 1000000000l / pace - now();
            struct timespec pause = {wait / 1000000000l, wait % 1000000000l};
            if (wait > 0) nanosleep(&pause, 0);
        }
        if (roctxRangePushA) { roctxRangePushA(i & 1 ? "forward" : "backward"); roctxRangePop(); }
    }
    return unused;
}
int main(int argc, char **argv) {
    threads = atoi(argv[1]); pace = atol(argv[2]); seconds = atol(argv[3]);
    pthread_t thread[64];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, 0);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    return 0;
}
"#;

/// Compiles a program into a folder.
pub(crate) fn compile(folder: &Path, compiler: &str, name: &str, source: &str) -> Result<PathBuf, String> {
    let (path, file) = (folder.join(name), folder.join(format!("{name}.c")));
    std::fs::write(&file, format!("{PROLOGUE}{source}")).map_err(|error| error.to_string())?;
    let built = Command::new(compiler).args(["-O2", "-pthread", "-o"]).arg(&path).arg(&file).output();
    let built = built.map_err(|error| format!("{compiler}: {error}"))?;
    match built.status.success() {
        true => Ok(path),
        false => Err(format!("{compiler}: {}", String::from_utf8_lossy(&built.stderr))),
    }
}
