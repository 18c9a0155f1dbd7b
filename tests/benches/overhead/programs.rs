//! The programs that are measured, in C. Each measures itself, in bursts that a ring can hold, so that
//! start-up and the writing of the shard are not in it.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROLOGUE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
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
/* Median of the bursts, ns per round. */
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
static double delayed, measured;
/* Percent of the time of all bursts. */
static double waited(void) { return 100 * delayed / measured; }
#define BURSTS 400
#define MEASURE(result, rounds, body) do { \
    static double each[BURSTS]; \
    for (int burst = 0; burst < BURSTS; burst++) { \
        double before = delay(); \
        long began = now(); \
        for (int i = 0; i < (rounds); i++) { body; } \
        long took = now() - began; \
        each[burst] = (double)took / (rounds); \
        delayed += delay() - before; \
        measured += took; \
        usleep(4000); \
    } \
    qsort(each, BURSTS, sizeof(double), by_value); \
    result = each[BURSTS / 2]; \
} while (0)
"#;

/// Prints ns of a push and pop pair, of two reads of the clock, of two reads of the processor's counter (0 where none is
/// read), and how long it had no CPU. Without a library there is no roctx: then the pair is a function call and a return.
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
    push("warm"); pop();
    MEASURE(pair, 2000, push("forward"); pop());
    MEASURE(clocks, 2000, clock_gettime(CLOCK_BOOTTIME, &t); clock_gettime(CLOCK_BOOTTIME, &t));
    MEASURE(counts, 2000, COUNT(); COUNT());
    printf("%f %f %f %f", pair, clocks, counts, waited());
    return 0;
}
"#;

/// Prints ns of a send to no rank, which costs MPI next to nothing, of a poll, and how long it had no CPU.
pub(crate) const MPI_CALLS: &str = r#"
#include <mpi.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    char data[8] = {0};
    int flag;
    double send, poll;
    MPI_Send(data, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MEASURE(send, 1000, MPI_Send(data, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    MEASURE(poll, 1000, MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    printf("%f %f %f", send, poll, waited());
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
