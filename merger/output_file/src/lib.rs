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

/// Rejects a path that is not UTF-8, because other merge ranks receive it as text and outputs contain it, and `-`, which
/// other programs take for standard output.
///
/// # Errors
/// With exit code [`Exit::Output`](rpd_console::Exit::Output).
pub fn check_output_name(output: &Path) -> Result<(), Failure> {
    match output.to_str() {
        None => {
            Err(Failure::output(format!("{output:?}: this name is not UTF-8; choose another one with -o")))
        }
        Some("-") => Err(Failure::output(
            "-o -: nothing is written to standard output; name a file, or ./- for one of that name"
                .to_owned(),
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_output_has_a_name_of_a_file_in_utf8() {
        for name in ["trace.db", "./-", "a-", "\u{e9}.db"] {
            assert!(check_output_name(Path::new(name)).is_ok(), "{name}");
        }
        for (name, words) in [(&b"-"[..], "standard output"), (b"\xff.db", "not UTF-8")] {
            let failure = check_output_name(Path::new(OsStr::from_bytes(name))).unwrap_err();
            assert!(failure.to_string().contains(words), "{failure}");
        }
    }
}
