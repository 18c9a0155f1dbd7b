//! This rank's pages on their way to the disk.
//!
//! Pages come in the order of their places. They are gathered to pieces of some MiB, which a thread of its
//! own writes past the page cache: nobody reads them soon, and the first touch of a page of the cache takes
//! as long as encoding it. Where the file system wants the cache, they go through it.

use crate::failure::Failure;
use rpd_sqlite::write::{PAGE_SIZE, PlacedRun};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Pieces: one that is filled, one that is written, and those between them.
const PIECES: usize = 6;
/// Least bytes of a piece.
const LEAST_BYTES: usize = 256 << 10;

/// Memory that begins at a page, as direct I/O asks for.
#[derive(Debug)]
struct Piece {
    memory: Vec<u8>,
    /// Where the first page begins in it.
    start: usize,
    /// Bytes that are filled.
    length: usize,
    /// Offset in the file.
    offset: u64,
}

impl Piece {
    /// Of so many bytes, which are whole pages.
    fn new(bytes: usize) -> Piece {
        let memory = vec![0; bytes + PAGE_SIZE];
        let start = memory.as_ptr().align_offset(PAGE_SIZE).min(PAGE_SIZE);
        Piece { memory, start, length: 0, offset: 0 }
    }

    fn room(&self) -> usize {
        self.memory.len() - PAGE_SIZE - self.length
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// Takes as many bytes as there is room for, if they follow those that are here; returns how many.
    fn fill(&mut self, offset: u64, bytes: &[u8]) -> usize {
        if self.length == 0 {
            self.offset = offset;
        } else if self.offset + self.length as u64 != offset {
            return 0;
        }
        let taken = bytes.len().min(self.room());
        let from = self.start + self.length;
        self.memory[from..from + taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
        taken
    }
}

/// Writes pages to their places, in the order in which they come.
#[derive(Debug)]
pub struct PageStream {
    open: Piece,
    full: Option<SyncSender<Piece>>,
    empty: Receiver<Piece>,
    writer: Option<JoinHandle<io::Result<()>>>,
    path: Arc<Path>,
}

impl PageStream {
    /// Into this file, with so much memory.
    pub fn begin(path: &Path, memory: usize) -> Result<PageStream, Failure> {
        let piece_bytes = (memory / PIECES).max(LEAST_BYTES).next_multiple_of(PAGE_SIZE);
        let files = Files::open(path).map_err(|error| Failure::write(path, &error))?;
        let (full, pieces) = sync_channel::<Piece>(PIECES);
        let (spare, empty) = sync_channel::<Piece>(PIECES);
        for _ in 1..PIECES {
            // There is room for all of them.
            let _ = spare.send(Piece::new(piece_bytes));
        }
        let write = move || {
            let mut files = files;
            let mut result = Ok(());
            for mut piece in pieces {
                if result.is_ok() {
                    result = files.write(piece.offset, piece.bytes());
                }
                // Behind an error pieces are thrown away, so that nobody waits.
                piece.length = 0;
                if result.is_err() || spare.send(piece).is_err() {
                    break;
                }
            }
            result
        };
        let writer = std::thread::Builder::new().name("write".to_owned()).spawn(write);
        let writer = writer.map_err(|error| Failure::Internal(format!("cannot start a thread: {error}")))?;
        Ok(PageStream {
            open: Piece::new(piece_bytes),
            full: Some(full),
            empty,
            writer: Some(writer),
            path: path.into(),
        })
    }

    /// Adds the pages of a run.
    pub fn push(&mut self, run: &PlacedRun) -> Result<(), Failure> {
        for (mut offset, mut bytes) in run.pieces() {
            while !bytes.is_empty() {
                let taken = self.open.fill(offset, bytes);
                offset += taken as u64;
                bytes = &bytes[taken..];
                if taken == 0 || self.open.room() == 0 {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let Ok(empty) = self.empty.recv() else { return self.ended() };
        let full = std::mem::replace(&mut self.open, empty);
        match &self.full {
            Some(sender) if sender.send(full).is_ok() => Ok(()),
            _ => self.ended(),
        }
    }

    /// Waits until all pages are written.
    pub fn finish(mut self) -> Result<(), Failure> {
        if self.open.length > 0 {
            self.flush()?;
        }
        self.ended()
    }

    /// The writing thread's last word.
    fn ended(&mut self) -> Result<(), Failure> {
        self.full = None;
        let Some(writer) = self.writer.take() else {
            return Err(Failure::Internal("the output is written by nobody".to_owned()));
        };
        match writer.join() {
            Ok(result) => result.map_err(|error| Failure::write(&self.path, &error)),
            Err(_) => Err(Failure::Internal("the thread that writes the output panicked".to_owned())),
        }
    }
}

/// The file, opened twice.
struct Files {
    cached: File,
    /// Past the page cache, where the file system can.
    direct: Option<File>,
}

impl Files {
    fn open(path: &Path) -> io::Result<Files> {
        let direct = File::options().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok();
        Ok(Files { cached: File::options().write(true).open(path)?, direct })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match direct.write_all_at(bytes, offset) {
                // The device wants other limits than pages: as before, through the cache.
                Err(error) if error.kind() == ErrorKind::InvalidInput => self.direct = None,
                done => return done,
            }
        }
        self.cached.write_all_at(bytes, offset)
    }
}
