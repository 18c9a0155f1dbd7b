//! Reads the memory of another process, which continues meanwhile.
//!
//! `/proc/PID/mem` needs the same right as `process_vm_readv`, and no unsafe code.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Why bytes cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// There is no memory at the address: the process has changed it meanwhile, or it is no address.
    #[error("no memory at its address")]
    NotMapped,
    /// The process has ended, or runs another program.
    #[error("the process has ended")]
    Ended,
}

/// The memory of a process.
#[derive(Debug)]
pub(super) struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens the memory of a process as it is until the process runs another program.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open(pid: i32) -> io::Result<ProcessMemory> {
        File::open(format!("/proc/{pid}/mem")).map(ProcessMemory)
    }

    /// Fills a buffer from an address.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let from = address.checked_add(filled as u64).ok_or(ReadError::NotMapped)?;
            match self.0.read_at(rest, from) {
                Ok(0) => return Err(ReadError::Ended),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                    return Err(ReadError::Ended);
                }
                Err(_) => return Err(ReadError::NotMapped),
            }
        }
        Ok(())
    }

    /// Reads a 64-bit number or address.
    pub(super) fn u64_at(&self, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Returns the 64-bit number at a place in bytes that were read.
pub(super) fn u64_in(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// Returns the `int` at a place in bytes that were read.
pub(super) fn i32_in(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// The last bytes that were read, from which neighbours are taken without another read: from 3.11 on, the frames of a
/// thread lie beside each other, callers at lower addresses.
#[derive(Debug)]
pub(super) struct MemoryWindow {
    start: u64,
    bytes: Vec<u8>,
    /// Maximum number of bytes that are read below a wanted address.
    below: usize,
}

impl MemoryWindow {
    pub(super) fn new(below: usize) -> MemoryWindow {
        MemoryWindow { start: 0, bytes: Vec::new(), below }
    }

    /// Forgets the bytes, which have changed since.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns bytes from an address.
    pub(super) fn bytes(
        &mut self,
        memory: &ProcessMemory,
        address: u64,
        length: usize,
    ) -> Result<&[u8], ReadError> {
        if !self.has(address, length) {
            self.fill(memory, address, length)?;
        }
        let from = address.wrapping_sub(self.start) as usize;
        self.bytes.get(from..).and_then(|rest| rest.get(..length)).ok_or(ReadError::NotMapped)
    }

    fn has(&self, address: u64, length: usize) -> bool {
        let end = address.checked_sub(self.start).and_then(|from| from.checked_add(length as u64));
        end.is_some_and(|end| end <= self.bytes.len() as u64)
    }

    fn fill(&mut self, memory: &ProcessMemory, address: u64, length: usize) -> Result<(), ReadError> {
        let below = (self.below as u64).min(address) as usize;
        for below in [below, 0] {
            self.start = address - below as u64;
            self.bytes.resize(below + length, 0);
            match memory.read(self.start, &mut self.bytes) {
                Ok(()) => return Ok(()),
                Err(ReadError::NotMapped) if below > 0 => {}
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_other_addresses_are_errors() {
        let memory = ProcessMemory::open(std::process::id() as i32).unwrap();
        let known: Vec<u8> = (0..=255).collect();
        let address = known.as_ptr() as u64;
        let mut window = MemoryWindow::new(64);
        for at in [200, 190, 150, 10, 240] {
            assert_eq!(window.bytes(&memory, address + at, 8).unwrap(), &known[at as usize..][..8]);
        }
        assert_eq!(memory.u64_at(8), Err(ReadError::NotMapped));
        assert_eq!(memory.u64_at(u64::MAX - 3), Err(ReadError::NotMapped));
        assert_eq!(window.bytes(&memory, 16, 8), Err(ReadError::NotMapped));
        assert_eq!(window.bytes(&memory, u64::MAX - 3, 8), Err(ReadError::NotMapped));
    }
}
