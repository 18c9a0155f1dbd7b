//! `rpd-collect doctor`: checks everything that recording needs, and describes what a run would do.
//!
//! It does not run the command, and leaves no files.

mod backends;
mod finding;
mod folder;
mod library;
mod memory;
mod python;
mod surroundings;

use crate::child::program::ProgramFile;
use crate::command_line::{CollectOptions, LoadedOptions};
use crate::host::random::random;
use crate::launcher::LauncherEnvironment;
use crate::session::{self, SessionIdentity};
use backends::PreparedBackends;
use clap::Command;
use finding::CheckFinding;
use rpd_shard::file::folder_of_ranks;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;

/// First argument that starts the doctor.
pub(crate) const NAME: &str = "doctor";

const HELP: &str = "\
EXAMPLES:
  rpd-collect doctor
  srun -n 1 rpd-collect doctor -o /scratch/traces -- ./simulation

EXIT STATUS:
  0 if there is no problem, 1 if there is one, 2 for invalid options.";

/// Prints the findings one by one.
#[derive(Default)]
struct DoctorReport {
    problems: u32,
}

impl DoctorReport {
    fn print(&mut self, about: &str, findings: impl IntoIterator<Item = CheckFinding>) {
        for finding in findings {
            let (kind, text) = match finding {
                CheckFinding::Ok(text) => ("ok", text),
                CheckFinding::Note(text) => ("note", text),
                CheckFinding::Problem { what, next } => {
                    self.problems += 1;
                    ("problem", format!("{what}; {next}"))
                }
            };
            print_line(format_args!("{kind:8} {about:9} {text}"));
        }
    }
}

/// Ignores a closed stdout: the exit status remains.
fn print_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Runs the checks, prints the findings, and returns the exit status.
pub(crate) fn main(arguments: &[OsString]) -> i32 {
    let loaded =
        CollectOptions::load(parser(), arguments.get(1..).unwrap_or_default(), |name| std::env::var_os(name));
    let LoadedOptions { options, warnings, .. } = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            print_line(format_args!("problem  options   {error}; a run refuses this, and starts no command"));
            return 1;
        }
    };
    let environment = LauncherEnvironment::of_this_process();
    let random = random().unwrap_or_default();
    let identity = SessionIdentity::detect(&options, &environment, random);
    let program = options.command.first().map(|name| ProgramFile::find(name));

    let mut report = DoctorReport::default();
    report.print("options", surroundings::variables(&warnings));
    report
        .print("library", library::check(options.command.first().map(OsString::as_os_str), program.as_ref()));
    report.print("socket", library::socket(random));
    report.print("memory", memory::check(&options));
    report.print("files", surroundings::open_files());
    report.print("cpus", surroundings::cpus(&options, &environment));
    report.print("waits", surroundings::waits(&options));
    report.print("output", folder::check(&identity.root, options.max_bytes()));
    report.print("launcher", surroundings::launcher(&identity));
    report.print("events", [surroundings::event_clock(options.clock)]);
    report.print("clocks", surroundings::clocks(options.probe_choice(), &identity, &environment));
    report
        .print("mpi", surroundings::mpi(options.command.first().map(OsString::as_os_str), program.as_ref()));
    report.print("python", surroundings::python_samples(&options, program.as_ref()));
    report.print("rocm", surroundings::rocm());
    let prepared = PreparedBackends::of(&options, &identity);
    report.print("backend", prepared.check(&options));
    what_would_happen(&options, &identity, &prepared);
    match report.problems {
        0 => 0,
        n => {
            print_line(format_args!("\n{n} problem{}, see above", if n > 1 { "s" } else { "" }));
            1
        }
    }
}

/// The parser of a run, with an optional command.
pub fn parser() -> Command {
    let command = CollectOptions::parser().name("rpd-collect doctor").bin_name("rpd-collect doctor");
    command
        .about("Checks whether everything is there that recording takes, and prints what would happen")
        .after_help(HELP)
        .mut_arg("command", |argument| argument.required(false))
}

fn what_would_happen(options: &CollectOptions, identity: &SessionIdentity, prepared: &PreparedBackends) {
    let line = |about: &str, text: &dyn Display| print_line(format_args!("  {about:9} {text}"));
    print_line(format_args!("\nwhat would happen"));
    let command = if options.command.is_empty() { "COMMAND".to_owned() } else { options.masked_command() };
    let disabled =
        LauncherEnvironment::of_this_process().get("RPD_DISABLE").is_some_and(|value| value != "0");
    if disabled {
        line("command", &format_args!("{command}, as if rpd-collect was not there: RPD_DISABLE is set"));
        return;
    }
    let set = session::variables(options, &prepared.plan, "@rpd-...").unwrap_or_default();
    let set = set.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
    let profiler_words =
        prepared.plan.profiler_command.iter().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = set.chain(profiler_words).chain([command]).collect();
    line("command", &words.join(" "));
    line("backend", &prepared.names());
    let run = &identity.run;
    line("run id", &format_args!("{} (from {})", run.id, run.from));
    let file = format!("rank-{:05}.rpdshard", identity.rank.rank.unwrap_or(0));
    let below = folder_of_ranks(identity.rank.rank, identity.rank.size).unwrap_or_default();
    line("shard", &identity.root.join(&run.id).join(below).join(file).display());
    let ranks = options.selected_ranks();
    line("recorded", &format_args!("{}; ranks: {ranks}", prepared.recorded(options)));
    line("at most", &crate::command_line::Size(options.max_bytes()));
}
