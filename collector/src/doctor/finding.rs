//! What a check of the doctor found.

use std::fmt::Display;

/// Result of a check.
pub(super) enum Finding {
    /// No problem.
    Ok(String),
    /// Information.
    Note(String),
    /// A problem.
    Problem {
        /// The problem.
        what: String,
        /// The next step.
        next: String,
    },
}

impl Finding {
    /// A problem and its next step.
    pub(super) fn problem(what: impl Display, next: &str) -> Finding {
        Finding::Problem { what: what.to_string(), next: next.to_owned() }
    }
}
