//! The options of a call: what is typed, variables of the environment, and files.

use super::trace::SPLITS;
use super::{Cli, Layout, MergeArgs};
use crate::failure::Exit;
use clap::{CommandFactory, FromArgMatches};
use rpd_configs::{Layered, Origin, Program, site_file};
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// The table of our options in a file.
pub const TABLE: &str = "merge";
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

/// A call of rpd-merge.
#[derive(Clone, Debug)]
pub struct Call {
    /// What counts.
    pub cli: Cli,
    warnings: Vec<String>,
    settings: Option<Layered>,
}

impl Call {
    /// Reads the options. A mistake in them or in a file that is named ends the process, as do `--help` and
    /// `--version`.
    pub fn load(arguments: impl Iterator<Item = OsString>) -> Call {
        let mut command = Cli::command();
        // Only then groups of options have their members.
        command.build();
        let matches = command.clone().get_matches_from(arguments);
        let typed = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if typed.command.is_some() {
            return Call { cli: typed, warnings: Vec::new(), settings: None };
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
        let settings = layered.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(Exit::Usage as i32);
        });
        warnings.extend(settings.warnings.iter().cloned());
        let cli = command
            .try_get_matches_from(settings.with_variables())
            .and_then(|matches| Cli::from_arg_matches(&matches))
            .unwrap_or_else(|error| {
                // What was typed went well: it does not go together with what the site has locked.
                settings.locked().for_each(|locked| eprintln!("note: --{} is {}", locked.key, locked.origin));
                error.exit()
            });
        let mut cli = cli;
        together(&mut cli.merge, &settings, &mut warnings);
        Call { cli, warnings, settings: Some(settings) }
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

/// Options of traces in a file are for calls that draw, and no fault of those that do not; and a format in a file is none of calls that
/// split. What was typed is left as it is.
fn together(args: &mut MergeArgs, settings: &Layered, warnings: &mut Vec<String>) {
    let is_typed = |key: &str| *settings.origin(key) == Origin::Typed;
    if args.trace_order().is_ok() {
        return;
    }
    let is_locked = matches!(settings.origin("format"), Origin::Locked(..));
    if !is_typed("format") && !is_locked && (args.trace.is_opened() || SPLITS.iter().any(|key| is_typed(key)))
    {
        let origin = settings.origin("format");
        warnings.push(format!("warning: --format ({origin}) is left out: what is typed is for a trace"));
        args.format = None;
    }
    if args.trace_order().is_err() {
        for key in SPLITS.iter().filter(|key| *settings.origin(key) != Origin::Default && !is_typed(key)) {
            let origin = settings.origin(key);
            warnings.push(format!("warning: --{key} ({origin}) is left out: this is no trace"));
        }
        args.trace.leave_out(is_typed);
    }
    // These are for databases, and a trace is wanted.
    let of_databases = [("verify", args.verify), ("layout", args.layout != Layout::default())];
    for (key, _) in of_databases.into_iter().filter(|(key, given)| *given && !is_typed(key)) {
        if args.trace_order().is_ok() {
            return;
        }
        warnings
            .push(format!("warning: --{key} ({}) is left out: it is for databases", settings.origin(key)));
        match key {
            "verify" => args.verify = false,
            _ => args.layout = Layout::default(),
        }
    }
}
