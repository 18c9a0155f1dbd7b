//! Whether this process may open another file.

use rustix::io::Errno;
use std::fs::File;

/// Returns whether no file can be opened now because the limit of this process or of the system is reached.
pub(crate) fn are_exhausted() -> bool {
    let error = File::open("/dev/null").err().and_then(|error| error.raw_os_error());
    error.is_some_and(|error| [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&error))
}
