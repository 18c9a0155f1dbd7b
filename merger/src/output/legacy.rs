//! Converts the merged database to a `.rpd` for `--format rpd`.

use super::verify::OutputVerification;
use rpd_console::Failure;
use rpd_files::{remove_output, rename_output};
use rpd_legacy::RpdWriteError;
use rpd_rocpd::verify::{check_integrity, table_rows};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Converts the database at `path` to a `.rpd` at `beside`, and moves that to `path`. Replaces a verification of the
/// database by one of the `.rpd`. Returns what a `.rpd` cannot represent.
///
/// # Errors
/// If the `.rpd` cannot be written, or the verification finds a problem.
pub(crate) fn replace_by_rpd(
    path: &Path,
    beside: &Path,
    verification: Option<&mut OutputVerification>,
) -> Result<BTreeMap<String, u64>, Failure> {
    let written = rpd_legacy::write(path, beside).map_err(|error| failure(&error))?;
    if let Some(verification) = verification {
        for (what, count) in &written.rows {
            verification.converted.insert((*what).to_owned(), (count.read, count.written));
        }
        check(beside, verification)?;
    }
    rename_output(beside, path).map_err(|error| {
        let _ = remove_output(beside);
        Failure::write(path, &error)
    })?;
    Ok(written.left_out)
}

/// Verifies the file with SQLite.
fn check(path: &Path, verification: &mut OutputVerification) -> Result<(), Failure> {
    let OutputVerification { problems, contents, .. } = &mut *verification;
    match check_integrity(path) {
        Ok(found) => problems.extend(found.iter().map(|problem| format!("the .rpd: {problem}"))),
        Err(error) => problems.push(format!("the .rpd cannot be read again: {error}")),
    }
    match table_rows(path) {
        Ok(rows) => *contents = rows,
        Err(error) => problems.push(format!("the .rpd cannot be read again: {error}")),
    }
    verification.failure().map_or(Ok(()), |failure| {
        let _ = remove_output(path);
        Err(failure)
    })
}

fn failure(error: &RpdWriteError) -> Failure {
    let cause = error.source().map(ToString::to_string);
    let text = error.to_string();
    let text = match cause.filter(|cause| !text.contains(cause.as_str())) {
        Some(cause) => format!("{text} ({cause})"),
        None => text,
    };
    match error {
        RpdWriteError::NotMerged { .. } | RpdWriteError::Counts { .. } | RpdWriteError::Source(_) => {
            Failure::internal(text)
        }
        _ => Failure::output(text),
    }
}
