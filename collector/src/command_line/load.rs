//! Reads the options of a call from the command line, variables and files.

use super::{CollectOptions, Size};
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use rpd_configs::{FileError, LayeredSettings, Program, SettingOrigin, site_file};
use rpd_ring::layout::{MAX_RING_BYTES, MIN_RING_BYTES, MIN_SEGMENT_BYTES, ring_bytes};
use std::ffi::{OsStr, OsString};

/// Table of our options in a file.
pub(crate) const TABLE: &str = "collect";
/// Variable that names a file, like `--config`.
const CONFIG: &str = "RPD_CONFIG";
/// Options that can also be set by a variable.
const VARIABLES: [(&str, &str); 16] = [
    ("output", "RPD_OUTPUT"),
    ("run-id", "RPD_RUN_ID"),
    ("ranks", "RPD_RANKS"),
    ("trace", "RPD_TRACE"),
    ("max-size", "RPD_MAX_SIZE"),
    ("ring-size", "RPD_RING_BYTES"),
    ("ring-memory", "RPD_RING_MEMORY"),
    ("share", "RPD_SHARE"),
    ("collector-cpus", "RPD_COLLECTOR_CPUS"),
    ("probes", "RPD_PROBES"),
    ("probe-interface", "RPD_PROBE_INTERFACE"),
    ("probe-ports", "RPD_PROBE_PORTS"),
    ("probe-rate", "RPD_PROBE_RATE"),
    ("backend", "RPD_BACKEND"),
    ("warn-signal", "RPD_WARN_SIGNAL"),
    ("scratch", "RPD_SCRATCH"),
];
/// Options that may contradict each other.
const BACKEND: &str = "backend";
const TRACE: &str = "trace";
const RING_SIZE: &str = "ring-size";
const RING_MEMORY: &str = "ring-memory";
/// Options about a single call.
const TYPED_ONLY: [&str; 2] = ["config", "print-config"];

/// The options of a call, and messages about them.
#[derive(Clone, Debug)]
pub struct LoadedOptions {
    /// The effective options, with variables.
    pub options: CollectOptions,
    /// Messages for the log.
    pub warnings: Vec<String>,
    /// The origin of each option.
    pub settings: LayeredSettings,
}

