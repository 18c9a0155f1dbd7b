//! Errors of inputs that could be read when the merge was planned.

use rpd_console::{Failure, VanishedInput};
use rustix::io::Errno;
use std::error::Error;
use std::io;
use std::path::Path;

/// Converts an error of an input that was readable before. If the system lacks descriptors or memory, the input is
/// not the cause, and a restart would fail as well. The result is then a plain input failure, which does not restart the merge.
pub(crate) fn vanished_input(path: &Path, error: &(dyn Error + 'static)) -> Failure {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let system = cause.downcast_ref::<io::Error>();
    let errno = system.and_then(Errno::from_io_error);
    if errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno)) {
        return Failure::input(format!("{}: {cause}; raise the limit, and merge again", path.display()));
    }
    let reason = cause.to_string();
    Failure::inputs_vanished(vec![VanishedInput {
        path: path.to_owned(),
        is_missing: errno.is_some_and(|errno| [Errno::NOENT, Errno::ACCESS, Errno::STALE].contains(&errno)),
        reason,
        rank: 0,
        rows: None,
    }])
}
