use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Where a shard's bytes are.
///
/// Files are read by position and never mapped: a shard that is cut while it is read is an error here,
/// where a mapping would be a SIGBUS.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// A file, with the length that it had when it was opened.
    File(Arc<File>, u64),
    /// Memory.
    Memory(Arc<[u8]>),
}

impl Bytes {
    /// The bytes of an open file.
    pub fn from_file(file: File) -> io::Result<Bytes> {
        let length = file.metadata()?.len();
        Ok(Bytes::File(Arc::new(file), length))
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Bytes::File(_, length) => *length,
            Bytes::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly `length` bytes from `offset` on. The caller bounds `length`.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self {
            Bytes::File(file, _) => {
                let mut out = vec![0; length];
                file.read_exact_at(&mut out, offset)?;
                Ok(out)
            }
            Bytes::Memory(bytes) => Ok(bytes[offset as usize..offset as usize + length].to_vec()),
        }
    }
}
