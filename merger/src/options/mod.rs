//! Command line options. The phases of the merge interpret them.

mod load;
mod trace;

pub use load::ProgramCall;
pub(crate) use trace::TraceArgs;

use crate::budget::MemoryBudget;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rpd_clocks::AlignChoice;
use rpd_output_file::OutputShare;
use rpd_shard::size::Size;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  rpd-merge                              merge the newest run below ./rpd-out
  mpirun -n 8 rpd-merge rpd-out/4711.0   merge one run with eight ranks
  rpd-merge -o job.db rank-*.rpdshard    merge chosen shards
  rpd-merge -o job.db results/           merge what rocprofv3 left: *_results.db, or JSON of ROCm 6
  rpd-merge -o job.db a.rpd b_results.db rpd-out/4711.0
                                         merge inputs of all kinds
  rpd-merge --format rpd results/        merge into trace.rpd, for the tools of rocmProfileData
  rpd-merge --layout partitioned results/
                                         a table set for each process, for --summary-by-rank
  rpd-merge --verify rpd-out/4711.0      read the output again and compare it with the inputs
  rpd-merge --strict --json rpd-out/4711.0
                                         fail if anything is missing; report for machines
  rpd-merge --align collectives --clock-plot clocks.svg rpd-out/4711.0
                                         align clocks by collectives only, and draw them
  rpd-merge --split-by-time 32 rpd-out/4711.0
                                         32 slices of the run for ui.perfetto.dev, and index.json
  rpd-merge --split auto --window 60..90 --ranks 0-3 -o slices/ trace.db
                                         half a minute of four ranks, from a merged database
  rpd-merge --serve slices/              look at it in a browser, here or by ssh
  rpd-merge inspect rank-00003.rpdshard  what is in a shard

Then:
  sqlite3 trace.db 'select * from top limit 10'

Exit codes: 0 merged; 1 internal fault, or --verify found one; 2 wrong usage; 3 incomplete input under --strict;
4 unreadable or incompatible input; 5 the output cannot be written, or is too large; 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.";

/// Merges the profiles of a job into one RocPD database, or draws them as traces
///
/// Aligns the clocks of the nodes, deduplicates strings and renumbers ids. Under mpirun or srun all ranks
/// work on one merge. Missing rows are always reported.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-merge", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    /// A command other than a merge
    #[command(subcommand)]
    pub command: Option<InspectCommand>,
    /// A merge
    #[command(flatten)]
    pub merge: MergeArgs,
}

/// How processes are distributed over tables.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableLayout {
    /// One set of tables with one guid for all processes
    #[default]
    Merged,
    /// A set of tables with its own guid for each process, as AMD's merge writes it; at most 500.
    /// Processes that share a set in an input keep sharing it
    Partitioned,
}

/// Whether a merge finds which rank the others wait for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LateChoice {
    /// If there are at most 50 million calls to MPI and --memory suffices
    #[default]
    Auto,
    /// However many calls there are
    Always,
    /// Leave that to rpd-report
    Never,
}

/// Format of the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    /// A RocPD database of ROCm 7
    Rocpd,
    /// A .rpd of rocmProfileData with calls, operations and counters; the summary counts what it cannot hold
    Rpd,
    /// A trace for ui.perfetto.dev: one file, or slices of the run
    Perfetto,
    /// The same trace as Chrome JSON, for chrome://tracing and tools that read the output of rpd2tracing
    ChromeJson,
}

/// Subcommands.
#[derive(Subcommand, Debug, Clone)]
pub enum InspectCommand {
    /// Shows header, processes, blocks, clocks and loss ledger of a shard; describes any other file and its next step
    Inspect {
        /// The shard, folder, database or trace
        file: PathBuf,
        /// List every block
        #[arg(long)]
        blocks: bool,
    },
}

/// Arguments of a merge.
#[derive(Args, Debug, Clone, Default)]
pub struct MergeArgs {
    /// Run folders, shards, RocPD databases, .rpd files, rocprofv3 JSON, Perfetto traces, omnistat CSV, index.yaml of AMD's
    /// packages, or folders of them
    /// [default: the newest run below $RPD_OUTPUT or ./rpd-out]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// Output file, or folder for the files of a trace [default: trace.db, trace.rpd or the trace, in the folder of
    /// the first input]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Permission to read the output and the status of --epilog
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub share: OutputShare,
    /// How processes are distributed over tables
    #[arg(long, value_enum, default_value_t, value_name = "LAYOUT")]
    pub layout: TableLayout,
    /// Also write index.yaml beside the database, by which AMD's tools open it as a package; for a package folder, give
    /// -o NAME.rpdb/NAME.db
    #[arg(long, conflicts_with = "dry_run")]
    pub package: bool,
    /// Format of the output [default: rocpd; perfetto with an option that splits or opens a trace]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<OutputFormat>,
    /// Keep only these environment variables, and those that identify the rank
    ///
    /// By default all recorded variables are kept. Values that look like secrets are always masked.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub environment: Option<Vec<String>>,
    /// Read the finished output again and check its rows, references and integrity before it gets its name
    #[arg(long, conflicts_with = "dry_run")]
    pub verify: bool,
    /// Overwrite an output that rpd-merge wrote
    #[arg(long)]
    pub force: bool,
    /// Stop with exit code 3 if a rank, a block or a row is missing; unaligned clocks do not count
    #[arg(long)]
    pub strict: bool,
    /// Read and check all inputs, but write no database
    #[arg(long)]
    pub dry_run: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Print only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// What aligns the clocks of the nodes; inputs that are merges keep their times
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub align: AlignChoice,
    /// Move times, within their error bounds, so that no rank leaves a collective before all have entered it
    #[arg(long)]
    pub repair_causality: bool,
    /// Read offsets of clocks that a site measured itself, for nodes without better observations
    #[arg(long, value_name = "FILE")]
    pub clock_file: Option<PathBuf>,
    /// Draw offset and error bound of each clock over the run, as SVG
    ///
    /// Works with --dry-run, too. With --force it overwrites an older drawing, and nothing else.
    #[arg(long, value_name = "FILE.svg")]
    pub clock_plot: Option<PathBuf>,
    /// When to find which rank the others wait for, for the line `late` of the summary; also whether many calls to MPI
    /// get a file beside the database, for a faster rpd-report
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub late: LateChoice,
    /// Memory limit of each merge rank: 512M, 2GiB. Less memory means fewer threads and smaller buffers
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: MemoryBudget,
    /// Size limit of the output and of what it is converted from: 512M, 2GiB. A larger merge stops before it writes
    /// [default: none; with --epilog and for files of another owner 2000 times the inputs, at least 16GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_output: Option<Size>,
    /// Threads of each merge rank [default: the cores that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Wait up to this many seconds for complete shards of all ranks, for file systems that show files late; with
    /// --epilog at most half of --lease
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub wait: u32,
    /// Merge at the end of a batch job: once, however many processes try, over an older merge; merge.status (trace.status)
    /// in the run folder has the outcome
    #[arg(long, conflicts_with = "dry_run")]
    pub epilog: bool,
    /// Seconds that a merge with --epilog may take; after that another one may start
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    pub lease: u32,
    /// Options from a preset (default, pytorch-training, inference-server, hpc-mpi, low-overhead, full) or a TOML file
    #[arg(long, value_name = "PRESET|FILE")]
    pub config: Option<PathBuf>,
    /// Print all effective options with their origin, as a file for --config, and merge nothing
    #[arg(long)]
    pub print_config: bool,
    /// Options of traces
    #[command(flatten)]
    pub trace: TraceArgs,
}
