//! The shard on its disk: what is written when, and what happens when the disk takes no more.
//!
//! Bytes are buffered here and nowhere else, so that it is known how many are in the file. After the
//! first error nothing is written until the end: rows are counted. Then the end goes behind the last
//! whole block. If there is no room for it, the last blocks are given up and it is written over them:
//! a disk or quota that is full still takes what goes into blocks that the file already has.

use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::record::RunIdentity;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of one write, unless a flush comes first.
const WRITE_BYTES: usize = 1 << 20;

/// Where bytes go. Tests have one that runs full.
pub(super) trait ShardDisk {
    /// Writes a part of the bytes, as `pwrite(2)`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Cuts the file, as `ftruncate(2)`.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Keeps what was written, as `fdatasync(2)`.
    fn sync(&self) -> io::Result<()>;
}

impl ShardDisk for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A shard that is being written.
pub(super) struct ShardFile<D> {
    disk: D,
    pub(super) writer: ShardWriter<Vec<u8>>,
    most_bytes: u64,
    /// Bytes that the file has.
    reached: u64,
}

/// How a shard ended.
pub(super) enum ShardEnding {
    /// Complete.
    Complete,
    /// Cut behind its last whole block, as by a kill. Bytes that are left.
    Cut(u64, WriteError),
}

impl<D: ShardDisk> ShardFile<D> {
    /// Starts a shard of at most so many bytes. Nothing is written yet.
    pub(super) fn new(disk: D, run: &RunIdentity, most_bytes: u64) -> Result<ShardFile<D>, WriteError> {
        let mut writer = ShardWriter::new(Vec::new(), run)?;
        writer.set_limit(most_bytes);
        Ok(ShardFile { disk, writer, most_bytes, reached: 0 })
    }

    /// Writes what is buffered if it is enough.
    pub(super) fn write_if_much(&mut self) -> Result<(), WriteError> {
        if self.writer.unwritten().1.len() < WRITE_BYTES { Ok(()) } else { self.write() }
    }

    /// Writes everything that there is.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = self.writer.flush();
        self.write().and(flushed)
    }

    /// Gives the disk back; what is buffered is dropped.
    pub(super) fn into_disk(self) -> D {
        self.disk
    }

    /// Has the disk keep what is written.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    /// Gives up on more rows: from now on they are counted.
    pub(super) fn stop(&mut self) {
        let _ = self.write();
        self.writer.stop(self.reached);
    }

    fn write(&mut self) -> Result<(), WriteError> {
        let (offset, bytes) = self.writer.unwritten();
        let written = put(&self.disk, bytes, offset, &mut self.reached);
        match written {
            Ok(()) => self.writer.clear(),
            Err(_) => self.writer.stop(self.reached),
        }
        Ok(written?)
    }

    /// Ends the shard. What cannot be written is counted.
    pub(super) fn finish(mut self) -> (D, ShardEnding) {
        let _ = self.flush();
        let ended = match self.end() {
            Ok(()) => ShardEnding::Complete,
            Err(error) => {
                self.writer.stop(self.reached);
                let whole = self.writer.bytes_written();
                // If this fails too, what is behind the last whole block is damage to a reader.
                let _ = self.disk.cut(whole);
                ShardEnding::Cut(whole, error)
            }
        };
        (self.disk, ended)
    }

    /// Writes the end: behind the last block, else over the last ones, else (file systems that never
    /// write in place) in the room that they leave.
    fn end(&mut self) -> Result<(), WriteError> {
        match self.end_within(self.most_bytes, false) {
            Err(WriteError::Io(_)) => {}
            other => return other,
        }
        match self.end_within(self.reached, false) {
            Err(WriteError::Io(_)) => self.end_within(self.reached, true),
            other => other,
        }
    }

    fn end_within(&mut self, room: u64, cut_first: bool) -> Result<(), WriteError> {
        let (offset, end) =
            self.writer.end(room)?.ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        if cut_first {
            self.disk.cut(offset)?;
        }
        put(&self.disk, &end, offset, &mut self.reached)?;
        let length = offset + end.len() as u64;
        if length < self.reached {
            self.disk.cut(length)?;
        }
        Ok(())
    }
}

/// Writes all bytes, and notes how far the file reaches.
fn put(disk: &impl ShardDisk, mut bytes: &[u8], mut offset: u64, reached: &mut u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match disk.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                *reached = (*reached).max(offset);
                bytes = bytes.get(written..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
