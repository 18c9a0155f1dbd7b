//! Controls what glibc's allocator does with freed memory.

use std::hint::black_box;

/// Makes glibc keep freed memory in the process. Columns of rows are allocated and freed with every block, and glibc
/// would return them to the kernel each time. The first touch of their pages took a seventh of a merge's processor
/// time.
///
/// When glibc frees a separately mapped piece of memory, it serves later pieces of up to its size from its heaps.
/// From then on, it returns only memory beyond twice that size (mallopt(3), `M_MMAP_THRESHOLD`). This function
/// therefore allocates such a piece of `bytes` and frees it untouched. Other allocators are not affected.
pub(crate) fn keep_freed_memory(bytes: usize) {
    let mut piece: Vec<u8> = Vec::new();
    // If even this allocation fails, nothing changes.
    let _ = piece.try_reserve_exact(bytes);
    drop(black_box(piece));
}
