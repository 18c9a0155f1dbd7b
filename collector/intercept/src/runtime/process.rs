//! Reads facts about this process from `/proc`. Uses only system calls and its own memory: the caller may be
//! inside an allocator or a signal handler.

use rpd_ring::header::ThreadName;
use std::ffi::CStr;

/// Reads a file of `/proc` into `place`. Returns the number of bytes.
pub(crate) fn read(path: &CStr, place: &mut [u8]) -> usize {
    // SAFETY: a valid path; the descriptor is closed below. It is read from only, so it does no harm where
    // the program has no standard streams.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return 0;
    }
    let mut used = 0;
    while let Some(rest) = place.get_mut(used..).filter(|rest| !rest.is_empty()) {
        // SAFETY: `rest` is valid for its length.
        let got = unsafe { libc::read(file, rest.as_mut_ptr().cast(), rest.len()) };
        match usize::try_from(got) {
            Ok(0) | Err(_) => break,
            Ok(got) => used += got,
        }
    }
    // SAFETY: opened above and used by nobody else.
    unsafe { libc::close(file) };
    used
}

/// Returns the start of the process, clock ticks since boot: field 22 of `/proc/self/stat`.
pub(crate) fn start_ticks() -> u64 {
    let mut place = [0u8; 1024];
    let used = read(c"/proc/self/stat", &mut place);
    let text = place.get(..used).unwrap_or_default();
    // The command in parentheses may contain any character, so the fields are counted from its end.
    let after = text.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
    let mut fields = text.get(after..).unwrap_or_default().split(|b| *b == b' ').filter(|f| !f.is_empty());
    fields.nth(19).and_then(|field| std::str::from_utf8(field).ok()?.parse().ok()).unwrap_or(0)
}

/// Returns the inode of the time namespace, 0 if the kernel has none.
pub(crate) fn time_namespace() -> u64 {
    // SAFETY: `stat` is plain data and a valid place for the result.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::stat(c"/proc/self/ns/time".as_ptr(), &raw mut stat) {
            0 => stat.st_ino,
            _ => 0,
        }
    }
}

/// Permits a process to read the memory of this one where Yama restricts that to parents. A child of fork(2) has no such
/// permission until it gives one itself.
pub(crate) fn permit_tracer(pid: usize) {
    // SAFETY: the system call takes a number and changes no memory. It fails without Yama, which needs no permission.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0) };
}

/// Returns the system's name of the calling thread.
pub(crate) fn thread_name() -> ThreadName {
    let mut name = ThreadName::default();
    // SAFETY: PR_GET_NAME writes 16 bytes at most, and there are 64.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.0.as_mut_ptr()) };
    name
}

/// Returns the id of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}
