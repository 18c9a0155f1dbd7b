use super::clock_table::impossible_bursts;
use super::clocks::ClockRow;
use super::losses::{LossRow, loss_row, lost_row, profiler_rows, silent_profilers};
use super::not_used::NotUsed;
use super::previous_merges::{self, clock_rows};
use super::running::unfinished;
use crate::agree::findings::{JobFindings, MAX_SHOWN_LINES, ProcessKinds};
use crate::agree::job_clocks::{CausalityRepair, JobClocks};
use crate::input::plan::{JobRanks, MergePlan, StillRunning};
use crate::input::survey::{CommandExit, ProcessCrash, StoppedProcesses};
use crate::input::{JobSchema, REGIONS, SAMPLES};
use crate::output::counts::RowCount;
use crate::output::size_limit::free_bytes;
use crate::output::verify::OutputVerification;
use rpd_collectives::{CollectiveCounts, LateRank, LatenessSummary};
use rpd_console::wording::{counted, noun, one_line, rank_ranges};
use rpd_console::{Failure, PhaseTime};
use rpd_shard::model::{TableId, rocpd};
use rpd_trace::TraceOutcome;

use rpd_foreign::Format;
use rpd_shard::size::Size;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The outcome of a merge, the same on all merge ranks.
#[derive(Debug, Default, Serialize)]
pub struct MergeReport {
    /// Run id.
    pub run_id: String,
    /// Path of the database.
    pub output: PathBuf,
    /// Number of shards of rpd-collect that were read.
    pub shards: usize,
    /// Number of RocPD databases that were read.
    pub databases: usize,
    /// Number of foreign files that were read.
    pub other_files: usize,
    /// Number of ranks in the inputs.
    pub ranks: usize,
    /// Ranks that `--ranks` excluded.
    pub left_out_ranks: Vec<u32>,
    /// Number of processes in the inputs.
    pub processes: u64,
    /// Number of these processes that are not ranks.
    pub process_kinds: ProcessKinds,
    /// Number of nodes.
    pub nodes: usize,
    /// Ranks that should have been recorded, but that no input contains.
    pub missing_ranks: Vec<u32>,
    /// Ranks of processes that called no recorded function.
    pub silent_ranks: Vec<u32>,
    /// Ranks for which two collectors wrote a shard.
    pub repeated_ranks: Vec<u32>,
    /// Ranks of one launch that MPI ran as separate jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub singleton_ranks: Vec<u32>,
    /// Inputs that are skipped, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Files below the inputs that are not merged.
    #[serde(flatten)]
    pub not_used: NotUsed,
    /// Shards that their collectors did not finish.
    pub unfinished: Vec<PathBuf>,
    /// A line about each of these shards.
    #[serde(skip)]
    unfinished_lines: Vec<String>,
    /// Those of these shards that are still being written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub still_running: Option<StillRunning>,
    /// Rows read per table of the inputs.
    pub rows_read: Vec<RowCount>,
    /// Rows per table: written, or counted in a dry run.
    pub rows: Vec<RowCount>,
    /// Placeholder rows per table; included in `rows`.
    pub placeholders: Vec<RowCount>,
    /// Number of strings of all inputs, and of distinct ones.
    pub strings: (u64, u64),
    /// Requested alignment method.
    pub align: String,
    /// Report of each clock domain.
    pub clocks: Vec<ClockRow>,
    /// Result of `--repair-causality`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<CausalityRepair>,
    /// Numbers of matched and unmatched collectives.
    pub collectives: CollectiveCounts,
    /// The first collectives that do not match.
    pub collective_faults: Vec<String>,
    /// Collectives that are not compared between nodes, with the reason: neither inputs nor times show whether all
    /// calls belong to the same collective.
    pub collectives_not_used: Vec<String>,
    /// Whether some of these collectives are on named communicators.
    #[serde(skip)]
    pub has_unproven_names: bool,
    /// Which rank the others wait for, or why none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<rpd_verdict::RunVerdict>,
    /// The ranks that entered collectives last and for which others waited longest.
    pub late_ranks: Vec<LateRank>,
    /// Which rank entered collectives last, or why none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessSummary>,
    /// Entries of the loss ledger.
    pub losses: Vec<LossRow>,
    /// Whether a profiler left no file although nothing failed, or a previous merge lost rows.
    #[serde(skip)]
    pub(super) has_unlisted_losses: bool,
    /// Replaced values: table, column, number. Mostly references to lost rows, which became NULL or refer to a
    /// placeholder.
    pub replaced: Vec<(String, String, u64)>,
    /// The first ten processes that died by a signal, and ranks that failed.
    pub deaths: Vec<ProcessCrash>,
    /// Number of processes that died by a signal, and of ranks that failed.
    pub died: u64,
    /// The first ten of these processes for which more than `commands_ended` is reported.
    #[serde(skip)]
    pub crashes: Vec<ProcessCrash>,
    /// Number of processes for which more than `commands_ended` is reported.
    #[serde(skip)]
    pub crashed: u64,
    /// Exits of commands by code and signal, if collectors recorded them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands_ended: Vec<CommandExit>,
    /// Those of `crashes` that a signal from outside ended; one line per signal.
    #[serde(skip)]
    pub stopped: StoppedProcesses,
    /// Warnings about damaged places, losses of previous merges and translated inputs.
    pub warnings: Vec<String>,
    /// Whether the output is a RocPD database.
    #[serde(skip)]
    pub is_database: bool,
    /// Whether no rank recorded an event.
    #[serde(skip)]
    nothing_seen: bool,
    /// Whether the only input is a previous merge: its clock report is adopted.
    #[serde(skip)]
    pub(super) merged_before: bool,
    /// Whether a clock file was given.
    #[serde(skip)]
    pub(super) has_clock_file: bool,
    /// How the rank selections of the shards differ.
    pub disagreement: Option<String>,
    /// Merged data that a `.rpd` cannot represent, with its amount.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out_of_rpd: BTreeMap<String, u64>,
    /// Result of verifying the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<OutputVerification>,
    /// Facts that are not losses but may surprise the user.
    pub notes: Vec<String>,
    /// The file of calls beside the database, from which rpd-report reads them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_file: Option<PathBuf>,
    /// The trace made from the database, if a trace was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceOutcome>,
    /// Planned bytes of the output, including the file from which it is converted.
    pub planned_bytes: u64,
    /// Wall time of the merge, s.
    pub seconds: f64,
    /// Wall time of each phase.
    pub phases: Vec<PhaseTime>,
}

