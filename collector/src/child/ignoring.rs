//! Starts a program with signals ignored: what a batch system sends some time before the end does not end it then, unless
//! it has a handler.

use super::{find, interpreter_of};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program is started as ever.
pub(crate) const NO_WAY: &str = "plain";
/// Set for a profiler by the user or by us; who only starts a program is none of those that are profiled.
const PRELOAD: &str = "LD_PRELOAD";
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish"];

/// What can do that for signals, as `USR1 USR2`: `env` of coreutils 8.31 and later, which leaves the environment as it is,
/// else a shell, which may drop what it could not have set: functions that bash has exported.
pub(crate) fn way(signals: &str) -> &'static str {
    let mut env = Command::new("env");
    env.args([option(signals).as_str(), "true"]).env_remove(PRELOAD);
    let asked = env.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) { "env" } else { "sh" }
}

fn option(signals: &str) -> String {
    format!("--ignore-signal={}", signals.replace(' ', ","))
}

/// The words that start the command like that, where it works.
pub(crate) fn words(way: &OsStr, signals: &str, command: &[OsString]) -> Option<Vec<OsString>> {
    let program = find(command.first()?)?;
    // A shell can never trap what was ignored when it began.
    if is_shell(&program) {
        return None;
    }
    let script = format!("trap '' {signals}; exec \"$@\"");
    let words: Vec<OsString> = match way.to_str() {
        // It would take a `=` in the command's name for a variable.
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

/// Whether the first line is `#!/usr/bin/env bash` or the like.
fn is_for_a_shell_by_env(program: &Path) -> bool {
    let mut line = Vec::new();
    let read = File::open(program).and_then(|file| file.take(256).read_to_end(&mut line));
    let text = String::from_utf8_lossy(&line);
    let first = text.lines().next().unwrap_or_default();
    read.is_ok() && first.starts_with("#!") && first.split_whitespace().any(|word| SHELLS.contains(&word))
}
