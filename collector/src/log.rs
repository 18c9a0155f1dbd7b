//! The log of a rank. The collector writes its messages there because stderr belongs to the program.
//!
//! One line per message: `2026-08-14T12:34:56Z warning: text`. The file exists only if there is a message. A
//! separate thread writes it, so that a stalled file system blocks nothing else.

use crate::host::utc::utc_date_time;
use crate::run_folder::{self, RankFolder};
use rpd_files::FileRefused;
use std::fmt::Arguments;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// Maximum number of lines in one log. Repeating a message more often adds nothing.
const MAX_LINES: u64 = 1000;
/// Maximum length of one line.
const MAX_LINE_BYTES: usize = 4096;
/// Stack of the logging thread. The usual one may not fit where memory is limited, which a line may be about.
const STACK_BYTES: usize = 256 << 10;
/// Lines that wait for a stalled file system. Further lines are only counted.
const MAX_QUEUED_LINES: usize = 64;

/// The command has ended and no event was recorded.
static EMPTY: AtomicBool = AtomicBool::new(false);
/// Metrics of the node were recorded.
static METRICS: AtomicBool = AtomicBool::new(false);
/// Number of processes that the launcher started, if MPI put the process of this rank into an
/// `MPI_COMM_WORLD` of its own; otherwise 0.
static SINGLETON_OF: AtomicU32 = AtomicU32::new(0);
static LOG: OnceLock<Mutex<Log>> = OnceLock::new();

/// Destination of the log, and the function that receives the lines it cannot hold.
pub(crate) struct LogPlace {
    /// The folder. The logging thread creates it for the first message, but never a second time.
    pub(crate) folder: RankFolder,
    /// Name of the file in the folder.
    pub(crate) name: String,
    /// Receives every line that could not be written.
    pub(crate) instead: Box<dyn Fn(&str) + Send + Sync>,
}

/// The log of this process.
struct Log {
    /// Destination, until the first message.
    place: Option<LogPlace>,
    open: Option<(SyncSender<String>, JoinHandle<u64>)>,
    /// The place, if there was no memory for a thread that writes there.
    unopened: Option<Arc<LogPlace>>,
    /// Number of lines that were dropped because the queue was full.
    missed: u64,
}

/// `EMFILE`
pub(crate) const TOO_MANY_FILES: i32 = 24;

/// Returns advice for an error of the system, to append to its text. Empty if the text suffices.
pub(crate) fn next_step(error: &io::Error) -> &'static str {
    const TOO_MANY_PROCESSES: i32 = 11;
    match error.raw_os_error() {
        Some(TOO_MANY_FILES) => "; raise the limit with `ulimit -n 64` or more",
        Some(TOO_MANY_PROCESSES) => "; raise the limit of processes and threads, `ulimit -u`",
        _ => "",
    }
}

/// Writes one line: to the log of the rank in the collector process, otherwise to stderr. Ignores a closed
/// stderr. Never writes to stdout, which belongs to the command.
pub(crate) fn warn(text: Arguments<'_>) {
    if !write_line(text) {
        let _ = writeln!(io::stderr(), "rpd-collect: {text}");
    }
}

/// Directs the messages of [`warn`] in this process to a log from now on.
pub(crate) fn open(place: LogPlace) {
    let _ = LOG.set(Mutex::new(Log { place: Some(place), open: None, unopened: None, missed: 0 }));
}

/// Writes a line to the log of this process. Returns `false` if this process has no log.
pub(crate) fn write_line(text: Arguments<'_>) -> bool {
    let Some(mut log) = log() else { return false };
    if let Some(place) = log.place.take() {
        let (lines, incoming) = sync_channel(MAX_QUEUED_LINES);
        let thread = std::thread::Builder::new().name("rpd-log".to_owned()).stack_size(STACK_BYTES);
        let place = Arc::new(place);
        let place_of_thread = Arc::clone(&place);
        match thread.spawn(move || write_all(&place_of_thread, &incoming)) {
            Ok(thread) => log.open = Some((lines, thread)),
            Err(_) => log.unopened = Some(place),
        }
    }
    if let Some(place) = &log.unopened {
        if log.missed < MAX_LINES {
            (place.instead)(&text.to_string());
        }
        log.missed += 1;
        return true;
    }
    let line = one_line(SystemTime::now(), &text.to_string());
    let sent = log.open.as_ref().is_some_and(|(lines, _)| lines.try_send(line).is_ok());
    log.missed += u64::from(!sent);
    true
}

/// Writes the remaining lines and closes the log. Returns the number of warnings in it.
pub(crate) fn close() -> u64 {
    let Some((open, missed)) = log().map(|mut log| (log.open.take(), log.missed)) else { return 0 };
    let Some((lines, thread)) = open else { return 0 };
    if missed > 0 {
        let text = format!("warning: {missed} lines are missing here: the file system was too slow for them");
        let _ = lines.send(one_line(SystemTime::now(), &text));
    }
    drop(lines);
    thread.join().unwrap_or(0)
}

/// Notes that no event was recorded, and whether metrics of the node were. The collector process prints the
/// reason at the end.
pub(crate) fn note_empty(metrics: bool) {
    METRICS.store(metrics, Relaxed);
    EMPTY.store(true, Relaxed);
}

/// Whether metrics of the node were recorded, but no event.
pub(crate) fn has_metrics() -> bool {
    METRICS.load(Relaxed)
}

/// Notes that the MPI process of this rank is alone in its `MPI_COMM_WORLD`, and how many processes the
/// launcher started.
pub(crate) fn note_singleton(launched: u32) {
    SINGLETON_OF.store(launched, Relaxed);
}

