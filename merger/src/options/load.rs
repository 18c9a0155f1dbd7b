//! Options of a program call, from the command line, environment variables and files.

use super::{CommandLine, MergeArgs};
use crate::job_user::become_job_user;
use clap::{CommandFactory, FromArgMatches};
use rpd_configs::{LayeredSettings, Program, Setting, site_file};
use rpd_console::Exit;
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// Name of the table for rpd-merge's options in a configuration file.
pub(super) const TABLE: &str = "merge";
/// Environment variable that names a file, like `--config`.
const CONFIG: &str = "RPD_CONFIG";
/// Options that environment variables can set, too. They may differ between machines and steps of a job.
const VARIABLES: [(&str, &str); 5] = [
    ("align", "RPD_MERGE_ALIGN"),
    ("memory", "RPD_MERGE_MEMORY"),
    // Shared with rpd-collect, so that a job sets it once for both programs.
    ("share", "RPD_SHARE"),
    ("threads", "RPD_MERGE_THREADS"),
    ("wait", "RPD_MERGE_WAIT"),
];
/// Options that apply to a single call only.
const TYPED_ONLY: [&str; 5] = ["config", "print-config", "output", "open", "serve"];

/// Options that can contradict each other. Options for databases only are dropped in favour of options for traces
/// only.
const ABOUT_THE_OUTPUT: [&str; 16] = [
    "verify",
    "layout",
    "dry-run",
    "max-file-size",
    "no-annotations",
    "group-by-queue",
    "tracks",
    "exclude",
    "ranks",
    "window",
    "split",
    "split-by-size",
    "split-by-events",
    "split-by-time",
    "format",
    "epilog",
];

/// Those of these options that refine a trace, and have no effect if none is drawn.
const DETAILS: [&str; 7] =
    ["max-file-size", "no-annotations", "group-by-queue", "tracks", "exclude", "ranks", "window"];

/// A call of rpd-merge.
#[derive(Clone, Debug)]
pub struct ProgramCall {
    /// The effective options.
    pub cli: CommandLine,
    warnings: Vec<String>,
    settings: Option<LayeredSettings>,
}

impl ProgramCall {
    /// Reads the options. An error in them or in a named file ends the process; so do `--help` and `--version`.
    pub fn load(arguments: impl Iterator<Item = OsString>) -> ProgramCall {
        let mut command = CommandLine::command();
        // Option groups contain their members only after this call.
        command.build();
        let matches = command.clone().get_matches_from(arguments);
        let typed = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if typed.command.is_some() {
            return ProgramCall { cli: typed, warnings: Vec::new(), settings: None };
        }
        // Must precede every read of a file of the user.
        let become_user = |merge: &MergeArgs| {
            become_job_user(&merge.inputs).unwrap_or_else(|failure| {
                eprintln!("error: {failure}");
                std::process::exit(failure.exit() as i32);
            });
        };
        if typed.merge.epilog {
            become_user(&typed.merge);
        }
        let program = Program {
            table: TABLE,
            command: command.clone(),
            variables: &VARIABLES,
            typed_only: &TYPED_ONLY,
        };
        let by_variable = std::env::var_os(CONFIG).filter(|name| !name.is_empty());
        let site = site_file();
        let layered = |named: Option<&OsStr>| {
            program.layered(&matches, named, site.as_deref(), |name| std::env::var_os(name))
        };
        let mut warnings = Vec::new();
        let layered = match (&typed.merge.config, &by_variable) {
            (Some(named), _) => layered(Some(named.as_os_str())),
            // As in rpd-collect, an error here is only a warning: the variable may be older than this call.
            (None, Some(named)) => layered(Some(named)).or_else(|error| {
                warnings.push(format!("warning: {CONFIG}: {error}; it is left aside"));
                layered(None)
            }),
            (None, None) => layered(None),
        };
        let mut settings = layered.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(Exit::Usage as i32);
        });
        let parse = |arguments: Vec<OsString>| {
            let matches = command.clone().try_get_matches_from(arguments);
            matches.and_then(|matches| CommandLine::from_arg_matches(&matches))
        };
        let reconciled = settings.reconcile(&ABOUT_THE_OUTPUT, &DETAILS, |arguments| {
            let cli = parse(arguments.to_vec()).map_err(|error| error.kind().to_string())?;
            cli.merge.check().map_err(|failure| failure.to_string())
        });
        warnings.extend(settings.warnings.iter().chain(&settings.unread_variables).cloned());
        let note = |locked: &Setting| format!("note: --{} is {}", locked.key, locked.origin);
        let cli = parse(settings.with_variables()).unwrap_or_else(|error| {
            // The command line alone is valid, but contradicts options that the site has locked.
            settings.locked().for_each(|locked| eprintln!("{}", note(locked)));
            error.exit()
        });
        if cli.merge.epilog {
            become_user(&cli.merge);
        }
        if reconciled.is_err() {
            let is_about_it = |locked: &&Setting| ABOUT_THE_OUTPUT.contains(&locked.key.as_str());
            warnings.extend(settings.locked().filter(is_about_it).map(note));
        }
        ProgramCall { cli, warnings, settings: Some(settings) }
    }

    /// Prints the warnings about options, and with `--print-config` the options. Returns an exit code if nothing else
    /// is to be done.
    pub fn print_messages(&self) -> Option<Exit> {
        self.warnings.iter().for_each(|line| eprintln!("{line}"));
        let settings = self.settings.as_ref().filter(|_| self.cli.merge.print_config)?;
        match std::io::stdout().write_all(settings.show(TABLE).as_bytes()) {
            Ok(()) => Some(Exit::Ok),
            Err(_) => Some(Exit::Output),
        }
    }
}
