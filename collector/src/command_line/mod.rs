//! The command line.

mod load;
mod trace;
mod warn_signal;

pub(crate) use load::{LoadedOptions, TABLE, is_enough_for_a_ring};
pub(crate) use rpd_shard::size::Size;
pub(crate) use trace::{TraceSelection, name_of};
pub(crate) use warn_signal::WarnSignal;

use crate::backend::{BackendChoice, BackendChoiceError, BackendPlan, BackendRequest};
use crate::clock_probe::{DEFAULT_RATE, ProbeChoice, ProbeInterface, ProbePorts, ProbeRate};
use crate::host::cpus::CollectorCpus;
use crate::shard_output::DEFAULT_MAX_BYTES;
use clap::Parser;
use rpd_ring::message::TRACED;
use rpd_shard::identity::masked_command;
use rpd_shard::rank_set::RankSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Default time for a profiler to start the command, s.
const DEFAULT_WAIT: u32 = 60;

const EXAMPLES: &str = "\
EXAMPLES:
  A program without a launcher, into ./rpd-out/<time>/rank-00000.rpdshard:
      rpd-collect -- ./simulation input.nml

  One collector per rank:
      mpirun -n 4 rpd-collect -- python3 train.py
      srun -n 16 rpd-collect -o /scratch/traces -- ./simulation

  One collector per node, eight ranks below it:
      srun --ntasks-per-node=1 rpd-collect -- torchrun --nproc_per_node=8 train.py

  A large job: MPI calls of 9 ranks, 200 MiB each at most:
      srun -n 4096 rpd-collect --ranks 0,8-15 --trace mpi --max-size 200M -- ./simulation

  GPU kernels, with AMD's profiler, and nothing else:
      srun -n 16 rpd-collect --backend rocprofv3 -- ./simulation

  PyTorch's profiler in every rank, for a minute of the run:
      srun -n 16 rpd-collect --backend torch,native --backend-arg delay=600 --backend-arg duration=60 \\
          -- python train.py

  Which kernel faults?
      srun -n 16 rpd-collect --debug-agent -- python train.py

  With the options of a preset, and a list of them:
      srun -n 16 rpd-collect --config low-overhead -- ./simulation
      rpd-collect --config low-overhead --print-config

  What would a run do here, and is everything it needs available?
      rpd-collect doctor -- ./simulation

  Then merge the shards of all ranks:
      rpd-merge

ENVIRONMENT:
  RPD_OUTPUT       output root, like -o
  RPD_RUN_ID       run id, like --run-id
  RPD_RANKS        like --ranks
  RPD_TRACE        like --trace
  RPD_BACKEND      like --backend
  RPD_SCRATCH      like --scratch
  RPD_MAX_SIZE     like --max-size
  RPD_RING_BYTES   like --ring-size
  RPD_RING_MEMORY  like --ring-memory
  RPD_CLOCK        like --clock
  RPD_SHARE        like --share
  RPD_COLLECTOR_CPUS
                   like --collector-cpus
  RPD_PROBES, RPD_PROBE_INTERFACE, RPD_PROBE_PORTS, RPD_PROBE_RATE
                   like --probes and so on
  RPD_WARN_SIGNAL  like --warn-signal
  RPD_CONFIG       like --config
  RPD_DISABLE      1: run the command without tracing it
  RPD_INTERCEPT    path of librpd_intercept.so, if it is not beside rpd-collect or in ../lib
  An empty variable counts as unset. An invalid one is ignored with a warning.

MESSAGES:
  Messages about a rank are in DIR/<run id>/rank-<rank>.log; without messages there is no log.

LIMITS:
  Names of ranges and marks longer than 4096 bytes are truncated and end in \u{2026}
  Processes that outlive the command are recorded up to its end.
  SIGSTOP to rpd-collect alone cannot reach the command; use SIGTSTP, or signal the process group.

EXIT STATUS:
  That of the command. 126 if it cannot be executed, 127 if it is not found, 2 for invalid
  options, 125 if --require prevented its start. If the command dies by a signal, so does rpd-collect.";

