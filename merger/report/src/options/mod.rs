//! Command line options.

use clap::{Args, Parser, Subcommand, ValueEnum};
use rpd_calls::AnalysisMemory;
use rpd_console::{Failure, TimeWindow};
use rpd_memory_limit::usable_bytes;
use rpd_merge::MemoryBudget;
use rpd_shard::rank_set::RankSet;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  rpd-report                             the newest run below ./rpd-out
  rpd-report rpd-out/4711.0              one run: which rank the others wait for
  rpd-report blame --rank 13 RUN         the work of rank 13 beside that of the others
  rpd-report --explain RUN               the calls that show it: the longest waits for the rank that is named
  rpd-report steps --rank 13 RUN         each step of rank 13 beside what is typical
  rpd-report whatif --node gpu001 RUN    how much shorter the run would be without the slowness of a node
  rpd-report summary --top 20 trace.db   the names with the most time
  rpd-report summary --by-rank --ranks 0,8-15 RUN
                                         the same for some ranks, each by itself
  rpd-report ranks --window 60..90 RUN   half a minute of each rank
  rpd-report hang RUN                    why a run hung that was stopped
  rpd-report gpu RUN                     what keeps the GPUs from computing
  rpd-report collectives --format csv RUN > collectives.csv
  rpd-report integrity --strict RUN      what is missing; exit code 3 if anything is
  rpd-report clocks --format json RUN    error bounds of times, for machines
  rpd-report html -o report.html RUN     all of this as one page for a browser
  mpirun -n 8 rpd-report RUN             the same report, read by eight ranks

Inputs are all that rpd-merge reads. Inputs that are not merged are read without writing a database; files of
foreign formats are translated below $TMPDIR first, which all ranks should see. Under mpirun or srun, all ranks read.

Exit codes: 0 reported, whatever the verdict; 1 internal fault; 2 wrong usage; 3 incomplete run under --strict; 4 unreadable or incompatible
input; 5 the output cannot be written; 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.";

/// Reports which rank the others wait for, what it costs, and where the time of a run went
///
/// Reads a merged database, or the inputs of a merge. What was not recorded is always reported.
#[derive(Parser, Debug, Clone)]
#[command(name = "rpd-report", version, after_help = EXAMPLES, subcommand_precedence_over_arg = true)]
pub struct CommandLine {
    /// Run folders, merged databases, or files that rpd-merge reads; a run with the name of a subcommand is ./summary
    /// [default: the newest run below $RPD_OUTPUT or ./rpd-out]
    #[arg(value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// List the calls that show it, those that waited longest first: 20, or --top N
    #[arg(long)]
    pub(crate) explain: bool,
    /// Options of all subcommands
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// What is reported [default: an overview]
    #[command(subcommand)]
    pub(crate) subject: Option<Subject>,
}

impl CommandLine {
    /// Returns how many calls are listed as evidence; `None` without `--explain`.
    ///
    /// # Errors
    /// If the subcommand has no evidence.
    pub(crate) fn explained(&self) -> Result<Option<usize>, Failure> {
        let explain = match &self.subject {
            None => self.explain,
            Some(Subject::Blame { explain, .. }) => self.explain || *explain,
            Some(_) if self.explain => {
                let why = "--explain lists calls for the overview and for blame; omit it, or the subcommand";
                return Err(Failure::usage(why));
            }
            Some(_) => false,
        };
        Ok(explain.then(|| self.common.max_explained()))
    }

    /// Checks that the options fit one another.
    ///
    /// # Errors
    /// If the subcommand cannot be printed or explained as they ask.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.subject.is_none() && self.common.format == OutputFormat::Csv {
            let why = "--format csv prints one table: add a subcommand, such as summary or ranks";
            return Err(Failure::usage(why));
        }
        if matches!(self.subject, Some(Subject::Html { .. })) && self.common.format != OutputFormat::Text {
            return Err(Failure::usage("html writes a page; omit --format"));
        }
        self.explained().map(drop)
    }

    /// Returns whether the report needs the first and the last time of the run.
    pub(crate) fn needs_extent(&self) -> bool {
        let explains = matches!(self.explained(), Ok(Some(_)));
        explains
            || self.common.window.is_some()
            || matches!(
                self.subject,
                Some(Subject::Steps { .. } | Subject::Anomalies(_) | Subject::Html { .. })
            )
    }

    /// Returns the inputs before and after the subcommand.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let after = self.subject.as_ref().map(Subject::inputs).unwrap_or_default();
        self.inputs.iter().chain(after).cloned().collect()
    }
}

