//! The file of a shard: when bytes are written, and what happens when the disk is full.
//!
//! Bytes are buffered only here, so that the number of bytes in the file is known. After the first error no
//! block is written; rows are counted. The end (ledger, index and trailer) is then written after the last
//! whole block. If there is no room for it, it replaces the last blocks: a full disk or quota still accepts
//! data in blocks that the file already has.

use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::record::RunIdentity;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of one write, unless a flush comes first.
const WRITE_BYTES: usize = 1 << 20;

/// Storage for the bytes. Tests use one that can be full.
pub(super) trait ShardDisk {
    /// Writes some of the bytes, as `pwrite(2)` does.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Truncates the file, as `ftruncate(2)` does.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Syncs the data, as `fdatasync(2)` does.
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
    /// Number of bytes in the file.
    reached: u64,
}

/// Whether a shard is complete.
pub(super) enum ShardCompletion {
    /// The shard has its ledger, index and trailer.
    Complete,
    /// The shard ends after its last whole block, as after a kill. Holds the remaining bytes.
    Cut(u64, WriteError),
}

impl<D: ShardDisk> ShardFile<D> {
    /// Begins a shard of at most `max_bytes`. Writes nothing yet.
    pub(super) fn new(disk: D, run: &RunIdentity, most_bytes: u64) -> Result<ShardFile<D>, WriteError> {
        let mut writer = ShardWriter::new(Vec::new(), run)?;
        writer.set_limit(most_bytes);
        Ok(ShardFile { disk, writer, most_bytes, reached: 0 })
    }

    /// Writes the buffer if it is large enough.
    pub(super) fn write_if_much(&mut self) -> Result<(), WriteError> {
        if self.writer.unwritten().1.len() < WRITE_BYTES { Ok(()) } else { self.write() }
    }

    /// Writes the whole buffer.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = self.writer.flush();
        self.write().and(flushed)
    }

    /// Returns the disk and drops the buffer.
    pub(super) fn into_disk(self) -> D {
        self.disk
    }

    /// Syncs what was written.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    /// Stops writing rows: from now on they are only counted.
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

    /// Ends the shard. Counts what cannot be written.
    pub(super) fn finish(mut self) -> (D, ShardCompletion) {
        let _ = self.flush();
        let ended = match self.end() {
            Ok(()) => ShardCompletion::Complete,
            Err(error) => {
                self.writer.stop(self.reached);
                let whole = self.writer.bytes_written();
                // If this fails too, a reader reports everything after the last whole block as damage.
                let _ = self.disk.cut(whole);
                ShardCompletion::Cut(whole, error)
            }
        };
        (self.disk, ended)
    }

    /// Writes ledger, index and trailer after the last block. If that fails, writes them over the last blocks,
    /// or, on file systems that never overwrite in place, into the space that these free.
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

/// Writes all bytes and tracks the length of the file.
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
