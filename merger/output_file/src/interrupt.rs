//! Handles signals that end a merge: it prints the reason, removes unfinished outputs, and exits with code 128 +
//! number.

use rpd_files::{remove_output, remove_output_folder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Signals of a user, of a batch system, and of a closed terminal.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Outputs that an interrupted merge removes, the last one first.
static UNFINISHED: Mutex<Vec<UnfinishedOutput>> = Mutex::new(Vec::new());

/// A file or folder that is useless unless the merge completes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnfinishedOutput {
    /// A file.
    File(PathBuf),
    /// A folder and its content.
    Folder(PathBuf),
    /// A folder, removed only if it is empty.
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

/// Registers an output that an interrupted merge removes. Must be called before the file or folder is created.
pub fn remove_on_interrupt(what: UnfinishedOutput) {
    unfinished().push(what);
}

/// Creates a file with `make` and registers it for removal by an interrupted merge, if `make` succeeds. A signal
/// is handled either before that or after the file is registered.
///
/// It serves names that another process may use at the same time, which must not be registered in advance.
pub fn make_removed_on_interrupt<T, E>(path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut unfinished = unfinished();
    let made = make()?;
    unfinished.push(UnfinishedOutput::File(path.to_owned()));
    Ok(made)
}

/// Unregisters a path, because the merge has finished or removed it.
pub fn keep_on_interrupt(path: &Path) {
    unfinished().retain(|what| {
        let (UnfinishedOutput::File(known)
        | UnfinishedOutput::Folder(known)
        | UnfinishedOutput::EmptyFolder(known)) = what;
        known != path
    });
}

/// Removes unfinished outputs. Other threads cannot register any afterwards, so the process must end next.
pub fn remove_unfinished() {
    let unfinished = unfinished();
    // A thread that was creating a file during the first pass has created it before the second one.
    for what in unfinished.iter().rev().chain(unfinished.iter().rev()) {
        what.remove();
    }
    std::mem::forget(unfinished);
}

/// Ends the process on a signal while this value exists. Afterwards, signals have their default effect.
#[derive(Debug)]
pub struct InterruptWatch {
    active: Arc<AtomicBool>,
}

impl InterruptWatch {
    /// Starts the watch. Only the merge rank with `prints` prints the reason. Signals that the process was
    /// started to ignore, such as SIGHUP under `nohup`, remain ignored.
    pub fn begin(prints: bool) -> InterruptWatch {
        InterruptWatch::begin_for("merge", prints)
    }

    /// The same for other `work`, a verb that is also its noun: `report`.
    pub fn begin_for(work: &'static str, prints: bool) -> InterruptWatch {
        let active = Arc::new(AtomicBool::new(true));
        let ignored = ignored_signals();
        let wanted = ENDING.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        if let Ok(signals) = Signals::new(wanted) {
            let active = active.clone();
            let watch = move || watch(signals, &active, prints.then_some(work));
            // Without the thread, signals would have no effect. A process that cannot start a thread ends soon
            // anyway.
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

fn watch(mut signals: Signals, active: &AtomicBool, printed: Option<&str>) {
    for signal in signals.forever() {
        if !active.load(Ordering::Acquire) {
            let _ = low_level::emulate_default_handler(signal);
            continue;
        }
        if let Some(work) = printed {
            let name = low_level::signal_name(signal).unwrap_or("a signal");
            // A progress bar may have left text on the current line.
            let line_end = if std::io::stderr().is_terminal() { "\n" } else { "" };
            eprintln!("{line_end}error: the {work} was ended by {name}: nothing of it is kept; {work} again");
        }
        remove_unfinished();
        low_level::exit(128 + signal);
    }
}

/// Returns the signals that this process ignores: bit n-1 for signal n.
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