/// Subcommands.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Subject {
    /// Times of calls, ranges, kernels and copies, by name
    ///
    /// The share is that of the domain. Nested ranges count in each of their names. Percentiles are exact up to a million
    /// values of a name.
    Summary {
        /// A row for each rank
        #[arg(long, conflicts_with = "by_node")]
        by_rank: bool,
        /// A row for each node
        #[arg(long)]
        by_node: bool,
        /// The run
        #[command(flatten)]
        inputs: SubjectInputs,
    },
    /// Times of each rank: in MPI, in RCCL, with busy GPUs, in copies
    ///
    /// Overlapping calls, kernels or copies of a rank count once.
    Ranks(SubjectInputs),
    /// Collectives of MPI and RCCL by communicator, function and size: durations, and the skew of their ranks
    Collectives(SubjectInputs),
    /// Where the time of each GPU went: computing, communicating, copying, idle; launches, and classes of kernels
    ///
    /// Communication is exposed while no other kernel runs. docs/GPU.md has the formulas.
    Gpu(SubjectInputs),
    /// Single steps, kernels, calls and pieces of work that take much longer than others of their kind
    ///
    /// Events of one kind and step are a row. An anomaly has a modified z-score above 6, and exceeds the median by 5 % of a
    /// step: docs/REPORT.md.
    Anomalies(SubjectInputs),
    /// What each rank causes: its own work, how long others waited for it, and the gain by typical work
    Blame {
        /// The work of this rank, beside what is typical of all ranks
        #[arg(long, value_name = "RANK")]
        rank: Option<u32>,
        /// List the calls that waited longest for the rank that is named, for RANK, or for the first of the table: 20,
        /// or --top N
        #[arg(long)]
        explain: bool,
        /// The run
        #[command(flatten)]
        inputs: SubjectInputs,
    },
    /// Each step: when it began, its length, the rank that worked longest, and the waiting
    ///
    /// If there are more steps than rows, the longest are listed. Above 2 million ranks times steps, a row has several
    /// steps.
    Steps {
        /// The times of this rank, beside what is typical of all ranks
        #[arg(long, value_name = "RANK")]
        rank: Option<u32>,
        /// The run
        #[command(flatten)]
        inputs: SubjectInputs,
    },
    /// Messages between ranks: number, size, and how long one rank waited for the other
    ///
    /// A row for each function that sends. The median time and the bandwidth are those of calls that receive one
    /// message, without their waiting.
    Messages(SubjectInputs),
    /// How much shorter the run would be if work took as long as is typical of the ranks
    #[command(name = "whatif")]
    WhatIf {
        /// Work of this rank
        #[arg(long, value_name = "RANK", conflicts_with = "node")]
        rank: Option<u32>,
        /// Work of all ranks of this node, by host name
        #[arg(long, value_name = "HOST")]
        node: Option<String>,
        /// Work in ranges of this name only
        #[arg(long, value_name = "NAME")]
        range: Option<String>,
        /// The run
        #[command(flatten)]
        inputs: SubjectInputs,
    },
    /// Calls that had not returned when the recording ended, and the ranks that they wait for
    ///
    /// For runs that hung and were stopped: ranks that did not enter a collective, circles of ranks that wait for one
    /// another, and collectives that ranks entered by different functions or roots.
    Hang(SubjectInputs),
    /// The critical path: the work and calls, over all ranks, that determined the length of the run
    Path(SubjectInputs),
    /// Load balance, serialization and transfer: the factors of the parallel efficiency
    Efficiency(SubjectInputs),
    /// How the clocks of the nodes were aligned, and the error bounds of times
    Clocks(SubjectInputs),
    /// What is missing in the run: ranks, files, rows, matches
    Integrity(SubjectInputs),
    /// All of this as one HTML page, which needs no network: verdict, ranks over time, steps, tables
    ///
    /// Opens from a file in a browser of 2023 or later. Tables have 2,000 rows, or --top N, and the sum of the others;
    /// those of ranks have all. The file is for the user only.
    Html {
        /// The file to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Overwrite FILE, if it is an older page
        #[arg(long)]
        force: bool,
        /// The run
        #[command(flatten)]
        inputs: SubjectInputs,
    },
}

/// Inputs after a subcommand.
#[derive(Args, Debug, Clone)]
pub(crate) struct SubjectInputs {
    /// Run folders, merged databases, or files that rpd-merge reads
    /// [default: the newest run below $RPD_OUTPUT or ./rpd-out]
    #[arg(value_name = "INPUT")]
    inputs: Vec<PathBuf>,
}

