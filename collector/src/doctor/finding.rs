//! The result of a check of the doctor.

use std::fmt::Display;

/// Result of a check.
pub(super) enum CheckFinding {
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

impl CheckFinding {
    /// A problem and its next step.
    pub(super) fn problem(what: impl Display, next: &str) -> CheckFinding {
        CheckFinding::Problem { what: what.to_string(), next: next.to_owned() }
    }
}
