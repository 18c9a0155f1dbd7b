//! The programs that are measured, in C.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROLOGUE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
void roctxMarkA(const char *) __attribute__((weak));
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
"#;

/// Seconds. Rank 0 prints p50 and p99 of its sums of 8 bytes, in us, and how many there were.
pub(crate) const SUMS: &str = r#"
#include <mpi.h>
#define MOST 4000000
static int by_value(const void *a, const void *b) { return (*(int *)a > *(int *)b) - (*(int *)a < *(int *)b); }
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, count = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int *each = malloc(MOST * sizeof(int));
    for (int i = 0; i < MOST; i += 1024) each[i] = 0;
    double own = 0, all;
    for (int i = 0; i < 500; i++) MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    long end = now() + (long)(atof(argv[1]) * 1e9);
    /* Rank 0 ends the loop of all, by what it adds. */
    for (all = 0; all == 0;) {
        long began = now();
        own = rank == 0 && (began >= end || count == MOST - 1);
        MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        each[count++] = now() - began;
    }
    if (rank == 0) {
        qsort(each, count, sizeof(int), by_value);
        printf("%f %f %d", each[count / 2] / 1e3, each[(long)count * 99 / 100] / 1e3, count);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// Marks a second, after a first one; until it is killed.
pub(crate) const MARKS: &str = r#"
int main(int argc, char **argv) {
    int pace = atoi(argv[1]);
    if (roctxMarkA) roctxMarkA("first");
    for (;;) {
        if (pace && roctxMarkA) roctxMarkA("mark");
        usleep(pace ? 1000000 / pace : 1000000);
    }
}
"#;

/// Compiles a program into a folder.
pub(crate) fn compile(folder: &Path, compiler: &str, name: &str, source: &str) -> Result<PathBuf, String> {
    let (path, file) = (folder.join(name), folder.join(format!("{name}.c")));
    std::fs::write(&file, format!("{PROLOGUE}{source}")).map_err(|error| error.to_string())?;
    let built = Command::new(compiler).args(["-O2", "-o"]).arg(&path).arg(&file).output();
    let built = built.map_err(|error| format!("{compiler}: {error}"))?;
    match built.status.success() {
        true => Ok(path),
        false => Err(format!("{compiler}: {}", String::from_utf8_lossy(&built.stderr))),
    }
}