/// Runs a command and records its roctx ranges, MPI and RCCL calls.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-collect", version, about, after_help = EXAMPLES)]
#[allow(rustdoc::invalid_html_tags, reason = "clap prints the comments of fields as help: <rank> is text")]
pub struct CollectOptions {
    /// Output root; the shard goes to DIR/<run id>/rank-<rank>.rpdshard [default: rpd-out]
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Name of the run, the same in all ranks [default: the launcher's job id, or the time]
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,

    /// Variable that holds the rank, for unknown launchers
    #[arg(long, value_name = "NAME")]
    pub rank_env: Option<String>,

    /// Ranks to record, as 0,8-15; a process without a rank counts as its collector's [default: all]
    #[arg(long, value_name = "RANKS")]
    pub ranks: Option<RankSet>,

    /// What to record, separated by commas: roctx, mpi, rccl, system (metrics of the node and of recorded threads), python
    /// (stack samples), all (everything but python) or none [default: all]
    #[arg(long, value_name = "WHAT")]
    pub trace: Option<TraceSelection>,

    /// Maximum size of a shard; K, M, G are powers of 1024 [default: 2G]
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<Size>,

    /// Maximum size of the ring buffer of a thread, which begins with 16K and grows as it is needed [default: 64M]
    #[arg(long, value_name = "SIZE")]
    pub ring_size: Option<Size>,

    /// Maximum size of all ring buffers of one process [default: 64M]
    #[arg(long, value_name = "SIZE")]
    pub ring_memory: Option<Size>,

    /// Clock of the recorded events: ticks, the processor's counter, where the kernel trusts it; or boottime, which takes
    /// twice as long to read [default: ticks]
    #[arg(long, value_name = "CLOCK")]
    pub clock: Option<EventClock>,

    /// Permission to read the files: user, or group [default: user]
    #[arg(long, value_name = "WHO")]
    pub share: Option<FileSharing>,

    /// CPUs that the collector runs on, as 0,4-7; or auto: CPUs of the job that no rank is bound to [default:
    /// those of the command]
    #[arg(long, value_name = "LIST|auto")]
    pub collector_cpus: Option<CollectorCpus>,

    /// Whether nodes measure their clocks against each other: on, or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    pub probes: Option<ProbeSwitch>,

    /// Interface for these measurements, as ib0 or 10.1.0.0/16 [default: all that are up]
    #[arg(long, value_name = "NAME|ADDRESS/PREFIX")]
    pub probe_interface: Option<ProbeInterface>,

    /// UDP ports for these measurements, as 40000-40100 [default: any]
    #[arg(long, value_name = "FIRST-LAST")]
    pub probe_ports: Option<ProbePorts>,

    /// Maximum number of replies to other nodes per second [default: 10000]
    #[arg(long, value_name = "NUMBER")]
    pub probe_rate: Option<ProbeRate>,

    /// Signal that warns of the end of the job, as --signal of sbatch sends it: USR1, USR2 or XCPU. The
    /// collector then writes everything recorded so far and continues; the command gets the signal only if it
    /// handles it
    #[arg(long, value_name = "SIGNAL")]
    pub warn_signal: Option<WarnSignal>,

    /// Ask the site to merge the run after the job, if it offers that: creates merge.wanted in the folder of
    /// the run
    #[arg(long)]
    pub ask_merge: bool,

    /// Do not start the command if it cannot be recorded: the shard cannot be created, the library is
    /// missing, or the program is static or setuid, so that no library can be preloaded; exit status 125
    #[arg(long)]
    pub require: bool,

    /// What records: native, rocprofv3, rocprof-sys, rpd-tracer, torch, as a list; none; or auto: native, and rocprofv3 where
    /// there is a GPU [default: auto]
    #[arg(long, value_name = "LIST")]
    pub backend: Option<BackendChoice>,

    /// Argument for the profiler, once for each: --backend-arg=--pmc; a variable for rpd-tracer, a setting
    /// for torch
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub backend_arg: Vec<OsString>,

    /// Configuration of the profiler: -i of rocprofv3, -c of rocprof-sys (`rocprof-sys-avail -G FILE -d` writes one)
    #[arg(long, value_name = "FILE")]
    pub backend_config: Option<PathBuf>,

    /// Seconds that a profiler has to start the command, before it runs without the profiler [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub backend_wait: Option<u32>,

    /// Folder on the node for the profiler's files until they are imported [default: $TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,

    /// Keep the profiler's own files on the node
    #[arg(long)]
    pub keep_scratch: bool,

    /// Run under the ROCm Debug Agent, which names a kernel that faults
    #[arg(long)]
    pub debug_agent: bool,

    /// Options from a preset (default, pytorch-training, inference-server, hpc-mpi, low-overhead, full) or a TOML file
    #[arg(long, value_name = "PRESET|FILE")]
    pub config: Option<PathBuf>,

    /// Print the effective options and their origins as a file for --config; run nothing
    #[arg(long)]
    pub print_config: bool,

    /// Selection to record if no profiler records a part of it.
    #[arg(skip)]
    pub without_profiler: Option<TraceSelection>,

    /// The command to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Users that may read the recorded files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSharing {
    /// The user alone.
    User,
    /// The user's group as well.
    Group,
}

/// Clock that the library reads for each event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventClock {
    /// The processor's counter, if it is steady and the kernel uses it for its own clocks, else as [`EventClock::Boottime`].
    Ticks,
    /// `CLOCK_BOOTTIME`.
    Boottime,
}

