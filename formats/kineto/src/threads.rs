//! Threads of a file and their names. Their rows are written at the end of the file, because names may be anywhere
//! in it.

use crate::SOURCE;
use crate::event::EventPlace;
use crate::known::{PlaceKey, RowError, UNKNOWN, list};
use crate::text::{short, unescape};
use rpd_shard::WriteError;
use rpd_shard::model::row_types::{ThreadKey, ThreadRow};
use rpd_translator::{Translator, cut_text};
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of thread names, and maximum bytes of each.
const MAX_NAMES: (usize, usize) = (1 << 16, 256);
/// Maximum number of process names, and maximum bytes of each.
const MAX_PROCESS_NAMES: (usize, usize) = (1024, 1024);
/// Maximum number of bytes of all words that name threads instead of numbers.
const MAX_WORD_BYTES: usize = 64 << 20;
/// Synthetic thread ids are larger than this number, above all ids that Linux assigns.
const MADE_UP: i64 = 1 << 22;

/// Process and thread of an event.
type ThreadSpot = (PlaceKey, PlaceKey);

/// An owned [`EventPlace`] without escapes.
#[derive(Debug)]
enum OwnedPlace {
    None,
    Number(i64),
    Word(Box<[u8]>),
}

impl OwnedPlace {
    fn of(place: EventPlace<'_>) -> OwnedPlace {
        match place {
            EventPlace::None => OwnedPlace::None,
            EventPlace::Number(number) => OwnedPlace::Number(number),
            EventPlace::Word(word) => OwnedPlace::Word(short(&unescape(word)).into()),
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            OwnedPlace::None => Cow::Borrowed(""),
            OwnedPlace::Number(number) => Cow::Owned(number.to_string()),
            OwnedPlace::Word(word) => String::from_utf8_lossy(word),
        }
    }
}

/// A thread that gets its row at the end of the file.
#[derive(Debug)]
enum ListedThread {
    /// Placeholder for the threads that launched GPU work, which the file does not state.
    Unknown,
    Listed {
        spot: ThreadSpot,
        pid: OwnedPlace,
        tid: OwnedPlace,
        /// Whether it is a stream of a GPU.
        is_stream: bool,
    },
}

/// The threads of a file; see the module.
#[derive(Debug, Default)]
pub(crate) struct ThreadList {
    /// Process id of the rank: the process that runs operators.
    pub(crate) pid: Option<i64>,
    names: HashMap<ThreadSpot, Box<[u8]>>,
    process_names: HashMap<PlaceKey, String>,
    /// The process that was named first.
    first_process: Option<PlaceKey>,
    /// Keys that the rows of the threads will have.
    keys: HashMap<ThreadSpot, ThreadKey>,
    /// Threads in the order of their keys.
    listed: Vec<ListedThread>,
    last: Option<(ThreadSpot, ThreadKey)>,
    word_bytes: usize,
}

impl ThreadList {
    /// Records the name of a thread; returns false if the thread had another name before.
    pub(crate) fn name(
        &mut self,
        pid: EventPlace<'_>,
        tid: EventPlace<'_>,
        name: &[u8],
    ) -> Result<bool, RowError> {
        let spot = (PlaceKey::of(pid), PlaceKey::of(tid));
        let name = unescape(name);
        let name = cut_text(&name, MAX_NAMES.1).trim_ascii();
        if self.names.len() >= MAX_NAMES.0 && !self.names.contains_key(&spot) {
            return Err(RowError::OverLimit);
        }
        let before = self.names.insert(spot, name.into());
        Ok(before.is_none_or(|before| *before == *name))
    }

    /// Records the name of a process. The first name of each process counts.
    pub(crate) fn name_process(&mut self, pid: EventPlace<'_>, name: &[u8]) -> Result<(), RowError> {
        let key = PlaceKey::of(pid);
        if self.process_names.contains_key(&key) {
            return Ok(());
        }
        if self.process_names.len() >= MAX_PROCESS_NAMES.0 {
            return Err(RowError::OverLimit);
        }
        let name = unescape(name);
        let name = String::from_utf8_lossy(cut_text(&name, MAX_PROCESS_NAMES.1)).into_owned();
        self.process_names.insert(key, name);
        self.first_process.get_or_insert(key);
        Ok(())
    }

    /// Returns the name of the rank's process, or else of the process that was named first.
    pub(crate) fn process_name(&self) -> Option<&str> {
        let own = self.pid.and_then(|pid| self.process_names.get(&PlaceKey::Number(pid)));
        let first = || self.process_names.get(&self.first_process?);
        own.or_else(first).map(String::as_str)
    }

    /// Returns the thread of a span; if `is_stream`, that of annotations on a stream of a GPU.
    #[inline]
    pub(crate) fn of(
        &mut self,
        pid: EventPlace<'_>,
        tid: EventPlace<'_>,
        is_stream: bool,
    ) -> Result<ThreadKey, RowError> {
        let spot = (PlaceKey::of(pid), PlaceKey::of(tid));
        match self.last {
            Some((last, thread)) if last == spot => return Ok(thread),
            _ => {}
        }
        let thread = match self.keys.get(&spot) {
            Some(thread) => *thread,
            None => self.new_thread(spot, pid, tid, is_stream)?,
        };
        self.last = Some((spot, thread));
        Ok(thread)
    }