/// Returns the number of processes that the launcher started, if MPI put the process of this rank into an
/// `MPI_COMM_WORLD` of its own.
pub(crate) fn singleton_of() -> Option<u32> {
    Some(SINGLETON_OF.load(Relaxed)).filter(|launched| *launched > 0)
}

/// Whether no event was recorded.
pub(crate) fn is_empty() -> bool {
    EMPTY.load(Relaxed)
}

fn log() -> Option<MutexGuard<'static, Log>> {
    Some(LOG.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs the logging thread. Returns the number of warnings in the file.
fn write_all(place: &LogPlace, lines: &Receiver<String>) -> u64 {
    let mut file = place.create();
    if let Err(error) = &file
        && FileRefused::in_error(error).is_some()
    {
        let path = place.folder.path().join(&place.name);
        (place.instead)(&format!("warning: log {} is not written: {error}", path.display()));
    }
    let (mut warnings, mut written) = (0, 0);
    for line in lines {
        written += 1;
        if written > MAX_LINES {
            continue;
        }
        let done = file.as_mut().is_ok_and(|file| file.write_all(line.as_bytes()).is_ok());
        if !done {
            let text = line.split_once(' ').map_or(line.as_str(), |(_, text)| text);
            (place.instead)(text.trim_end());
        } else if is_warning(&line) {
            warnings += 1;
        }
    }
    if let (Ok(file), Some(more)) = (&mut file, written.checked_sub(MAX_LINES + 1)) {
        let text = format!("warning: {} lines more", more + 1);
        let _ = file.write_all(one_line(SystemTime::now(), &text).as_bytes());
    }
    warnings
}

impl LogPlace {
    fn create(&self) -> io::Result<File> {
        let folder = match run_folder::was_made() {
            true => self.folder.open()?,
            false => self.folder.make()?,
        };
        let file = folder.append(&self.name, self.folder.file_mode())?;
        if self.folder.is_shared() {
            // The user asked for a shared file, so the umask does not apply.
            let _ = file.set_permissions(Permissions::from_mode(self.folder.file_mode()));
        }
        Ok(file)
    }
}

fn is_warning(line: &str) -> bool {
    line.split_once(' ').is_some_and(|(_, text)| text.starts_with(WARNING))
}

/// Prefix of a warning. Any other text is a note.
const WARNING: &str = "warning: ";
/// Prefix of a note.
const NOTE: &str = "note: ";

/// Formats a text as one line of the log. Replaces control characters, so that a text cannot end the line.
fn one_line(now: SystemTime, text: &str) -> String {
    let mut line = utc_date_time(now).strftime("%Y-%m-%dT%H:%M:%SZ ").to_string();
    if !text.starts_with(WARNING) && !text.starts_with(NOTE) {
        line.push_str(NOTE);
    }
    line.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
    let end = (0..=MAX_LINE_BYTES.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line.truncate(end.unwrap_or(0));
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    const NAME: &str = "rank-00000.log";

    fn place(root: &Path, share_group: bool) -> (LogPlace, Arc<Mutex<Vec<String>>>) {
        let received = Arc::new(Mutex::new(Vec::new()));
        let receiver = Arc::clone(&received);
        let instead = Box::new(move |line: &str| receiver.lock().unwrap().push(line.to_owned()));
        let folder = RankFolder::of_run(root, "run", share_group);
        (LogPlace { folder, name: NAME.to_owned(), instead }, received)
    }

    fn written(place: &LogPlace, lines: &[&str]) -> u64 {
        let (send, receive) = sync_channel(lines.len());
        lines.iter().for_each(|line| send.send(one_line(UNIX_EPOCH, line)).unwrap());
        drop(send);
        write_all(place, &receive)
    }

    #[test]
    fn a_line_has_a_time_a_kind_and_one_end() {
        let at = UNIX_EPOCH + Duration::from_secs(951_827_696);
        assert_eq!(one_line(at, "warning: a\nb\u{1b}c"), "2000-02-29T12:34:56Z warning: a b c\n");
        assert_eq!(one_line(at, "a"), "2000-02-29T12:34:56Z note: a\n");
        let long = one_line(at, &"\u{e4}".repeat(MAX_LINE_BYTES));
        assert!(long.len() <= MAX_LINE_BYTES + 1 && long.ends_with("\u{e4}\n"));
    }

    #[test]
    fn a_log_is_private_and_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run").join(NAME);
        let (place, received) = place(folder.path(), false);
        assert_eq!(written(&place, &["warning: a", "b"]), 1);
        assert_eq!(written(&place, &["warning: c"]), 1);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(received.lock().unwrap().is_empty());
        let many = vec!["x"; MAX_LINES as usize + 5];
        written(&place, &many);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("warning: 5 lines more\n"), "{}", text.lines().last().unwrap());
    }

    #[test]
    fn a_log_is_shared_if_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let (place, _) = place(folder.path(), true);
        written(&place, &["a"]);
        let path = folder.path().join("run").join(NAME);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_a_log_cannot_hold_is_printed_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other"), "mine").unwrap();
        std::fs::create_dir(folder.path().join("run")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), folder.path().join("run").join(NAME))
            .unwrap();
        let (place, received) = place(folder.path(), false);
        assert_eq!(written(&place, &["warning: a", "b"]), 0);
        let why = format!(
            "warning: log {} is not written: it is a symbolic link, and no link is followed here; remove it",
            folder.path().join("run").join(NAME).display()
        );
        assert_eq!(*received.lock().unwrap(), [&*why, "warning: a", "note: b"]);
        assert_eq!(std::fs::read(folder.path().join("other")).unwrap(), b"mine");
    }
}
