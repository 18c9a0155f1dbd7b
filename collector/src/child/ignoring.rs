//! Starts a program with signals ignored, so that an early signal of the batch system does not end it, unless
//! it installs a handler.

use super::{find, interpreter_of};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts the program without ignoring signals.
pub(crate) const NO_WAY: &str = "plain";
/// The user or the collector sets it for a profiler. The wrapper that only starts the program must not be
/// profiled.
const PRELOAD: &str = "LD_PRELOAD";
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish"];

/// Returns the program that can ignore signals, given as `USR1 USR2`. Prefers `env` of coreutils 8.31 and
/// later, which leaves the environment unchanged. A shell may drop variables that it could not set itself,
/// such as functions that bash exported.
pub(crate) fn way(signals: &str) -> &'static str {
    let mut env = Command::new("env");
    env.args([option(signals).as_str(), "true"]).env_remove(PRELOAD);
    let asked = env.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) { "env" } else { "sh" }
}

fn option(signals: &str) -> String {
    format!("--ignore-signal={}", signals.replace(' ', ","))
}

/// Returns the words that start the command with the signals ignored. `None` if that does not work.
pub(crate) fn words(way: &OsStr, signals: &str, command: &[OsString]) -> Option<Vec<OsString>> {
    let program = find(command.first()?)?;
    // A shell can never trap a signal that was ignored when it started.
    if is_shell(&program) {
        return None;
    }
    let script = format!("trap '' {signals}; exec \"$@\"");
    let words: Vec<OsString> = match way.to_str() {
        // `env` would take a command whose name contains `=` for a variable.
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

/// Whether a program is a shell, or a script for one.
fn is_shell(program: &Path) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell));
    let interpreter = interpreter_of(program).unwrap_or_default();
    named(program) || named(Path::new(&interpreter)) || is_for_a_shell_by_env(program)
}

/// Whether the first line is `#!/usr/bin/env bash` or similar.
fn is_for_a_shell_by_env(program: &Path) -> bool {
    let mut line = Vec::new();
    let read = File::open(program).and_then(|file| file.take(256).read_to_end(&mut line));
    let text = String::from_utf8_lossy(&line);
    let first = text.lines().next().unwrap_or_default();
    read.is_ok() && first.starts_with("#!") && first.split_whitespace().any(|word| SHELLS.contains(&word))
}