    fn new_thread(
        &mut self,
        spot: ThreadSpot,
        pid: EventPlace<'_>,
        tid: EventPlace<'_>,
        is_stream: bool,
    ) -> Result<ThreadKey, RowError> {
        let words = [pid, tid].map(|place| if let EventPlace::Word(word) = place { word.len() } else { 0 });
        let words: usize = words.iter().sum();
        if words > MAX_WORD_BYTES - self.word_bytes {
            return Err(RowError::OverLimit);
        }
        self.word_bytes += words;
        let (pid, tid) = (OwnedPlace::of(pid), OwnedPlace::of(tid));
        list(&mut self.keys, &mut self.listed, spot, ListedThread::Listed { spot, pid, tid, is_stream })
    }

    /// Returns the placeholder for the thread that launched GPU work, which the file does not state.
    pub(crate) fn unknown(&mut self) -> Result<ThreadKey, RowError> {
        let spot = (PlaceKey::None, PlaceKey::Word(0));
        match self.keys.get(&spot) {
            Some(thread) => Ok(*thread),
            None => list(&mut self.keys, &mut self.listed, spot, ListedThread::Unknown),
        }
    }

    /// Writes the rows after the whole file was read.
    pub(crate) fn finish(&mut self, out: &mut Translator<'_>) -> Result<(), WriteError> {
        let mut made_up = MADE_UP;
        for thread in std::mem::take(&mut self.listed) {
            self.push(out, &thread, &mut made_up)?;
        }
        Ok(())
    }

    /// Writes the row of a thread. `made_up` is the last synthetic thread id.
    fn push(
        &self,
        out: &mut Translator<'_>,
        thread: &ListedThread,
        made_up: &mut i64,
    ) -> Result<(), WriteError> {
        let ListedThread::Listed { spot, pid, tid, is_stream } = thread else {
            return out.row(SOURCE, &thread_row(0, Some(UNKNOWN.as_bytes()))).map(drop);
        };
        let is_own = match pid {
            OwnedPlace::Number(pid) => self.pid == Some(*pid),
            OwnedPlace::Word(word) => **word == *crate::LEGACY_PID,
            OwnedPlace::None => true,
        };
        let own = match tid {
            OwnedPlace::Number(tid) if is_own && (1..MADE_UP).contains(tid) => Some(*tid),
            _ => None,
        };
        let name = match (own, self.names.get(spot)) {
            (Some(_), Some(name)) => Some(String::from_utf8_lossy(name).into_owned()),
            (Some(_), None) => None,
            (None, name) => Some(made_up_name(pid, tid, name.map(|name| &**name), *is_stream)),
        };
        let tid = own.unwrap_or_else(|| {
            *made_up += 1;
            *made_up
        });
        out.row(SOURCE, &thread_row(tid, name.as_deref().map(str::as_bytes))).map(drop)
    }
}

fn thread_row(tid: i64, name: Option<&[u8]>) -> ThreadRow<'_> {
    ThreadRow { ppid: None, tid: tid.into(), name, start: None, end: None, extdata: None }
}

/// Returns the name of a thread that the system does not have: a stream of a GPU, or a word of the profiler.
fn made_up_name(pid: &OwnedPlace, tid: &OwnedPlace, name: Option<&[u8]>, is_stream: bool) -> String {
    let name =
        name.map(|name| String::from_utf8_lossy(name).trim().to_owned()).filter(|name| !name.is_empty());
    match (pid, tid, name) {
        // GPUs have the numbers of processes here, and their streams those of threads.
        (OwnedPlace::Number(gpu), _, Some(name)) if name.starts_with("stream") => {
            format!("annotations of GPU {gpu} {name}")
        }
        (OwnedPlace::Number(gpu), _, Some(name)) if name == format!("Device {gpu}") => {
            format!("annotations of GPU {gpu}")
        }
        (OwnedPlace::Number(gpu), OwnedPlace::Number(stream), None) if is_stream => {
            format!("annotations of GPU {gpu} stream {stream}")
        }
        // No process has the number 0.
        (OwnedPlace::Number(0), _, Some(name)) => format!("{name} of an unknown process"),
        (OwnedPlace::Number(pid), OwnedPlace::Number(tid), None) => format!("thread {tid} of process {pid}"),
        (OwnedPlace::None, OwnedPlace::None, None) => "unknown thread".to_owned(),
        (pid, tid, name) => {
            let thread = name.unwrap_or_else(|| tid.text().into_owned());
            let name = format!("{} {thread}", pid.text()).trim().to_owned();
            if name.is_empty() { "marks of the profiler".to_owned() } else { name }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_no_process_are_named_by_their_content() {
        let word = |text: &str| OwnedPlace::Word(text.as_bytes().into());
        let number = OwnedPlace::Number;
        for (pid, tid, name, wanted) in [
            (number(2), number(7), Some("stream 7 "), "annotations of GPU 2 stream 7"),
            (number(1), number(-1), Some("Device 1"), "annotations of GPU 1"),
            (number(0), number(0), Some("thread 0 (python3)"), "thread 0 (python3) of an unknown process"),
            (number(57), number(60), None, "thread 60 of process 57"),
            (word("Spans"), word("PyTorch Profiler"), None, "Spans PyTorch Profiler"),
            (word(""), word(""), None, "marks of the profiler"),
            (OwnedPlace::None, OwnedPlace::None, None, "unknown thread"),
        ] {
            assert_eq!(made_up_name(&pid, &tid, name.map(str::as_bytes), false), wanted);
        }
        assert_eq!(made_up_name(&number(2), &number(7), None, true), "annotations of GPU 2 stream 7");
    }
}
