//! Starts a program with signals ignored, so that an early signal of the batch system does not end it, unless
//! it installs a handler.

use super::{find, first_line_of_script};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

/// In place of a wrapper: starts the program without ignoring signals.
pub(crate) const NO_WRAPPER: &str = "plain";
/// The user or the collector sets it for a profiler. The wrapper that only starts the program must not be
/// profiled.
const PRELOAD: &str = "LD_PRELOAD";
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish"];

/// Returns the wrapper that can ignore signals, given as `USR1 USR2`. Prefers `env` of coreutils 8.31 and
/// later, which leaves the environment unchanged. A shell may drop variables that it could not set itself,
/// such as functions that bash exported.
pub(crate) fn choose_wrapper(signals: &str) -> &'static str {
    let mut env = Command::new("env");
    env.args([option(signals).as_str(), "true"]).env_remove(PRELOAD);
    let asked = env.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) { "env" } else { "sh" }
}

fn option(signals: &str) -> String {
    format!("--ignore-signal={}", signals.replace(' ', ","))
}

/// Returns the words that start the command through a wrapper, with the signals ignored. `None` if that
/// does not work.
pub(crate) fn words(wrapper: &OsStr, signals: &str, command: &[OsString]) -> Option<Vec<OsString>> {
    let program = find(command.first()?)?;
    // A shell can never trap a signal that was ignored when it started.
    if is_shell(&program) {
        return None;
    }
    let script = format!("trap '' {signals}; exec \"$@\"");
    let words: Vec<OsString> = match wrapper.to_str() {
        // `env` would take a command with `=` in its name for a variable.
        Some("env") if !command.first()?.as_encoded_bytes().contains(&b'=') => {
            vec!["env".into(), option(signals).into()]
        }
        Some("env" | "sh") if Path::new("/bin/sh").exists() => {
            vec!["/bin/sh".into(), "-c".into(), script.into(), "sh".into()]
        }
        _ => return None,
    };
    Some(words.into_iter().chain(command.iter().cloned()).collect())
}

/// Whether a program is a shell, or a script with the first line `#!/bin/bash`, `#!/usr/bin/env bash` or similar.
fn is_shell(program: &Path) -> bool {
    let is_shell =
        |path: &Path| path.file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell));
    let words = first_line_of_script(program).unwrap_or_default();
    is_shell(program)
        || words.first().is_some_and(|interpreter| is_shell(Path::new(interpreter)))
        || words.iter().any(|word| SHELLS.iter().any(|shell| word == *shell))
}
