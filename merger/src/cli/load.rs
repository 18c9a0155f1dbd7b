//! The options of a call: what is typed, variables of the environment, and files.

use super::{CommandLine, MergeArgs};
use crate::job_user::become_job_user;
use clap::{CommandFactory, FromArgMatches};
use rpd_configs::{LayeredSettings, Program, Setting, site_file};
use rpd_console::Exit;
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// The table of our options in a file.
pub(super) const TABLE: &str = "merge";
/// Names a file, like `--config`.
const CONFIG: &str = "RPD_CONFIG";
/// Options that a variable may say, too: what differs between machines and steps of a job.
const VARIABLES: [(&str, &str); 5] = [
    ("align", "RPD_MERGE_ALIGN"),
    ("memory", "RPD_MERGE_MEMORY"),
    // As rpd-collect's: a job that says it once means both.
    ("share", "RPD_SHARE"),
    ("threads", "RPD_MERGE_THREADS"),
    ("wait", "RPD_MERGE_WAIT"),
];
/// Options about a single call.
const TYPED_ONLY: [&str; 5] = ["config", "print-config", "output", "open", "serve"];

/// Options that do not all go together. What is for databases alone gives way to what is for traces alone.
const ABOUT_THE_OUTPUT: [&str; 15] = [
    "verify",
    "layout",
    "dry-run",
    "max-file-size",
    "no-annotations",
    "group-by-queue",
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

/// Those of them that say more of a trace, and mean nothing where none is drawn.
const DETAILS: [&str; 6] =
    ["max-file-size", "no-annotations", "group-by-queue", "exclude", "ranks", "window"];

/// A call of rpd-merge.
#[derive(Clone, Debug)]
pub struct ProgramCall {
    /// What counts.
    pub cli: CommandLine,
    warnings: Vec<String>,
    settings: Option<LayeredSettings>,
}

impl ProgramCall {
    /// Reads the options. A mistake in them or in a file that is named ends the process, as do `--help` and
    /// `--version`.
    pub fn load(arguments: impl Iterator<Item = OsString>) -> ProgramCall {
        let mut command = CommandLine::command();
        // Only then groups of options have their members.
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
            // As rpd-collect does: the variable may be older than this call.
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
        let together = settings.reconcile(&ABOUT_THE_OUTPUT, &DETAILS, |arguments| {
            let cli = parse(arguments.to_vec()).map_err(|error| error.kind().to_string())?;
            cli.merge.check().map_err(|failure| failure.to_string())
        });
        warnings.extend(settings.warnings.iter().chain(&settings.unread_variables).cloned());
        let note = |locked: &Setting| format!("note: --{} is {}", locked.key, locked.origin);
        let cli = parse(settings.with_variables()).unwrap_or_else(|error| {
            // What was typed went well: it does not go together with what the site has locked.
            settings.locked().for_each(|locked| eprintln!("{}", note(locked)));
            error.exit()
        });
        if cli.merge.epilog {
            become_user(&cli.merge);
        }
        if together.is_err() {
            let is_about_it = |locked: &&Setting| ABOUT_THE_OUTPUT.contains(&locked.key.as_str());
            warnings.extend(settings.locked().filter(is_about_it).map(note));
        }
        ProgramCall { cli, warnings, settings: Some(settings) }
    }

    /// Tells what is not as somebody wanted it. Returns an exit code if that is all there is to do.
    pub fn tell(&self) -> Option<Exit> {
        self.warnings.iter().for_each(|line| eprintln!("{line}"));
        let settings = self.settings.as_ref().filter(|_| self.cli.merge.print_config)?;
        match std::io::stdout().write_all(settings.show(TABLE).as_bytes()) {
            Ok(()) => Some(Exit::Ok),
            Err(_) => Some(Exit::Output),
        }
    }
}
