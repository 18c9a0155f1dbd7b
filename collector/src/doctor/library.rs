//! Checks the library, and the socket between it and the collector.

use super::finding::CheckFinding;
use crate::child;
use crate::child::preload;
use crate::child::program::ProgramFile;
use crate::drain::RingListener;
use rustix::fs::{Access, access};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program on every system that does nothing.
const HARMLESS: &str = "/bin/true";

/// Checks whether the library is found and loads into the command.
pub(super) fn check(command: Option<&OsStr>, program: Option<&ProgramFile>) -> Vec<CheckFinding> {
    let library = match preload::library_of_this_process() {
        Ok(library) => library,
        Err(error) => return vec![CheckFinding::problem(error, "until then, nothing is recorded")],
    };
    let path_text = library.display();
    let mut findings = vec![match loads(&library) {
        Ok(()) => CheckFinding::Ok(format!("{path_text} loads")),
        Err(error) => CheckFinding::problem(
            format!("{path_text} does not load: {error}"),
            "install the library of this system",
        ),
    }];
    if let Some(file) = command.and_then(child::find)
        && access(&file, Access::EXEC_OK).is_err()
    {
        let what = format!("{} cannot be executed: permission denied", file.display());
        findings.push(CheckFinding::problem(what, "make it executable, or give its interpreter before it"));
        return findings;
    }
    let next = "what it calls is not recorded; trace the program that it starts, or link it dynamically";
    if let Some((what, next)) = program.and_then(ProgramFile::unseen) {
        findings.push(CheckFinding::problem(what, next));
        return findings;
    }
    match program {
        // The command is a loader that is started with the name of a program.
        None | Some(ProgramFile::Static(_)) => {}
        Some(ProgramFile::Missing(name)) => {
            let name = name.to_string_lossy();
            findings.push(CheckFinding::problem(
                format!("{name} is not found"),
                "correct the command, or load its module",
            ));
        }
        Some(ProgramFile::Foreign(path)) => {
            let what = format!("{} is not a program for this kind of machine", path.display());
            findings.push(CheckFinding::problem(what, next));
        }
        Some(ProgramFile::Unreadable(path)) => findings.push(CheckFinding::Note(format!(
            "{} is not readable, so that it is not known whether it takes it",
            path.display()
        ))),
        Some(ProgramFile::Dynamic { path, loader, .. }) => {
            findings.push(match needed(path, loader, Some(&library)) {
                Ok(list) if list.lines().any(|line| line.contains(preload::LIBRARY)) => {
                    CheckFinding::Ok(format!("{} takes it", path.display()))
                }
                Ok(_) => CheckFinding::Note(format!(
                    "whether {} takes it cannot be seen from here",
                    path.display()
                )),
                Err(error) => CheckFinding::problem(
                    format!("{}: {error}", path.display()),
                    "see `ldd` for what it lacks",
                ),
            })
        }
    }
    findings
}

/// Loads the library into a program that does nothing.
fn loads(library: &Path) -> Result<(), String> {
    let mut command = Command::new(HARMLESS);
    command.env("LD_PRELOAD", library).env_remove("RPD_SOCKET").stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{HARMLESS}: {error}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    match error.lines().next() {
        Some(line) => Err(line.to_owned()),
        None if output.status.success() => Ok(()),
        None => Err(format!("{HARMLESS}: {}", output.status)),
    }
}

/// The libraries that a program gets, as its loader lists them without running it.
pub(super) fn needed(program: &Path, loader: &Path, library: Option<&Path>) -> Result<String, String> {
    // Only this loader is known to list libraries instead of running the program.
    let name = loader.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("ld-linux") && !name.starts_with("ld64") {
        return Ok(String::new());
    }
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).stdin(Stdio::null());
    match library {
        Some(library) => {
            let before = std::env::var_os("LD_PRELOAD");
            command.env("LD_PRELOAD", preload::with_library(before.as_deref(), library));
        }
        None => drop(command.env_remove("LD_PRELOAD")),
    }
    let output = command.output().map_err(|error| format!("{}: {error}", loader.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    match error.lines().next() {
        Some(line) => Err(line.to_owned()),
        None => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
    }
}

/// Checks whether a process of this node can reach a collector.
pub(super) fn socket(random: u128) -> [CheckFinding; 1] {
    let next = "abstract Unix sockets have to be allowed; a seccomp or AppArmor profile may forbid them";
    let try_out = || {
        let (_listening, name) = RingListener::bind(random)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let name = name.strip_prefix('@').unwrap_or(&name);
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        std::io::Result::Ok(())
    };
    [match try_out() {
        Ok(()) => CheckFinding::Ok("opens, and takes connections".to_owned()),
        Err(error) => {
            CheckFinding::problem(format!("failed to connect to a socket of our own: {error}"), next)
        }
    }]
}