impl MergeReport {
    /// Creates the report from results that all ranks agreed on.
    pub fn new(plan: &MergePlan, schema: &JobSchema, clocks: &JobClocks, found: &JobFindings) -> MergeReport {
        let nodes = &found.nodes;
        let databases = plan.inputs.iter().filter(|input| input.format == Format::RocPd).count();
        let is_translated = |path: &Path| plan.names.is_translated(&path.display().to_string());
        let other_files = plan.inputs.iter().filter(|input| is_translated(&input.path)).count();
        MergeReport {
            run_id: plan.run_id.clone(),
            output: plan.output.clone(),
            shards: plan.inputs.len() - databases - other_files,
            databases,
            other_files,
            ranks: plan.ranks.seen.len(),
            left_out_ranks: plan.ranks.left_out.clone(),
            processes: found.processes,
            process_kinds: found.kinds,
            nodes: nodes.nodes().len(),
            missing_ranks: plan.ranks.missing.clone(),
            silent_ranks: plan.silent_ranks.clone(),
            repeated_ranks: plan.repeated_ranks.clone(),
            unreadable: plan.unreadable.clone(),
            not_used: NotUsed::new(plan.unused.clone()),
            unfinished: plan.inputs.iter().filter(|s| !s.complete).map(|s| s.path.clone()).collect(),
            unfinished_lines: plan.inputs.iter().filter(|s| s.is_abandoned()).map(unfinished).collect(),
            still_running: StillRunning::among(&plan.inputs),
            align: clocks.align.clone(),
            clocks: clock_rows(plan, clocks, found),
            repaired: clocks.repaired,
            losses: found
                .losses
                .iter()
                .map(|loss| loss_row(loss, schema))
                .chain(plan.lost.iter().map(lost_row))
                .chain(profiler_rows(&found.profiler_losses))
                .collect(),
            deaths: found.deaths.clone(),
            died: found.died,
            crashes: found.crashes.clone(),
            crashed: found.crashed,
            commands_ended: found.commands.clone().list(),
            stopped: found.stopped.clone(),
            warnings: plan
                .warnings
                .iter()
                .chain(&found.warnings)
                .map(|line| plan.names.restore_names(line))
                .collect(),
            has_clock_file: clocks.has_clock_file,
            disagreement: plan.ranks.disagreement(),
            notes: chosen(&plan.ranks)
                .into_iter()
                .chain(plan.notes.iter().cloned())
                .chain(previous_merges::notes(plan, clocks, nodes))
                .chain(impossible_bursts(clocks.impossible))
                .chain(silent_profilers(&found.profiler_losses))
                .collect(),
            has_unlisted_losses: silent_profilers(&found.profiler_losses).next().is_some()
                || !plan.previous_losses.is_empty(),
            ..MergeReport::default()
        }
    }