impl Subject {
    fn inputs(&self) -> &[PathBuf] {
        match self {
            Subject::Summary { inputs, .. }
            | Subject::Blame { inputs, .. }
            | Subject::WhatIf { inputs, .. }
            | Subject::Steps { inputs, .. }
            | Subject::Html { inputs, .. }
            | Subject::Messages(inputs)
            | Subject::Path(inputs)
            | Subject::Efficiency(inputs)
            | Subject::Ranks(inputs)
            | Subject::Anomalies(inputs)
            | Subject::Hang(inputs)
            | Subject::Gpu(inputs)
            | Subject::Collectives(inputs)
            | Subject::Clocks(inputs)
            | Subject::Integrity(inputs) => &inputs.inputs,
        }
    }
}

/// Format of the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OutputFormat {
    /// Tables for a terminal
    #[default]
    Text,
    /// One object of schema rpd.report/1; times in ns
    Json,
    /// The table of a subcommand with a header; with blame --explain, that of the calls; times in ns
    Csv,
    /// Tables in Markdown
    Md,
}

/// Options of all subcommands.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct CommonArgs {
    /// Format of the output; not for html
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: OutputFormat,
    /// Report this part only: seconds after the first event of the run, or times like 2025-06-01T12:00:00Z; 10..20, 10..,
    /// ..20. Rows count where they start
    #[arg(long, global = true, value_name = "FROM..TO")]
    pub(crate) window: Option<TimeWindow>,
    /// Report only these ranks: 0,8-15
    #[arg(long, global = true, value_name = "RANKS")]
    pub(crate) ranks: Option<RankSet>,
    /// Report only processes of these nodes, by host name
    #[arg(long, global = true, value_name = "HOST,...", value_delimiter = ',')]
    pub(crate) nodes: Option<Vec<String>>,
    /// Ranges of this name mark the steps; tables have only rows that start within them on their process
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) step: Option<String>,
    /// Rows of a table, or of each rank or node; 0 for all [default: 40 as text or Markdown, 2,000 in a page, all
    /// otherwise]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Fail with exit code 3 if a rank, a block or a row of the run is missing
    #[arg(long, global = true)]
    pub(crate) strict: bool,
    /// Memory limit of each merge rank, for inputs that are not merged and for calls that are analysed: 512M, 2GiB. A
    /// call to MPI takes 85 to 200 bytes, and so does a kernel with its launch [default: 1GiB, and for calls a quarter of
    /// the memory of the machine or of its cgroup, if that is more]
    #[arg(long, global = true, value_name = "SIZE")]
    pub(crate) memory: Option<MemoryBudget>,
    /// Threads of each merge rank [default: the cores that the process may use]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print only the report, warnings and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// Rows of a table for people.
const DEFAULT_TOP: usize = 40;
/// Rows of a table of a page.
const DEFAULT_PAGE_ROWS: usize = 2_000;
/// Rows of the calls that `--explain` lists, and the maximum of them.
const DEFAULT_EXPLAINED: usize = 20;
const MAX_EXPLAINED: usize = 10_000;

/// Part of the memory of the machine that the analysis of calls may take without `--memory`.
const ANALYSIS_DIVISOR: u64 = 4;

impl CommonArgs {
    /// Returns the memory limit of a merge rank for all but the analysis of calls.
    pub(crate) fn memory(&self) -> MemoryBudget {
        self.memory.unwrap_or_default()
    }

    /// Raises the memory for the analysis of calls, which only rank 0 has, unless the user has limited it.
    pub(crate) fn raise_analysis_memory(&self, memory: AnalysisMemory) -> AnalysisMemory {
        match self.memory {
            Some(_) => memory,
            None => AnalysisMemory { limit: memory.limit.max(usable_bytes() / ANALYSIS_DIVISOR), ..memory },
        }
    }

    /// Returns the maximum number of calls that `--explain` lists.
    pub(crate) fn max_explained(&self) -> usize {
        match self.top {
            Some(0) => MAX_EXPLAINED,
            top => top.unwrap_or(DEFAULT_EXPLAINED).min(MAX_EXPLAINED),
        }
    }

    /// Returns the maximum number of rows of a table of a page, other than those of ranks.
    pub(crate) fn max_page_rows(&self) -> usize {
        match self.top {
            Some(0) => usize::MAX,
            top => top.unwrap_or(DEFAULT_PAGE_ROWS),
        }
    }

    /// Returns the maximum number of rows of a table.
    pub(crate) fn max_rows(&self) -> usize {
        match (self.top, self.format) {
            (Some(0), _) => usize::MAX,
            (Some(rows), _) => rows,
            (None, OutputFormat::Text | OutputFormat::Md) => DEFAULT_TOP,
            (None, OutputFormat::Json | OutputFormat::Csv) => usize::MAX,
        }
    }
}
