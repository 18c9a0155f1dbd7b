//! Signals that end a merge: it says so, removes what it has not finished, and ends with exit code 128 + number.

use rpd_files::{remove_output, remove_output_folder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Signals of a user, of a batch system, and of a terminal that is gone.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// What an interrupted merge removes, the last one first.
static UNFINISHED: Mutex<Vec<UnfinishedOutput>> = Mutex::new(Vec::new());

/// A file or folder that is of no use without the end of the merge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnfinishedOutput {
    /// A file.
    File(PathBuf),
    /// A folder with all that is in it.
    Folder(PathBuf),
    /// A folder, if nothing is in it.
    EmptyFolder(PathBuf),
}

impl UnfinishedOutput {
    fn remove(&self) {
        let _ = match self {
            UnfinishedOutput::File(path) => remove_output(path),
            UnfinishedOutput::Folder(path) => remove_output_folder(path),
            UnfinishedOutput::EmptyFolder(path) => fs::remove_dir(path),
        };
    }
}

fn unfinished() -> MutexGuard<'static, Vec<UnfinishedOutput>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds something that an interrupted merge removes. Call it before the file or folder is made.
pub fn remove_on_interrupt(what: UnfinishedOutput) {
    unfinished().push(what);
}

/// Makes a file that an interrupted merge removes, if `make` does: a signal comes either before that, or finds the file.
/// For names that another process may use at the same time, which must not be added before.
pub fn make_removed_on_interrupt<T, E>(path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut unfinished = unfinished();
    let made = make()?;
    unfinished.push(UnfinishedOutput::File(path.to_owned()));
    Ok(made)
}

/// Takes back a path: the merge has finished or removed it.
pub fn keep_on_interrupt(path: &Path) {
    unfinished().retain(|what| {
        let (UnfinishedOutput::File(known)
        | UnfinishedOutput::Folder(known)
        | UnfinishedOutput::EmptyFolder(known)) = what;
        known != path
    });
}

/// Removes what is not finished. Other threads cannot add anything afterwards, so the process has to end next.
pub fn remove_unfinished() {
    let unfinished = unfinished();
    // A thread that was making a file during the first pass has made it before the second one.
    for what in unfinished.iter().rev().chain(unfinished.iter().rev()) {
        what.remove();
    }
    std::mem::forget(unfinished);
}

/// Ends the process when a signal comes, for as long as this value lives. Signals have their default effect afterwards.
#[derive(Debug)]
pub struct InterruptWatch {
    active: Arc<AtomicBool>,
}

impl InterruptWatch {
    /// Starts to watch. One merge rank `prints` why it ends. A signal that the process was started to ignore, as
    /// SIGHUP under `nohup`, stays ignored.
    pub fn begin(prints: bool) -> InterruptWatch {
        let active = Arc::new(AtomicBool::new(true));
        let ignored = ignored_signals();
        let wanted = ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        if let Ok(signals) = Signals::new(wanted) {
            let active = active.clone();
            let watch = move || watch(signals, &active, prints);
            // Without the thread a signal would have no effect at all; a process that cannot start one ends soon.
            let _ = std::thread::Builder::new().name("rpd-signals".to_owned()).spawn(watch);
        }
        InterruptWatch { active }
    }
}

impl Drop for InterruptWatch {
    fn drop(&mut self) {
        self.active.store(false, Ordering::Release);
    }
}

fn watch(mut signals: Signals, active: &AtomicBool, prints: bool) {
    for signal in signals.forever() {
        if !active.load(Ordering::Acquire) {
            let _ = low_level::emulate_default_handler(signal);
            continue;
        }
        if prints {
            let name = low_level::signal_name(signal).unwrap_or("a signal");
            // The line of a progress bar is not ours.
            let line_end = if std::io::stderr().is_terminal() { "\n" } else { "" };
            eprintln!("{line_end}error: the merge was ended by {name}: nothing of it is kept; merge again");
        }
        remove_unfinished();
        low_level::exit(128 + signal);
    }
}

/// The signals that this process ignores: bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_signal_finds_a_file_that_is_being_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db.lock");
        let (made, is_made) = channel();
        let make = || {
            fs::write(&path, "")?;
            let _ = made.send(());
            std::thread::sleep(Duration::from_millis(50));
            Ok::<_, io::Error>(())
        };
        std::thread::scope(|scope| {
            scope.spawn(|| make_removed_on_interrupt(&path, make));
            is_made.recv().unwrap();
            assert!(unfinished().contains(&UnfinishedOutput::File(path.clone())));
        });
        keep_on_interrupt(&path);
        let failed = make_removed_on_interrupt(&path, || Err::<(), _>(()));
        assert!(failed.is_err() && !unfinished().contains(&UnfinishedOutput::File(path)), "it is not ours");
    }
}