    /// Adds a note if the run has no events at all: the user may have recorded with the wrong tool. `read` are the
    /// rows of the inputs. If rows may have been lost, adds no note.
    pub fn note_if_empty(&mut self, read: &BTreeMap<TableId, u64>) {
        let stored = [rocpd::REGION, rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY, rocpd::MEMORY_ALLOCATE];
        let mut events = REGIONS.iter().chain(&SAMPLES).chain(&stored);
        let seen = events.any(|table| read.get(table).is_some_and(|rows| *rows > 0));
        let lacks = !self.losses.is_empty() || self.has_unlisted_losses || !self.unreadable.is_empty();
        if !seen && !lacks && self.still_running.is_none() {
            let metrics = [rocpd::SAMPLE, rocpd::PMC_EVENT];
            let text = match metrics.iter().any(|table| read.get(table).is_some_and(|rows| *rows > 0)) {
                true => "system metrics alone were recorded: no call and no kernel in any rank",
                false => {
                    "no event was recorded in any rank: rank-*.log beside the shards may contain the reason; GPU kernels need \
                     --backend rocprofv3"
                }
            };
            self.notes.push(text.to_owned());
            self.nothing_seen = true;
        }
    }

    /// Stores the verification of the output. If it failed, prints all of its lines and fails.
    pub fn verified(&mut self, found: OutputVerification) -> Result<(), Failure> {
        if let Some(failure) = found.failure() {
            found.lines().iter().for_each(|line| eprintln!("verify     {}", one_line(line)));
            return Err(failure);
        }
        self.verify = Some(found);
        Ok(())
    }

    /// Adds notes about data that a `.rpd` cannot represent.
    pub fn note_left_out_of_rpd(&mut self, left_out: BTreeMap<String, u64>) {
        let shown = left_out.iter().take(MAX_SHOWN_LINES);
        self.notes.extend(shown.map(|(what, rows)| format!("{rows} {what} have no place in .rpd")));
        if let Some(more @ 1..) = left_out.len().checked_sub(MAX_SHOWN_LINES) {
            self.notes.push(format!(
                "and {more} more {} of rows; rpd-merge --json lists all",
                noun(more as u64, "kind")
            ));
        }
        self.left_out_of_rpd = left_out;
    }

    /// Returns why this run is incomplete, for `--strict`, and the warning with the same content; `None` if it is
    /// complete.
    pub fn incomplete(&self) -> Option<(String, Option<String>)> {
        let (fact, warning) = self.lack()?;
        Some((format!("{fact}; merge without --strict to take what is there"), warning))
    }

