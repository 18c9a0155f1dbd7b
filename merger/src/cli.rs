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
/// Aligns the clocks of the nodes, deduplicates strings, renumbers ids. Under mpirun or srun all ranks
/// work on one merge. Rows that are missing are reported, never passed over.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-merge", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    /// Something else than a merge
    #[command(subcommand)]
    pub command: Option<InspectCommand>,
    /// A merge
    #[command(flatten)]
    pub merge: MergeArgs,
}

/// How processes are put into tables.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableLayout {
    /// All processes in one set of tables, under one guid
    #[default]
    Merged,
    /// A set of tables, with the guid of its input, for each process, as AMD's merge has it; 500 at most.
    /// Processes that one set of an input holds stay in one set
    Partitioned,
}

/// Format of the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    /// A RocPD database of ROCm 7
    Rocpd,
    /// A .rpd of rocmProfileData. It holds calls, operations and counters; what it has no place for is told
    Rpd,
    /// A trace for ui.perfetto.dev: one file, or slices of the run
    Perfetto,
    /// The same as Chrome's JSON, for chrome://tracing and tools that read rpd2tracing's output
    ChromeJson,
}

/// Subcommands.
#[derive(Subcommand, Debug, Clone)]
pub enum InspectCommand {
    /// Shows a shard's header, processes, blocks, clocks and loss ledger; of a run folder, a database or a trace, what it is and
    /// what to do with it
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
    /// Run directories, shards, RocPD databases, .rpd files, JSON of rocprofv3, Perfetto traces, CSV of omnistat, or folders of them
    /// [default: the newest run below $RPD_OUTPUT or ./rpd-out]
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// The file to write, or the folder of a trace's files [default: trace.db, trace.rpd, or the trace, in the first
    /// input's directory]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Who may read the output and the status of --epilog
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub share: OutputShare,
    /// How processes are put into tables
    #[arg(long, value_enum, default_value_t, value_name = "LAYOUT")]
    pub layout: TableLayout,
    /// What is written [default: rocpd; perfetto with an option that splits or opens]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<OutputFormat>,
    /// Keep only these variables of recorded environments, and those that tell the rank
    ///
    /// Without it all recorded variables are kept. What looks like a secret is masked either way.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub environment: Option<Vec<String>>,
    /// Read the output again before it gets its name: rows against those read, references, integrity
    #[arg(long, conflicts_with = "dry_run")]
    pub verify: bool,
    /// Overwrite the output if it is there and rpd-merge wrote it
    #[arg(long)]
    pub force: bool,
    /// Stop with exit code 3 if a rank, a block or a row is missing; never for clocks that are not aligned
    #[arg(long)]
    pub strict: bool,
    /// Read and check everything, write no database
    #[arg(long)]
    pub dry_run: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// No progress and no summary, only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// By what the clocks of the nodes are aligned; former merges keep their times
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub align: AlignChoice,
    /// Move times by no more than their error bars, so that no rank leaves a collective before the others came
    #[arg(long)]
    pub repair_causality: bool,
    /// Offsets of clocks that were measured elsewhere, for nodes of which nothing better is known
    #[arg(long, value_name = "FILE")]
    pub clock_file: Option<PathBuf>,
    /// Draw the offset and the error bar of each clock over the job, as SVG
    ///
    /// Also with --dry-run. Overwrites a drawing with --force, and nothing else.
    #[arg(long, value_name = "FILE.svg")]
    pub clock_plot: Option<PathBuf>,
    /// Memory of each merge rank: 512M, 2GiB. Fewer threads and smaller buffers where it is short
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: MemoryBudget,
    /// Most bytes of the output, with what it is converted from: 512M, 2GiB. A larger merge ends before it writes
    /// [default: no limit; under --epilog and for files of another owner 2000 times the inputs, and 16GiB at least]
    #[arg(long, value_name = "SIZE")]
    pub max_output: Option<Size>,
    /// Threads of each merge rank [default: the cores that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Seconds to wait for the shards of all ranks to be there and ended, as on file systems that show a file late. With
    /// --epilog at most half of --lease
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub wait: u32,
    /// For the end of a batch job: merge once, however often this is called, overwrite an older merge, and say in the
    /// folder of the run, in merge.status (trace.status), what became of it
    #[arg(long, conflicts_with = "dry_run")]
    pub epilog: bool,
    /// Seconds that such a merge may take. Another may begin then
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    pub lease: u32,
    /// Options from a preset (default, pytorch-training, inference-server, hpc-mpi, low-overhead, full) or a TOML file
    #[arg(long, value_name = "PRESET|FILE")]
    pub config: Option<PathBuf>,
    /// Print all options as they count, and who said so, as a file for --config; merge nothing
    #[arg(long)]
    pub print_config: bool,
    /// Options of traces
    #[command(flatten)]
    pub trace: TraceArgs,
}