impl CollectOptions {
    /// Reads the options of a call. An error on the command line ends the process, as do `--help` and
    /// `--version`. An error in a file that was typed is returned; in any other file it is a warning.
    pub fn load(
        command: Command,
        arguments: &[OsString],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<LoadedOptions, FileError> {
        // A call that only prints runs nothing.
        let mut ours = arguments.iter().take_while(|word| *word != "--");
        let asks = ours.any(|word| word == "--print-config");
        let mut command = if asks { command.mut_arg("command", |arg| arg.required(false)) } else { command };
        // Only a built parser has the members of option groups.
        command.build();
        let matches = command.clone().get_matches_from(arguments);
        let typed = read(&matches);
        let program = Program {
            table: TABLE,
            command: command.clone(),
            variables: &VARIABLES,
            typed_only: &TYPED_ONLY,
        };
        let site = site_file();
        let layered = |named: Option<&OsStr>| program.layered(&matches, named, site.as_deref(), &variable);
        let by_variable = variable(CONFIG).filter(|name| !name.is_empty());
        let mut warnings = Vec::new();
        let settings = match (&typed.config, &by_variable) {
            (Some(named), _) => layered(Some(named.as_os_str()))?,
            (None, Some(named)) => layered(Some(named)).or_else(|error| {
                warnings.push(format!("warning: {CONFIG}: {error}; it is ignored"));
                layered(None)
            })?,
            (None, None) => layered(None)?,
        };
        let matches = command.get_matches_from(settings.arguments());
        let is_locked = |name: &str| settings.locked_variables.iter().any(|locked| locked == name);
        let open = |name: &str| variable(name).filter(|_| !is_locked(name));
        let (options, about_variables) = read(&matches).or_variables(open);
        warnings.extend(settings.warnings.iter().cloned().chain(about_variables));
        let options =
            resolve_conflicts(CollectOptions { command: typed.command, ..options }, &settings, &mut warnings);
        warnings.extend(other_ring_size(&options, &settings));
        warnings.extend(small_ring_memory(&options, &settings));
        Ok(LoadedOptions { options, warnings, settings })
    }

    /// Returns the parser of a run.
    pub fn parser() -> Command {
        CollectOptions::command()
    }
}

/// Warns about a ring size that is rounded.
fn other_ring_size(options: &CollectOptions, settings: &LayeredSettings) -> Option<String> {
    let wanted = options.ring_size?;
    let taken = ring_bytes(wanted.as_usize());
    (taken as u64 != wanted.0).then(|| {
        let [taken, least, most] = [taken, MIN_RING_BYTES, MAX_RING_BYTES].map(|bytes| Size(bytes as u64));
        format!(
            "warning: --{RING_SIZE} ({}): a ring of {} bytes is made as one of {taken}: its size is a power of two \
             from {least} to {most}",
            settings.origin(RING_SIZE),
            wanted.0
        )
    })
}

/// Warns about too little memory for a ring.
fn small_ring_memory(options: &CollectOptions, settings: &LayeredSettings) -> Option<String> {
    let wanted = options.ring_memory.filter(|memory| !is_enough_for_a_ring(memory.0))?;
    let (origin, least) = (settings.origin(RING_MEMORY), Size(MIN_SEGMENT_BYTES as u64));
    Some(format!(
        "warning: --{RING_MEMORY} ({origin}): {wanted} is less than the {least} of a thread's first ring, so that no events are recorded"
    ))
}

/// Returns whether a limit of the memory for rings allows a first one, which may exceed it by a quarter.
pub(crate) fn is_enough_for_a_ring(bytes: u64) -> bool {
    bytes.saturating_add(bytes / 4) >= MIN_SEGMENT_BYTES as u64
}

/// Resolves conflicts of options. Options that contradict each other end the call only if they were typed.
/// Otherwise the job runs with as many of them as possible.
fn resolve_conflicts(
    mut options: CollectOptions,
    settings: &LayeredSettings,
    warnings: &mut Vec<String>,
) -> CollectOptions {
    let Err(error) = options.check() else { return options };
    let (backend, trace) = (settings.origin(BACKEND), settings.origin(TRACE));
    if *backend == SettingOrigin::Typed && matches!(trace, SettingOrigin::Typed | SettingOrigin::Default) {
        return options;
    }
    // The command is recorded in either case.
    let all = options.trace.unwrap_or_default();
    let mut less = all.clone();
    if let Some(choice) = &options.backend {
        less.library = choice.beside(&less.library);
    }
    warnings.push(format!(
        "warning: --{BACKEND} ({backend}) and --{TRACE} ({trace}): {error}; native leaves it to the profiler if that is there"
    ));
    options.trace = Some(less);
    options.without_profiler = Some(all);
    options
}

fn read(matches: &ArgMatches) -> CollectOptions {
    CollectOptions::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn load(words: &[&str], variable: &str) -> LoadedOptions {
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let named = |name: &str| (name == CONFIG && !variable.is_empty()).then(|| variable.into());
        CollectOptions::load(CollectOptions::parser(), &arguments, named).unwrap()
    }

    #[test]
    fn without_files_all_is_as_it_was_typed() {
        for words in [
            &["c", "a"][..],
            &["c", "--", "a", "--", "-o", "x"],
            &["c", "a", "--", "b", "--max-size=3"],
            &["c", "--max-size", "3", "-o", "a b", "--", "--", "a"],
            &[
                "c",
                "--backend-arg=--pmc",
                "--backend-arg",
                "-x=,",
                "--keep-scratch",
                "python3",
                "-c",
                "a = 1\n",
            ],
            &["c", "--ranks", "0,8-15", "--trace=mpi,system", "--probes", "off", "a", ""],
        ] {
            let plain = CollectOptions::try_parse_from(words).unwrap();
            assert_eq!(format!("{:?}", load(words, "").options), format!("{plain:?}"), "{words:?}");
        }
    }

    #[test]
    fn a_preset_sets_what_no_other_layer_sets() {
        let words = ["c", "--config", "low-overhead", "--max-size=3", "--", "a"];
        for (words, variable) in [(&words[..], ""), (&["c", "--max-size=3", "a"][..], "low-overhead")] {
            let options = load(words, variable).options;
            assert_eq!((options.max_size.unwrap().0, options.ring_memory.unwrap().0), (3, 16 << 20));
        }
    }

    #[test]
    fn a_ring_size_that_no_ring_has_is_named_with_the_one_that_is_made() {
        for (typed, taken) in [("3000", "32 KiB"), ("33K", "64 KiB"), ("3M", "4 MiB"), ("1G", "256 MiB")] {
            let warnings = load(&["c", "--ring-size", typed, "a"], "").warnings;
            let [line] = warnings.as_slice() else { panic!("{typed}: {warnings:?}") };
            assert!(line.starts_with("warning: --ring-size ("), "{line}");
            let wanted =
                format!("is made as one of {taken}: its size is a power of two from 32 KiB to 256 MiB");
            assert!(line.ends_with(&wanted), "{line}");
        }
        for typed in ["32K", "1M", "256M"] {
            assert_eq!(load(&["c", "--ring-size", typed, "a"], "").warnings, [""; 0]);
        }
    }

    #[test]
    fn too_little_memory_for_a_ring_is_named() {
        let warnings = |typed: &str| load(&["c", "--ring-memory", typed, "a"], "").warnings;
        let [line] = &warnings("1K")[..] else { panic!("{:?}", warnings("1K")) };
        assert!(
            line.starts_with("warning: --ring-memory (") && line.contains("no events are recorded"),
            "{line}"
        );
        assert_eq!(warnings("16K"), [""; 0]);
    }

    #[test]
    fn each_preset_is_read_by_the_parser_of_both_tables() {
        for (name, _) in rpd_configs::PRESETS {
            assert_eq!(load(&["c", "--config", name, "a"], "").warnings, [""; 0], "{name}");
        }
    }

    #[test]
    fn a_variable_that_names_no_file_stops_no_job() {
        let loaded = load(&["c", "a"], "high-overhead");
        assert!(loaded.warnings[0].contains("RPD_CONFIG: there is no preset"), "{:?}", loaded.warnings);
        let arguments = ["c", "--config", "high-overhead", "a"].map(OsString::from);
        assert!(CollectOptions::load(CollectOptions::parser(), &arguments, |_| None).is_err());
    }
}
