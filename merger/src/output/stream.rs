//! Writes this rank's pages to disk.
//!
//! Runs of pages arrive in the order of their positions. A separate thread writes them, bypassing the page cache,
//! from the memory into which they were encoded. No process reads them soon, and the first touch of a cache page
//! takes as long as encoding it. If the file system does not support this, the pages are written through the cache.

use rpd_console::Failure;
use rpd_files::{FileAccess, open_output};
use rpd_sqlite::write::{PAGE_SIZE, PageMemory, PlacedRun};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Number of writes for which the memory suffices: some wait while one is written.
const BUFFERED_WRITES: usize = 6;
/// Maximum number of memory pieces per system call; the kernel allows 1,024.
const MAX_SLICES: usize = 512;

/// Writes pages to their positions, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct PageStream {
    queue: Arc<Queue>,
    writer: Option<JoinHandle<io::Result<()>>>,
    path: Arc<Path>,
}

impl PageStream {
    /// Starts writing into this file, with at most `bytes` bytes of pages waiting. Returns the memory of written
    /// pages to `spare`.
    pub(crate) fn begin(path: &Path, bytes: usize, spare: Arc<PageMemory>) -> Result<PageStream, Failure> {
        let mut files = Files::open(path).map_err(|error| Failure::write(path, &error))?;
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new(), most: bytes });
        let runs = queue.clone();
        let write = move || {
            let _ended = Ended(&runs);
            let mut result = Ok(());
            while let Some(some) = runs.next() {
                // After an error, runs are discarded, so that no encoding thread waits.
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

    /// Adds a run; waits while too many bytes are waiting.
    pub(crate) fn push(&mut self, run: PlacedRun) -> Result<(), Failure> {
        if self.queue.push(run) { Ok(()) } else { self.ended() }
    }

    /// Waits until all pages are written.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.ended()
    }

    /// Waits for the writing thread and returns its result.
    fn ended(&mut self) -> Result<(), Failure> {
        self.queue.end(false);
        let Some(writer) = self.writer.take() else {
            return Err(Failure::internal("no thread writes the output"));
        };
        match writer.join() {
            Ok(result) => result.map_err(|error| Failure::write(&self.path, &error)),
            Err(_) => Err(Failure::internal("the thread that writes the output panicked")),
        }
    }
}

impl Drop for PageStream {
    /// If the merge failed, the thread ends after the runs that it has.
    fn drop(&mut self) {
        self.queue.end(false);
    }
}

/// Informs the encoding threads that the writing thread has ended, even by a panic; otherwise they would wait
/// forever.
struct Ended<'a>(&'a Queue);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end(true);
    }
}

/// Runs between the encoding threads and the writing thread.
#[derive(Debug)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
    /// Maximum bytes that wait or are being written.
    most: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    runs: Vec<PlacedRun>,
    /// Bytes of the waiting runs.
    bytes: usize,
    /// Bytes of the runs that are being written.
    in_work: usize,
    /// Whether a thread waits for memory.
    is_full: bool,
    /// Whether no more runs will arrive.
    ended: bool,
    /// Whether the writing thread has stopped.
    failed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a run, unless the writing thread has stopped.
    fn push(&self, run: PlacedRun) -> bool {
        let bytes = bytes_of(&run);
        let mut state = self.lock();
        // A run larger than the limit is written alone.
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
        if state.bytes >= self.most / BUFFERED_WRITES {
            self.changed.notify_all();
        }
        !state.failed
    }

    /// Returns the runs to write next: some MiB, or less if a thread waits for memory. Returns `None` after the last
    /// ones.
    fn next(&self) -> Option<Vec<PlacedRun>> {
        let mut state = self.lock();
        loop {
            let is_due = state.ended || state.is_full || state.bytes >= self.most / BUFFERED_WRITES;
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

    /// Marks the runs from `next` as written.
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
    /// Bypasses the page cache, if the file system supports that.
    direct: Option<File>,
}

impl Files {
    fn open(path: &Path) -> io::Result<Files> {
        let direct = open_output(path, FileAccess::WriteDirect).ok();
        Ok(Files { cached: open_output(path, FileAccess::Write)?, direct })
    }

    /// Writes runs in the order of their positions; adjacent runs are written in one call.
    fn write(&mut self, runs: &[PlacedRun]) -> io::Result<()> {
        let mut adjacent: Vec<&[u8]> = Vec::new();
        let (mut first, mut next) = (0, 0);
        for (offset, bytes) in runs.iter().flat_map(PlacedRun::pieces) {
            if offset != next || adjacent.len() == MAX_SLICES {
                self.write_adjacent(first, &adjacent)?;
                adjacent.clear();
                first = offset;
            }
            adjacent.push(bytes);
            next = offset + bytes.len() as u64;
        }
        self.write_adjacent(first, &adjacent)
    }

    fn write_adjacent(&mut self, offset: u64, pieces: &[&[u8]]) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match write_all(direct, offset, pieces) {
                // The device requires another alignment than pages have, so write through the cache.
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