    /// Returns what is missing from this run, and the warning with the same content; `None` if nothing is missing.
    pub fn lack(&self) -> Option<(String, Option<String>)> {
        let (fact, warning) = if let Some((path, reason)) = self.unreadable.first() {
            let fact = left_out(path, reason);
            (fact.clone(), Some(format!("left out: {fact}")))
        } else if let Some(line) = self.missing().or_else(|| self.repeated()).or_else(|| self.running()) {
            (line.clone(), Some(line))
        } else if let (Some(path), Some(line)) = (self.unfinished.first(), self.unfinished_lines.first()) {
            (format!("{} was not finished by its collector", path.display()), Some(line.clone()))
        } else {
            let warning = self.warnings.first().cloned();
            let loss = self.losses.first().map(LossRow::line);
            let both: Vec<String> = warning.iter().cloned().chain(loss).collect();
            (both.join("; "), warning)
        };
        (!fact.is_empty()).then_some((fact, warning))
    }

    /// Returns everything that is missing, in one line; `None` if nothing is missing.
    pub fn all_that_lacks(&self) -> Option<String> {
        let (first, _) = self.lack()?;
        let losses = self.losses.iter().take(MAX_SHOWN_LINES).map(|loss| format!("lost: {}", loss.line()));
        let lines: Vec<String> = self.warning_lines().into_iter().chain(losses).collect();
        Some(if lines.is_empty() { first } else { lines.join("; ") })
    }

    /// Returns one line for each incomplete or damaged part of the run.
    pub fn warning_lines(&self) -> Vec<String> {
        let line = |(path, reason): &(PathBuf, String)| format!("left out: {}", left_out(path, reason));
        let mut lines: Vec<String> = self.unreadable.iter().take(MAX_SHOWN_LINES).map(line).collect();
        if let Some(more @ 1..) = self.unreadable.len().checked_sub(MAX_SHOWN_LINES) {
            lines.push(format!(
                "left out: and {}; rpd-merge --json lists all",
                counted(more as u64, "more input")
            ));
        }
        lines.extend(self.missing());
        lines.extend(self.repeated());
        lines.extend(self.singletons_line());
        lines.extend(self.disagreement.clone());
        lines.extend(self.running());
        let all: Vec<String> = self.unfinished_lines.iter().chain(&self.warnings).cloned().collect();
        lines.extend(all.iter().take(MAX_SHOWN_LINES).cloned());
        if all.len() > MAX_SHOWN_LINES {
            lines.push(format!("and {} more; rpd-merge --json lists all", all.len() - MAX_SHOWN_LINES));
        }
        lines
    }

