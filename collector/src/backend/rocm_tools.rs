//! Finds programs and libraries of ROCm, and queries programs.

use crate::child::signals::cancelled;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Places that are searched for programs, for messages.
pub(super) const PLACES: &str = "PATH, $ROCM_PATH/bin and /opt/rocm/bin";
/// Places that are searched for libraries, for messages.
pub(super) const LIBRARY_PLACES: &str =
    "LD_LIBRARY_PATH, $ROCM_PATH/lib, /opt/rocm/lib, /usr/local/lib and /usr/lib";
/// Folder of ROCm, unless ROCM_PATH is set.
const ROCM: &str = "/opt/rocm";
/// Maximum time for a program to print something.
const TIME_TO_ANSWER: Duration = Duration::from_secs(30);
/// Interval at which a query checks whether the job is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum number of bytes of the output.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

fn rocm() -> PathBuf {
    std::env::var_os("ROCM_PATH").filter(|path| !path.is_empty()).map_or_else(|| ROCM.into(), PathBuf::from)
}

/// Finds a program by name.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let by_path = crate::child::find(OsStr::new(name));
    let places = [rocm().join("bin"), Path::new(ROCM).join("bin")];
    by_path.or_else(|| places.into_iter().map(|place| place.join(name)).find(|path| path.is_file()))
}

/// Finds a library by one of its names, in their order.
pub(super) fn find_library(names: &[&str]) -> Option<PathBuf> {
    let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&paths)
        .chain([rocm().join("lib"), Path::new(ROCM).join("lib")])
        .chain(["/usr/local/lib", "/usr/lib", "/usr/lib64"].map(PathBuf::from))
        .filter(|place| !place.as_os_str().is_empty())
        .collect();
    names.iter().find_map(|name| places.iter().map(|place| place.join(name)).find(|path| path.is_file()))
}

/// Returns what a program prints to stdout and stderr. `None` if it cannot be run or takes too long. Kills
/// its process group in that case, and when the job is cancelled.
pub(crate) fn query(program: &Path, arguments: &[&OsStr], folder: &Path) -> Option<String> {
    query_within(program, arguments, folder, TIME_TO_ANSWER)
}

/// Like [`query`], with a time limit for the output, and again for the end of the program.
pub(super) fn query_within(
    program: &Path,
    arguments: &[&OsStr],
    folder: &Path,
    limit: Duration,
) -> Option<String> {
    if cancelled().is_some() {
        return None;
    }
    let (output, input) = io::pipe().ok()?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_remove("LD_PRELOAD").stdin(Stdio::null());
    command.stdout(input.try_clone().ok()?).stderr(input).process_group(0);
    let mut child = command.spawn().ok()?;
    // Closes this process's copies of the pipe, which ends when the program has closed its own.
    drop(command);
    let (done, answers) = sync_channel(1);
    let reader = move || {
        let mut text = Vec::new();
        let read = output.take(MAX_ANSWER_BYTES).read_to_end(&mut text);
        let _ = done.send(read.map(|_| text).unwrap_or_default());
    };
    std::thread::Builder::new().name("rpd-ask".to_owned()).spawn(reader).ok()?;
    let is_late = |until: Instant| cancelled().is_some() || Instant::now() >= until;
    let until = Instant::now() + limit;
    let answer = loop {
        match answers.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) if !is_late(until) => {}
            answer => break answer.ok(),
        }
    };
    let (mut in_time, until) = (answer.is_some(), Instant::now() + limit);
    // The program may close its outputs and keep running.
    while in_time && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(LOOK_EVERY / 10);
        in_time = !is_late(until);
    }
    if !in_time && let Some(group) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    answer.filter(|_| in_time).map(|text| String::from_utf8_lossy(&text).into_owned())
}
