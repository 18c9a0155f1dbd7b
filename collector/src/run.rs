//! Interprets the arguments of `rpd-collect` and returns its exit status.

use crate::backend::start;
use crate::command_line::{CollectOptions, LoadedOptions, TABLE, command_alone};
use crate::host::cpus;
use crate::launcher::{LauncherEnvironment, ranks_of_node};
use crate::log::warn;
use crate::session::{self, CommandSession};
use crate::{child, doctor};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;

/// Exit status for invalid options.
const WRONG_OPTIONS: i32 = 2;

/// Runs `rpd-collect` with its arguments, the name of the program first: the parent process, the collector
/// process, the doctor, or what a profiler starts. Ends this process.
pub fn run(arguments: &[OsString]) -> ! {
    let first = arguments.get(1).and_then(|argument| argument.to_str());
    match first {
        Some(session::COLLECT) => std::process::exit(collect()),
        Some(start::START) => std::process::exit(start::main(arguments)),
        Some(start::BELOW) => start::below(arguments).leave(),
        Some(doctor::NAME) => std::process::exit(doctor::main(arguments)),
        _ => {}
    }
    if disabled()
        && let Some(command) = command_alone(arguments)
    {
        std::process::exit(child::replace(&command));
    }
    let loaded = CollectOptions::load(CollectOptions::parser(), arguments, |name| std::env::var_os(name));
    let LoadedOptions { options, mut warnings, settings } = loaded.unwrap_or_else(|error| refuse(&error));
    if options.print_config {
        warnings.iter().for_each(|line| warn(format_args!("{line}")));
        let printed = std::io::stdout().write_all(settings.show(TABLE).as_bytes());
        std::process::exit(i32::from(printed.is_err()));
    }
    options.check().unwrap_or_else(|error| refuse(&error));
    let placement = cpus::placement(options.collector_cpus.as_ref(), settings.origin(cpus::OPTION))
        .unwrap_or_else(|error| refuse(&format_args!("--{}: {error}", cpus::OPTION)));
    warnings.extend(cpus::crowding(ranks_of_node(&LauncherEnvironment::of_this_process())));
    let session = match CommandSession::prepare(&options, placement, warnings) {
        Ok(session) => session,
        Err(error) => session::run_unrecorded(&options, &error),
    };
    session.run(&options.command).leave()
}

/// Ends the process because of an option.
fn refuse(error: &dyn Display) -> ! {
    warn(format_args!("error: {error}"));
    std::process::exit(WRONG_OPTIONS)
}

/// Runs the collector process. Returns its exit status.
fn collect() -> i32 {
    match session::collect() {
        Ok(()) => 0,
        Err(error) => {
            warn(format_args!("{}: {error}", session::COLLECT));
            2
        }
    }
}

/// Whether `RPD_DISABLE` is set to anything but an empty value or 0.
fn disabled() -> bool {
    std::env::var_os("RPD_DISABLE").is_some_and(|value| !value.is_empty() && value != "0")
}