    /// Returns the number of inputs by kind.
    fn inputs(&self) -> String {
        let other = if self.other_files == 1 { "file of another format" } else { "files of other formats" };
        let kinds = [
            (self.databases, counted(self.databases as u64, "database")),
            (self.shards, counted(self.shards as u64, "shard")),
            (self.other_files, format!("{} {other}", self.other_files)),
        ];
        let there = kinds.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text);
        there.collect::<Vec<_>>().join(", ")
    }

    fn planned_output(&self) -> String {
        let free = free_bytes(&self.output).map(|free| format!("; {} are free there", Size(free)));
        let (output, planned) = (self.output.display(), Size(self.planned_bytes));
        format!("{output} would take about {planned}{}", free.unwrap_or_default())
    }

    fn missing(&self) -> Option<String> {
        let why = if self.shards > 0 {
            "did its collector start, and did the rank call roctx, MPI or RCCL?"
        } else {
            "did its profiler write a file, and is that among the inputs?"
        };
        let ranks = rank_ranges(&self.missing_ranks);
        (!self.missing_ranks.is_empty())
            .then(|| format!("nothing of {} {ranks}: {why}", noun(self.missing_ranks.len() as u64, "rank")))
    }

    fn repeated(&self) -> Option<String> {
        let (run, ranks) = (&self.run_id, rank_ranges(&self.repeated_ranks));
        (!self.repeated_ranks.is_empty()).then(|| {
            format!(
                "run {run}: more than one collector was rank {ranks}: two jobs share this run id, their rows are in one database"
            )
        })
    }

    fn running(&self) -> Option<String> {
        self.still_running.as_ref().map(|running| running.line(self.is_database))
    }

    /// Returns the closing summary.
    pub fn summary(&self, dry_run: bool) -> String {
        let mut out = String::new();
        let verb = if dry_run { "would merge" } else { "merged" };
        // A program without a launcher has no rank.
        let ranks = match self.ranks {
            0 => String::new(),
            n => format!("{}, ", counted(n as u64, "rank")),
        };
        // Files of profilers contain no run id.
        let run = match self.run_id.as_str() {
            "" => String::new(),
            id => format!("run {id}: "),
        };
        let mut line = |label: &str, text: String| {
            let _ = writeln!(out, "{label:<10} {}", one_line(&text));
        };
        line(
            verb,
            format!(
                "{run}{ranks}{}{} on {}, {} in {:.1} s",
                counted(self.processes, "process"),
                self.process_kinds.words(),
                counted(self.nodes as u64, "node"),
                self.inputs(),
                self.seconds
            ),
        );
        self.lateness_lines().into_iter().for_each(|(label, text)| line(label, text));
        self.exits_line().into_iter().for_each(|text| line("ended", text));
        self.death_lines().into_iter().for_each(|text| line("died", text));
        if !self.silent_ranks.is_empty() && !self.nothing_seen {
            let ranks = rank_ranges(&self.silent_ranks);
            line("silent", format!("rank {ranks}: no roctx, MPI or RCCL call was recorded"));
        }
        if !self.missing_ranks.is_empty() {
            line("missing", format!("rank {}", rank_ranges(&self.missing_ranks)));
        }
        if !self.unreadable.is_empty() {
            line("left out", counted(self.unreadable.len() as u64, "input"));
        }
        self.loss_lines().into_iter().for_each(|text| line("lost", text));
        self.not_used.line.iter().cloned().for_each(|text| line("not used", text));
        self.clock_lines().into_iter().for_each(|(label, text)| line(label, text));
        self.collective_lines().into_iter().for_each(|(label, text)| line(label, text));
        self.notes.iter().for_each(|note| line("note", note.clone()));
        for (table, column, rows) in &self.replaced {
            line(
                "replaced",
                format!("{rows} {} of {table}.{column} could not be kept", noun(*rows, "value")),
            );
        }
        let verified = self.verify.iter().flat_map(OutputVerification::lines);
        verified.for_each(|text| line("verify", text));
        self.trace.iter().flat_map(TraceOutcome::lines).for_each(|(label, text)| line(label, text));
        let shown = |count: &RowCount| format!("{} {}", count.table.trim_start_matches("rocpd_"), count.rows);
        let rows: Vec<String> = self.rows.iter().filter(|count| count.rows > 0).map(shown).collect();
        if !rows.is_empty() {
            line("rows", rows.join(", "));
        }
        line("strings", format!("{} in all inputs, {} distinct", self.strings.0, self.strings.1));
        if dry_run {
            line("output", self.planned_output());
        } else {
            line("output", self.output.display().to_string());
            self.call_file
                .iter()
                .for_each(|file| line("calls", format!("{}, for rpd-report", file.display())));
        }
        out
    }
}

/// Returns a note about the recorded ranks, if `--ranks` excluded some.
fn chosen(ranks: &JobRanks) -> Option<String> {
    let recorded = rank_ranges(&ranks.seen);
    let noun = noun(ranks.seen.len() as u64, "rank");
    (!ranks.left_out.is_empty())
        .then(|| format!("{noun} {recorded} of {} recorded, as chosen with --ranks", ranks.size))
}

/// Returns a skipped input with the reason; its path appears only once.
fn left_out(path: &Path, reason: &str) -> String {
    let path = path.display().to_string();
    if reason.contains(&path) { reason.to_owned() } else { format!("{path}: {reason}") }
}