impl FromStr for EventClock {
    type Err = String;

    fn from_str(text: &str) -> Result<EventClock, String> {
        match text.trim() {
            "ticks" => Ok(EventClock::Ticks),
            "boottime" => Ok(EventClock::Boottime),
            _ => Err(format!("the clock is ticks or boottime, not {text:?}")),
        }
    }
}

/// Whether nodes measure their clocks against each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeSwitch {
    /// Nodes of a job on several nodes do.
    On,
    /// Nodes do not.
    Off,
}

impl FromStr for ProbeSwitch {
    type Err = String;

    fn from_str(text: &str) -> Result<ProbeSwitch, String> {
        match text.trim() {
            "on" => Ok(ProbeSwitch::On),
            "off" => Ok(ProbeSwitch::Off),
            _ => Err(format!("probes are on or off, not {text:?}")),
        }
    }
}

impl FromStr for FileSharing {
    type Err = String;

    fn from_str(text: &str) -> Result<FileSharing, String> {
        match text.trim() {
            "user" => Ok(FileSharing::User),
            "group" => Ok(FileSharing::Group),
            _ => Err(format!("files can be shared with user or group, not with {text:?}")),
        }
    }
}

impl CollectOptions {
    /// Adds the variables of the environment for options that were not typed. Returns messages about them. A
    /// variable must never stop a job: an empty one is ignored, and an invalid one causes a warning.
    pub fn or_variables(
        mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> (CollectOptions, Vec<String>) {
        let set = &|name: &str| variable(name).filter(|value| !value.is_empty());
        let mut warnings = Vec::new();
        self.output.take_if(|path| path.as_os_str().is_empty());
        self.run_id.take_if(|id| id.is_empty());
        self.scratch.take_if(|path| path.as_os_str().is_empty());
        let options = CollectOptions {
            output: self.output.or_else(|| Some(set("RPD_OUTPUT")?.into())),
            run_id: self.run_id.or_else(|| Some(set("RPD_RUN_ID")?.to_string_lossy().into_owned())),
            ranks: self.ranks.or_else(|| parsed("RPD_RANKS", set, &mut warnings)),
            trace: self.trace.or_else(|| parsed("RPD_TRACE", set, &mut warnings)),
            max_size: self.max_size.or_else(|| parsed("RPD_MAX_SIZE", set, &mut warnings)),
            ring_size: self.ring_size.or_else(|| parsed("RPD_RING_BYTES", set, &mut warnings)),
            ring_memory: self.ring_memory.or_else(|| parsed("RPD_RING_MEMORY", set, &mut warnings)),
            clock: self.clock.or_else(|| parsed("RPD_CLOCK", set, &mut warnings)),
            share: self.share.or_else(|| parsed("RPD_SHARE", set, &mut warnings)),
            collector_cpus: self.collector_cpus.or_else(|| parsed("RPD_COLLECTOR_CPUS", set, &mut warnings)),
            probes: self.probes.or_else(|| parsed("RPD_PROBES", set, &mut warnings)),
            probe_interface: self
                .probe_interface
                .or_else(|| parsed("RPD_PROBE_INTERFACE", set, &mut warnings)),
            probe_ports: self.probe_ports.or_else(|| parsed("RPD_PROBE_PORTS", set, &mut warnings)),
            probe_rate: self.probe_rate.or_else(|| parsed("RPD_PROBE_RATE", set, &mut warnings)),
            warn_signal: self.warn_signal.or_else(|| parsed("RPD_WARN_SIGNAL", set, &mut warnings)),
            backend: self.backend.or_else(|| parsed("RPD_BACKEND", set, &mut warnings)),
            scratch: self.scratch.or_else(|| Some(set("RPD_SCRATCH").or_else(|| set("TMPDIR"))?.into())),
            ..self
        };
        (options, warnings)
    }

    /// Returns the command line with secrets masked.
    pub fn masked_command(&self) -> String {
        let words: Vec<String> =
            self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        masked_command(&words)
    }

    /// Returns the ranks to record.
    pub fn selected_ranks(&self) -> RankSet {
        self.ranks.clone().unwrap_or_default()
    }

    /// Returns the settings of the clock probes; `None` if they are off.
    pub fn probe_choice(&self) -> Option<ProbeChoice> {
        let choice = ProbeChoice {
            interface: self.probe_interface.clone(),
            ports: self.probe_ports,
            rate: self.probe_rate.map_or(DEFAULT_RATE, |rate| rate.0),
        };
        (self.probes != Some(ProbeSwitch::Off)).then_some(choice)
    }

    /// Checks whether the options fit together.
    ///
    /// # Errors
    /// If they contradict each other.
    pub fn check(&self) -> Result<(), BackendChoiceError> {
        let library = self.trace.clone().unwrap_or_default().library;
        self.backend.as_ref().map_or(Ok(()), |choice| choice.check(&library))
    }

    /// Returns what is recorded, given the profilers in the plan.
    pub fn recorded(&self, plan: &BackendPlan) -> TraceSelection {
        let mut trace = match plan.has_profiler() {
            true => self.trace.clone().unwrap_or_default(),
            false => self.recorded_alone(),
        };
        trace.library.retain(|word| !plan.left_to_profiler.contains(word));
        trace
    }

    /// Returns what is recorded if no profiler records a part of it.
    pub fn recorded_alone(&self) -> TraceSelection {
        self.without_profiler.as_ref().or(self.trace.as_ref()).cloned().unwrap_or_default()
    }

    /// Returns what native is to record.
    fn words(&self) -> &[&'static str] {
        self.trace.as_ref().map_or(&TRACED, |trace| &trace.library)
    }

    /// Returns the request for the backends.
    pub fn backend_request(&self) -> BackendRequest<'_> {
        static AUTO: BackendChoice = BackendChoice::Auto;
        BackendRequest {
            choice: self.backend.as_ref().unwrap_or(&AUTO),
            named: self.backend.is_some(),
            library: self.trace.as_ref().is_some_and(TraceSelection::names_calls),
            words: self.words(),
            arguments: &self.backend_arg,
            config: self.backend_config.as_deref(),
            debug_agent: self.debug_agent,
            scratch: self.scratch.as_deref().unwrap_or(Path::new("/tmp")),
            keep: self.keep_scratch,
            wait: Duration::from_secs(self.backend_wait.unwrap_or(DEFAULT_WAIT).into()),
        }
    }

