//! Calls the program.

use serde_json::Value as Json;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program, without variables that change what it does.
pub(crate) fn rpd_report() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpd-report"));
    command.stdin(Stdio::null());
    for name in ["RPD_OUTPUT", "RAYON_NUM_THREADS", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

/// Calls the program, and returns its output.
pub(crate) fn call(arguments: &[&str], input: impl AsRef<OsStr>) -> Output {
    rpd_report().args(arguments).arg(input).output().unwrap()
}

/// Calls the program successfully, and returns what it prints.
pub(crate) fn printed(arguments: &[&str], input: impl AsRef<OsStr>) -> String {
    let output = call(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Calls a subcommand successfully, and returns its object.
pub(crate) fn json(arguments: &[&str], input: &Path) -> Json {
    let text = printed(&[arguments, &["--format", "json", "--quiet"]].concat(), input);
    serde_json::from_str(&text).unwrap()
}
