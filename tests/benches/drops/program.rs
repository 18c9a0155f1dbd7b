//! The program that is recorded, in C.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Pushes and pops ranges at a rate, or as fast as it can, for some seconds. Prints their number. What it could not do while
/// it had no core, it does not catch up on.
const PAIRS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int roctxRangePushA(const char *) __attribute__((weak));
int roctxRangePop(void) __attribute__((weak));
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
int main(int argc, char **argv) {
    long rate = atol(argv[1]), pairs = 0, due = now(), end = due + (long)(atof(argv[2]) * 1e9);
    while (now() < end) {
        for (int i = 0; i < 1000; i++) {
            roctxRangePushA("forward");
            roctxRangePop();
        }
        pairs += 1000;
        if (rate == 0) continue;
        due += 1000000000000l / rate;
        long late = now();
        if (late > due + 1000000) due = late;
        while (now() < due) {}
    }
    printf("%ld", pairs);
    return 0;
}
"#;

/// Compiles the program into a folder.
pub(crate) fn compile(folder: &Path) -> Result<PathBuf, String> {
    let (path, file) = (folder.join("pairs"), folder.join("pairs.c"));
    std::fs::write(&file, PAIRS).map_err(|error| error.to_string())?;
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&path).arg(&file).output();
    let built = built.map_err(|error| format!("cc: {error}"))?;
    match built.status.success() {
        true => Ok(path),
        false => Err(format!("cc: {}", String::from_utf8_lossy(&built.stderr))),
    }
}
