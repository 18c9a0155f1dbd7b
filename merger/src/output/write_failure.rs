use rpd_console::Failure;
use rpd_rocpd::WriteError;
use std::error::Error;

/// Returns the failure of a merge that cannot write its database, with the message of the system or of SQLite.
pub(crate) fn write_failure(error: WriteError) -> Failure {
    let cause = error.source().map_or(String::new(), |source| format!(" ({source})"));
    Failure::output(format!("{error}{cause}"))
}
