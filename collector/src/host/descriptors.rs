//! Whether this process may open another file.

use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Returns whether no file can be opened now because the limit of this process or of the system is reached.
pub(crate) fn are_exhausted() -> bool {
    File::open("/dev/null").is_err_and(|error| is_exhaustion(&error))
}

/// Returns whether an error says that the limit of this process or of the system is reached.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| limits.contains(&error))
}
