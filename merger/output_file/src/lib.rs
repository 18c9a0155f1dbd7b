//! Output files of the merger's programs.
//!
//! While an output is written, it has another name and is locked ([`OutputLock`]). [`InterruptWatch`] removes
//! unfinished outputs when a signal ends the program. [`OutputShare`] determines the readers of the finished file.

use rpd_console::Failure;
use std::path::Path;

mod interrupt;
mod lock;
mod share;

pub use interrupt::{
    InterruptWatch, UnfinishedOutput, keep_on_interrupt, make_removed_on_interrupt, remove_on_interrupt,
    remove_unfinished,
};
pub use lock::OutputLock;
pub use share::OutputShare;

/// Rejects a path that is not UTF-8, because other merge ranks receive it as text and outputs contain it.
///
/// # Errors
/// With exit code [`Exit::Output`](rpd_console::Exit::Output).
pub fn require_utf8(output: &Path) -> Result<(), Failure> {
    let failure =
        || Failure::output(format!("{output:?}: this name is not UTF-8; choose another one with -o"));
    output.to_str().map(drop).ok_or_else(failure)
}
