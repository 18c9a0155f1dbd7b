//! Temporary memory: a thread's stack may be small, and the caller may be inside an allocator.

/// Maps zeroed memory that this process does not share. `None` if there is none.
pub(crate) fn map_private(len: usize) -> Option<*mut libc::c_void> {
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), len, read_write, private, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address)
}

/// Zeroed memory that comes neither from the stack nor from the allocator.
pub(crate) struct ScratchMemory {
    address: *mut libc::c_void,
    len: usize,
}

impl ScratchMemory {
    pub(crate) fn new(len: usize) -> Option<ScratchMemory> {
        map_private(len).map(|address| ScratchMemory { address, len })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped with this length, zeroed, reached through `self` alone, and unmapped only when
        // that is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.len) }
    }
}

impl Drop for ScratchMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length.
        unsafe { libc::munmap(self.address, self.len) };
    }
}
