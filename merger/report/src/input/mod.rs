//! Finds and opens the run of a report.

mod selection;
mod selection_words;
mod temporary_folder;

pub(crate) use selection::{ProcessGroups, Selection};

use crate::options::{CommandLine, CommonArgs};
use crate::report::RunHead;
use rpd_calls::AnalysisMemory;
use rpd_comm::{Comm, agree_on_result};
use rpd_console::wording::rank_ranges;
use rpd_console::{Failure, WallClock};
use rpd_merge::{MergeArgs, RunInputs};
use rpd_run::{ProcessIdentity, RunDatabase};
use rpd_verdict::shown_time;
use selection_words::selection_words;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use temporary_folder::TemporaryFolder;

/// Maximum number of nodes that an error names.
const MAX_HOSTS: usize = 16;

/// The run, and the part of it that is reported.
#[derive(Debug)]
pub(crate) struct ReportRun {
    pub(crate) database: RunDatabase,
    pub(crate) selection: Selection,
    /// The inputs as the user named them; empty if it is the newest run.
    pub(crate) inputs: Vec<PathBuf>,
    /// The options that select this part of the run, as the words of a command. `None` if they cannot be printed.
    pub(crate) selection_words: Option<String>,
    /// Whether the run is read from inputs that are not merged.
    pub(crate) is_unmerged: bool,
    /// The first damage of inputs that are not merged. The rows that it lost are in the ledger of the run.
    pub(crate) damage: Option<String>,
    /// First and last time of all rows, ns in job time, if the report needs it.
    pub(crate) extent: Option<(i64, i64)>,
    /// Memory of the merge rank for all but the analysis of calls, bytes.
    pub(crate) memory_limit: u64,
    /// Memory for the analysis of calls.
    pub(crate) analysis_memory: AnalysisMemory,
    /// Whether only errors are printed on stderr.
    pub(crate) is_quiet: bool,
    /// Folder of translated inputs, which is removed with this value.
    _folder: Option<TemporaryFolder>,
}

impl ReportRun {
    /// Opens the run that the command line names.
    pub(crate) fn open(cli: &CommandLine, comm: &impl Comm) -> Result<ReportRun, Failure> {
        let common = &cli.common;
        let inputs = cli.inputs();
        let (memory, quiet) = (common.memory(), common.quiet);
        let args = MergeArgs { inputs: inputs.clone(), quiet, memory, ..MergeArgs::default() };
        let mut folder = None;
        let ranks = common.ranks.as_ref().and_then(|set| set.selection());
        let ranges = ranks.map(|set| set.ranks.iter().map(|&(first, last)| first..=last).collect::<Vec<_>>());
        let make_folder = || Ok(folder.insert(TemporaryFolder::create()?).path().to_owned());
        let opened = RunInputs::open(comm, &args, ranges.as_deref(), make_folder);
        let opened = opened.map_err(|failure| match &folder {
            // The failure may advise options of rpd-merge.
            Some(folder) if failure.to_string().contains(&*folder.path().to_string_lossy()) => {
                Failure::output(format!("{failure}; for rpd-report, set TMPDIR")).ending_all_ranks()
            }
            _ => failure,
        })?;
        let extent = if cli.needs_extent() { opened.extent(comm)? } else { None };
        let RunInputs { run: database, is_unmerged, damage, analysis_memory } = opened;
        let selection = agree_on_result(comm, select(&database, extent, common))?;
        let selection_words = selection_words(common);
        Ok(ReportRun {
            database,
            selection,
            inputs,
            selection_words,
            is_unmerged,
            damage,
            extent,
            memory_limit: analysis_memory.limit,
            analysis_memory: common.raise_analysis_memory(analysis_memory),
            is_quiet: common.quiet,
            _folder: folder,
        })
    }

    /// Returns the identity of the process at a place.
    pub(crate) fn process(&self, place: u32) -> Option<&ProcessIdentity> {
        self.database.processes.get(place as usize).map(|process| &process.info)
    }

