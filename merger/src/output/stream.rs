//! This rank's pages on their way to the disk.
//!
//! Runs of pages come in the order of their places. A thread of its own writes them past the page cache, from the
//! memory that they were encoded to: nobody reads them soon, and the first touch of a page of the cache takes as
//! long as encoding it. Where the file system wants the cache, they go through it.

use rpd_console::Failure;
use rpd_files::{FileAccess, open_output};
use rpd_sqlite::write::{PAGE_SIZE, PageMemory, PlacedRun};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Writes at once that the memory has room for: some wait while one is written.
const WRITES: usize = 6;
/// Pieces of memory in one call; the system takes 1,024.
const MOST_SLICES: usize = 512;

/// Writes pages to their places, in the order in which they come.
#[derive(Debug)]
pub(crate) struct PageStream {
    queue: Arc<Queue>,
    writer: Option<JoinHandle<io::Result<()>>>,
    path: Arc<Path>,
}

impl PageStream {
    /// Into this file, with so many bytes of pages on their way; what is written is given back to `spare`.
    pub(crate) fn begin(path: &Path, bytes: usize, spare: Arc<PageMemory>) -> Result<PageStream, Failure> {
        let mut files = Files::open(path).map_err(|error| Failure::write(path, &error))?;
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new(), most: bytes });
        let runs = queue.clone();
        let write = move || {
            let _ended = Ended(&runs);
            let mut result = Ok(());
            while let Some(some) = runs.next() {
                // Behind an error runs are thrown away, so that nobody waits.
                result = result.and_then(|()| files.write(&some));
                runs.done();
                some.into_iter().for_each(|run| run.recycle(&spare));
                if result.is_err() {
                    runs.end(true);
                }
            }
            result
        };
        let writer = std::thread::Builder::new().name("write".to_owned()).spawn(write);
        let writer = writer.map_err(|error| Failure::internal(format!("cannot start a thread: {error}")))?;
        Ok(PageStream { queue, writer: Some(writer), path: path.into() })
    }

    /// Adds a run; waits while there are too many bytes on their way.
    pub(crate) fn push(&mut self, run: PlacedRun) -> Result<(), Failure> {
        if self.queue.push(run) { Ok(()) } else { self.ended() }
    }

    /// Waits until all pages are written.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.ended()
    }

    /// The writing thread's last word.
    fn ended(&mut self) -> Result<(), Failure> {
        self.queue.end(false);
        let Some(writer) = self.writer.take() else {
            return Err(Failure::internal("the output is written by nobody"));
        };
        match writer.join() {
            Ok(result) => result.map_err(|error| Failure::write(&self.path, &error)),
            Err(_) => Err(Failure::internal("the thread that writes the output panicked")),
        }
    }
}

impl Drop for PageStream {
    /// Where the merge failed, the thread ends with what it has.
    fn drop(&mut self) {
        self.queue.end(false);
    }
}

/// Tells those who encode that nobody writes any more, also where the thread panicked: they would wait for ever.
struct Ended<'a>(&'a Queue);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end(true);
    }
}

/// Runs between those who encode and the one who writes.
#[derive(Debug)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
    /// Most bytes on their way.
    most: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    runs: Vec<PlacedRun>,
    /// Bytes of these.
    bytes: usize,
    /// Bytes of those that are being written.
    in_work: usize,
    /// Somebody waits for room.
    is_full: bool,
    /// No more come.
    ended: bool,
    /// Nobody writes any more.
    failed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a run, unless nobody writes any more.
    fn push(&self, run: PlacedRun) -> bool {
        let bytes = bytes_of(&run);
        let mut state = self.lock();
        // A run that is larger than all there may be goes alone.
        while !state.failed
            && state.bytes + state.in_work > 0
            && state.bytes + state.in_work + bytes > self.most
        {
            state.is_full = true;
            self.changed.notify_all();
            state = self.wait(state);
        }
        state.is_full = false;
        state.bytes += bytes;
        state.runs.push(run);
        if state.bytes >= self.most / WRITES {
            self.changed.notify_all();
        }
        !state.failed
    }

    /// What is to be written next: some MiB, or less where somebody waits. `None` behind the last.
    fn next(&self) -> Option<Vec<PlacedRun>> {
        let mut state = self.lock();
        loop {
            let is_due = state.ended || state.is_full || state.bytes >= self.most / WRITES;
            if is_due && !state.runs.is_empty() {
                state.in_work = std::mem::take(&mut state.bytes);
                return Some(std::mem::take(&mut state.runs));
            }
            if state.ended {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// What was to be written next, is.
    fn done(&self) {
        self.lock().in_work = 0;
        self.changed.notify_all();
    }

    fn end(&self, failed: bool) {
        let mut state = self.lock();
        state.ended = true;
        state.failed |= failed;
        drop(state);
        self.changed.notify_all();
    }
}

fn bytes_of(run: &PlacedRun) -> usize {
    run.pages() as usize * PAGE_SIZE
}

/// The file, opened twice.
struct Files {
    cached: File,
    /// Past the page cache, where the file system can.
    direct: Option<File>,
}

impl Files {
    fn open(path: &Path) -> io::Result<Files> {
        let direct = open_output(path, FileAccess::WriteDirect).ok();
        Ok(Files { cached: open_output(path, FileAccess::Write)?, direct })
    }

    /// Runs in the order of their places: what is together in the file is written together.
    fn write(&mut self, runs: &[PlacedRun]) -> io::Result<()> {
        let mut together: Vec<&[u8]> = Vec::new();
        let (mut first, mut next) = (0, 0);
        for (offset, bytes) in runs.iter().flat_map(PlacedRun::pieces) {
            if offset != next || together.len() == MOST_SLICES {
                self.write_together(first, &together)?;
                together.clear();
                first = offset;
            }
            together.push(bytes);
            next = offset + bytes.len() as u64;
        }
        self.write_together(first, &together)
    }

    fn write_together(&mut self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match write_all(direct, offset, pieces) {
                // The device wants other limits than pages: as before, through the cache.
                Err(error) if error.kind() == ErrorKind::InvalidInput => self.direct = None,
                done => return done,
            }
        }
        write_all(&self.cached, offset, pieces)
    }
}

fn write_all(file: &File, mut offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match rustix::io::pwritev(file, rest, offset) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
