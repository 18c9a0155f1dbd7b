//! The beginning of a file, decompressed if it is gzip.

use flate2::read::MultiGzDecoder;
use rpd_files::read_head;
use std::io::{self, Read};
use std::path::Path;

/// Maximum bytes that are read, and maximum bytes after decompression.
const HEAD_BYTES: usize = 64 << 10;
const GZIP: &[u8] = b"\x1f\x8b";

/// The first 64 KiB of a file.
pub(crate) struct FileHead {
    pub(crate) bytes: Vec<u8>,
    /// Whether these are all bytes of the file.
    pub(crate) is_whole: bool,
}

impl FileHead {
    /// Reads the beginning of a file as it is.
    pub(crate) fn read(path: &Path) -> io::Result<FileHead> {
        let bytes = read_head(path, HEAD_BYTES as u64)?;
        Ok(FileHead { is_whole: bytes.len() < HEAD_BYTES, bytes })
    }

    /// Reads the beginning of a file and decompresses it if it is gzip. If a compressed file is truncated or
    /// damaged, the result ends there.
    pub(crate) fn unpacked(path: &Path) -> io::Result<FileHead> {
        let packed = FileHead::read(path)?;
        if !packed.bytes.starts_with(GZIP) {
            return Ok(packed);
        }
        let mut head = FileHead { bytes: Vec::new(), is_whole: true };
        let mut unpacked = MultiGzDecoder::new(&packed.bytes[..]).take(HEAD_BYTES as u64);
        let read = unpacked.read_to_end(&mut head.bytes);
        // If the file has more compressed bytes than were read, an early end is not the end of the file.
        let goes_on =
            !packed.is_whole && read.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        head.is_whole = head.bytes.len() < HEAD_BYTES && !goes_on;
        Ok(head)
    }

    /// Returns whether the head is empty or has only zero bytes.
    pub(crate) fn is_blank(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    pub(crate) fn has(&self, word: &[u8]) -> bool {
        self.bytes.windows(word.len()).any(|found| found == word)
    }
}
