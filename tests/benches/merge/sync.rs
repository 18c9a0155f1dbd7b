//! How long a program waits for `fsync`, from inside of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Appends "pid nanoseconds" to `$RPD_SYNC_LOG` for every sync.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
static int timed(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    long began = now();
    int result = real(fd), error = errno;
    char line[64];
    int length = snprintf(line, sizeof line, "%d %ld\n", (int)getpid(), now() - began);
    const char *path = getenv("RPD_SYNC_LOG");
    int log = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (log >= 0) {
        if (write(log, line, length) != length) abort();
        close(log);
    }
    errno = error;
    return result;
}
int fsync(int fd) { return timed("fsync", fd); }
int fdatasync(int fd) { return timed("fdatasync", fd); }
"#;

/// The library that is preloaded, and what it has told.
pub(crate) struct SyncWatch {
    pub(crate) library: PathBuf,
    pub(crate) log: PathBuf,
}

impl SyncWatch {
    pub(crate) fn new(folder: &Path) -> Result<SyncWatch, String> {
        let (library, source) = (folder.join("sync_watch.so"), folder.join("sync_watch.c"));
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let built = cc.output().map_err(|error| format!("cc: {error}"))?;
        if !built.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&built.stderr)));
        }
        Ok(SyncWatch { library, log: folder.join("sync.log") })
    }

    /// Forgets what was told.
    pub(crate) fn clear(&self) -> io::Result<()> {
        match fs::remove_file(&self.log) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Seconds that the process waited that waited longest; `None` if none has synced anything.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let text = fs::read_to_string(&self.log).ok()?;
        let mut waits = std::collections::BTreeMap::new();
        for line in text.lines() {
            let (pid, ns) = line.split_once(' ')?;
            *waits.entry(pid.to_owned()).or_insert(0.0) += ns.parse::<f64>().ok()? / 1e9;
        }
        waits.into_values().max_by(f64::total_cmp)
    }
}