    /// Returns what is reported about the run itself, with the part of a span that is in the window.
    pub(crate) fn head_with(&self, span: Option<(i64, i64)>) -> RunHead {
        let window = self.selection.window_ns();
        let clip = |(start, end): (i64, i64)| {
            window.map_or((start, end), |(from, to)| (start.max(from), end.min(to).max(from)))
        };
        RunHead { span: span.map(clip), ..self.head() }
    }

    /// Returns what is reported about the run itself, without its span.
    pub(crate) fn head(&self) -> RunHead {
        let processes = &self.database.processes;
        let selected =
            || processes.iter().enumerate().filter(|(place, _)| self.selection.contains(*place as u32));
        let ranks: BTreeSet<u32> = selected().filter_map(|(_, process)| process.info.rank).collect();
        let nodes: BTreeSet<&str> = selected().map(|(_, process)| process.info.host.as_str()).collect();
        let domains = self.clock_domains();
        let has_bound = |domain: &Json| clock_error_bound(domain).is_some();
        RunHead {
            id: self.database.run_id().to_owned(),
            ranks: ranks.len() as u64,
            nodes: nodes.len() as u64,
            processes: selected().count() as u64,
            span: None,
            has_comparable_clocks: domains.len() < 2 || domains.iter().all(has_bound),
        }
    }

    /// Returns the alignment of the clocks as the merge stored it: a JSON object for each clock domain.
    pub(crate) fn clock_domains(&self) -> Vec<Json> {
        serde_json::from_str(self.database.tables.tag("rpd.clock.domains")).unwrap_or_default()
    }
}

/// Returns the error bound of the clocks of a node, ns. `None` if the merge did not compare them with others.
pub(crate) fn clock_error_bound(domain: &Json) -> Option<i64> {
    domain["bar_ns"].as_i64()
}

/// Names what the options that select processes could name.
fn selectable(run: &RunDatabase, common: &CommonArgs) -> String {
    let ranks: BTreeSet<u32> = run.processes.iter().filter_map(|process| process.info.rank).collect();
    let hosts: BTreeSet<&str> = run.processes.iter().map(|process| process.info.host.as_str()).collect();
    let ranks = format!("the run has the ranks {}", rank_ranges(&Vec::from_iter(ranks)));
    let shown: Vec<&str> = hosts.iter().copied().take(MAX_HOSTS).collect();
    let more = if hosts.len() > MAX_HOSTS { ", ..." } else { "" };
    let hosts = format!("the nodes {}{more}", shown.join(", "));
    match (&common.ranks, &common.nodes) {
        (Some(_), Some(_)) => format!("check --ranks and --nodes ({ranks} and {hosts})"),
        (Some(_), None) => format!("check --ranks ({ranks})"),
        _ => format!("check --nodes (the run has {hosts})"),
    }
}

fn select(run: &RunDatabase, extent: Option<(i64, i64)>, common: &CommonArgs) -> Result<Selection, Failure> {
    let window = match common.window {
        None => (None, None),
        Some(window) => {
            let (start, end) = extent.unwrap_or_default();
            let wall_clock =
                run.realtime_minus_job_ns(start).map(|anchor| WallClock(start.saturating_add(anchor)));
            let found =
                window.of_job(start, wall_clock).map_err(|error| Failure::usage(error.to_string()))?;
            if found.0.is_some_and(|from| from > end) {
                let length = shown_time(end.saturating_sub(start));
                return Err(Failure::usage(format!(
                    "--window begins after the end of the run, {length} after its first event"
                )));
            }
            found
        }
    };
    let selection = Selection::new(&run.processes, common.nodes.as_deref(), window, common.step.as_deref());
    let has_ranks = |is_used: &dyn Fn(u32) -> bool| {
        let mut processes = (0..).zip(&run.processes);
        processes.any(|(place, process)| process.info.rank.is_some() && is_used(place))
    };
    if common.ranks.is_some() && !has_ranks(&|_| true) {
        return Err(Failure::usage("--ranks: no rank is known in the run; omit --ranks"));
    }
    let lacks_ranks = common.ranks.is_some() && !has_ranks(&|place| selection.contains(place));
    if selection.is_empty() || lacks_ranks {
        return Err(Failure::usage(format!(
            "no process of the run is selected; {}",
            selectable(run, common)
        )));
    }
    Ok(selection)
}
