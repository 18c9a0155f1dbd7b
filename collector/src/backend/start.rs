//! Whether a profiler has started the command.
//!
//! A profiler stands in front of the command and becomes it. If it fails before that, the command has to run without
//! it, and must not run twice. So what the profiler starts is `rpd-collect @start MARK COMMAND...`: it makes the mark,
//! which can be made once, and becomes the command. Who wants to start the command without the profiler makes the mark
//! first: a profiler that comes to it later starts nothing.

use crate::child::replace;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// First argument of what a profiler starts.
pub const START: &str = "@start";
/// Name of the mark in the scratch folder.
const MARK: &str = "started";
/// Made when the mark was there already.
const AGAIN: &str = "again";
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Signals that a batch system sends some time before the end. The profiler writes when the program ends, so they must
/// not end it by themselves: the launcher makes SIGTERM of them.
const EARLY: &str = "USR1 USR2 XCPU";

/// The words that a profiler is given as the command.
pub fn words(scratch: &Path, ends_early: bool) -> Vec<OsString> {
    let executable = std::env::current_exe().unwrap_or_else(|_| "rpd-collect".into());
    let mode = if ends_early { "early" } else { "plain" };
    vec![executable.into(), START.into(), mode.into(), scratch.join(MARK).into()]
}

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish"];

/// Runs as what the profiler starts. Returns the exit status if the command cannot be executed.
pub fn main(arguments: &[OsString]) -> i32 {
    let [_, _, mode, mark, command @ ..] = arguments else { return 2 };
    if claim(Path::new(mark)).is_err() {
        // It was started without the profiler, or before.
        let _ = File::create(Path::new(mark).with_file_name(AGAIN));
        return 0;
    }
    if mode == "early" {
        let shell = Path::new("/bin/sh");
        let program = command.first().and_then(|name| crate::child::find(name));
        // A shell can never trap what was ignored when it began.
        if shell.exists() && program.is_some_and(|program| !is_shell(&program)) {
            use std::os::unix::process::CommandExt;
            let script = format!("trap '' {EARLY}; exec \"$@\"");
            // Only what cannot be executed comes back, and is told below.
            let _ = Command::new(shell).args(["-c", &script, "sh"]).args(command).exec();
        }
    }
    replace(command)
}

/// Whether a program is a shell, or a script for one.
fn is_shell(program: &Path) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell));
    let interpreter = crate::child::interpreter_of(program).unwrap_or_default();
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

fn claim(mark: &Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(mark)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

/// What became of a profiler that was to start the command.
#[derive(Debug)]
pub enum Started {
    /// The command runs, or has run.
    Yes,
    /// It ended before.
    Ended(ExitStatus),
    /// It took too long, and is dead now.
    TooLong,
}

/// Waits until the command runs. What is not [`Started::Yes`] has to be started by the caller, who has the mark now.
pub fn wait(child: &mut Child, scratch: &Path, most: Duration) -> Started {
    let mark = scratch.join(MARK);
    let until = Instant::now() + most;
    loop {
        let ended = child.try_wait().ok().flatten();
        if mark.exists() {
            return Started::Yes;
        }
        if ended.is_none() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        // Whoever makes the mark starts the command.
        if claim(&mark).is_err() {
            return Started::Yes;
        }
        let Some(status) = ended else {
            let _ = child.kill();
            let _ = child.wait();
            return Started::TooLong;
        };
        return Started::Ended(status);
    }
}

/// Whether a profiler came to start the command when it had been started already.
pub fn was_asked_again(scratch: &Path) -> bool {
    scratch.join(AGAIN).exists()
}

/// Process id of the command, as its mark says: a profiler may stay above it.
pub fn pid(scratch: &Path) -> Option<i32> {
    let path: PathBuf = scratch.join(MARK);
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