    /// Returns the maximum number of bytes of a shard.
    pub fn max_bytes(&self) -> u64 {
        self.max_size.map_or(DEFAULT_MAX_BYTES, |size| size.0)
    }
}

/// Maximum length of an error about a variable. The value may have any length.
const MAX_ERROR_LENGTH: usize = 300;

/// Parses the value of a variable; `None` if it is not set or invalid.
fn parsed<T>(name: &str, set: impl Fn(&str) -> Option<OsString>, warnings: &mut Vec<String>) -> Option<T>
where
    T: FromStr<Err: Display>,
{
    match set(name)?.to_string_lossy().parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let error: String = error.to_string().chars().take(MAX_ERROR_LENGTH).collect();
            warnings.push(format!("warning: {name}: {error}; the default is used"));
            None
        }
    }
}

/// Finds the command without parsing the options: `RPD_DISABLE` must help even if those are invalid.
pub(crate) fn command_alone(arguments: &[OsString]) -> Option<Vec<OsString>> {
    match CollectOptions::try_parse_from(arguments) {
        Ok(options) => Some(options.command),
        Err(_) => {
            let dashes = arguments.iter().position(|argument| argument == "--")?;
            arguments.get(dashes + 1..).filter(|command| !command.is_empty()).map(<[OsString]>::to_vec)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(typed: &str) -> CollectOptions {
        CollectOptions::try_parse_from(typed.split(' ')).unwrap()
    }

    #[test]
    fn what_is_typed_counts_before_variables_and_empty_is_unset() {
        let with = |typed: &str, value: &str| {
            let (options, _) = options(typed).or_variables(|_| Some(value.into()));
            (options.output, options.run_id, options.ring_size)
        };
        assert_eq!(with("c -- a", ""), (None, None, None));
        assert_eq!(with("c -- a", "7"), (Some("7".into()), Some("7".to_owned()), Some(Size(7))));
        assert_eq!(with("c -- a", "abc").2, None);
        let typed = with("c -o d --run-id r --ring-size 1 -- a", "7");
        assert_eq!(typed, (Some("d".into()), Some("r".to_owned()), Some(Size(1))));
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_named_and_left_aside() {
        let names = [
            "RPD_RANKS",
            "RPD_BACKEND",
            "RPD_TRACE",
            "RPD_MAX_SIZE",
            "RPD_RING_BYTES",
            "RPD_RING_MEMORY",
            "RPD_CLOCK",
            "RPD_SHARE",
            "RPD_COLLECTOR_CPUS",
            "RPD_PROBES",
            "RPD_PROBE_INTERFACE",
            "RPD_PROBE_PORTS",
            "RPD_PROBE_RATE",
            "RPD_WARN_SIGNAL",
        ];
        let (nonsense, warnings) = options("c -- a").or_variables(|_| Some("? ?".into()));
        assert_eq!(warnings.len(), names.len(), "{warnings:?}");
        for name in names {
            let named = |line: &&String| line.starts_with(&format!("warning: {name}: "));
            assert_eq!(warnings.iter().filter(named).count(), 1, "{name}");
        }
        assert!(nonsense.ranks.is_none() && nonsense.trace.is_none() && nonsense.share.is_none());
        assert_eq!(nonsense.max_bytes(), 2 << 30);
        let (_, long) = options("c -- a").or_variables(|_| Some("x".repeat(100_000).into()));
        assert!(long.iter().all(|line| line.len() < 400), "{long:?}");
        let one = |name: &str| match name {
            "RPD_RANKS" => Some("1-3".into()),
            "RPD_TRACE" => Some("mpi".into()),
            "RPD_SHARE" => Some("group".into()),
            "RPD_COLLECTOR_CPUS" => Some("auto".into()),
            "RPD_MAX_SIZE" | "RPD_RING_MEMORY" => Some("3M".into()),
            "RPD_PROBE_INTERFACE" => Some("ib0".into()),
            "RPD_PROBE_PORTS" => Some("4000-4001".into()),
            "RPD_PROBE_RATE" => Some("7".into()),
            _ => None,
        };
        let (given, warnings) = options("c -- a").or_variables(one);
        assert!(warnings.is_empty());
        let probes = given.probe_choice().unwrap();
        assert_eq!((probes.interface.unwrap().to_string().as_str(), probes.rate), ("ib0", 7));
        assert_eq!(probes.ports.unwrap().to_string(), "4000-4001");
        assert_eq!(
            (given.ranks.unwrap().to_string(), given.share),
            ("1-3".to_owned(), Some(FileSharing::Group))
        );
        assert_eq!((given.max_size, given.ring_memory), (Some(Size(3 << 20)), Some(Size(3 << 20))));
        assert_eq!(given.collector_cpus, Some(CollectorCpus::Auto));
        assert_eq!(given.trace.unwrap().to_string(), "mpi");
        let (off, _) = options("c -- a").or_variables(|name| (name == "RPD_PROBES").then(|| "off".into()));
        let (typed, _) = options("c --probes on -- a").or_variables(|_| Some("off".into()));
        assert!(off.probe_choice().is_none() && typed.probe_choice().is_some());
    }

    #[test]
    fn an_option_that_makes_no_sense_is_an_error() {
        for typed in [
            "--ranks 1-",
            "--trace rocx",
            "--max-size 2X",
            "--ring-memory 0",
            "--share world",
            "--collector-cpus 3-1",
            "--probes maybe",
            "--probe-interface 10.0.0.0/99",
            "--probe-ports 80-90",
            "--probe-rate 0",
            "--backend rocprof4",
            "--backend-wait 0",
        ] {
            assert!(CollectOptions::try_parse_from(format!("c {typed} -- a").split(' ')).is_err(), "{typed}");
        }
    }

    #[test]
    fn a_command_is_found_behind_bad_options() {
        let command = |typed: &str| {
            let typed: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let found = command_alone(&typed)?;
            Some(found.join(std::ffi::OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(command("c ./a -- b").as_deref(), Some("./a -- b"));
        assert_eq!(command("c --ring-size abc -- ./a -- b").as_deref(), Some("./a -- b"));
        assert_eq!(command("c --no-such-option -- a -b").as_deref(), Some("a -b"));
        assert_eq!(command("c -o d a -b --no-such-option").as_deref(), Some("a -b --no-such-option"));
        assert_eq!(command("c --no-such-option"), None);
    }
}
