//! The loss ledger in the report.

use super::MergeReport;
use crate::agree::findings::MAX_SHOWN_LINES;
use crate::input::JobSchema;
use crate::input::plan::LostRows;
use crate::input::survey::ProfilerLosses;
use rpd_console::wording::{counted, noun, rank_ranges};
use rpd_shard::record::{Loss, LossCause, ProfilerLossReason};
use serde::Serialize;

/// One entry of the loss ledger, summed over the job.
#[derive(Debug, Default, Serialize)]
pub struct LossRow {
    /// Name of the table, if known.
    pub table: Option<String>,
    /// Cause of the loss.
    pub cause: &'static str,
    /// Measure of the user that avoids the loss next time.
    #[serde(skip)]
    next_step: Option<&'static str>,
    /// Number of rows; `null` if unknown.
    pub rows: Option<u64>,
    /// The file, if all of it is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why the file is not used, or why a profiler left no rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The profiler with the missing rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiler: Option<String>,
    /// Ranks without the profiler's rows, ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
}

impl LossRow {
    pub(super) fn line(&self) -> String {
        if let Some(file) = &self.file {
            let reason = self.reason.as_deref().filter(|reason| !reason.is_empty());
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            return format!("all of {file} ({}{reason})", self.cause);
        }
        if let Some(profiler) = &self.profiler {
            let ranks = for_ranks(&self.ranks);
            let reason = self.reason.as_deref().unwrap_or_default();
            return format!("an unknown number of rows of {profiler}{ranks} ({}: {reason})", self.cause);
        }
        let table = self.table.as_deref().unwrap_or("unknown tables");
        match self.rows {
            Some(rows) => format!("{rows} {} of {table} ({})", noun(rows, "row"), self.cause),
            None => format!("an unknown number of rows of {table} ({})", self.cause),
        }
    }

    fn line_with_next_step(&self) -> String {
        let next_step = self.next_step.map_or(String::new(), |step| format!(": next time, {step}"));
        self.line() + &next_step
    }
}

impl MergeReport {
    /// Returns the `lost` lines of the summary.
    pub(super) fn loss_lines(&self) -> Vec<String> {
        let is_whole = self.missing_ranks.is_empty()
            && self.unreadable.is_empty()
            && !self.has_unlisted_losses
            && self.still_running.is_none();
        if self.losses.is_empty() {
            return vec![if is_whole { "nothing" } else { "nothing of what was read" }.to_owned()];
        }
        let (files, rows): (Vec<_>, Vec<_>) = self.losses.iter().partition(|loss| loss.file.is_some());
        let first_files = files.iter().take(MAX_SHOWN_LINES).map(|loss| loss.line());
        let mut lines: Vec<String> =
            rows.iter().map(|loss| loss.line_with_next_step()).chain(first_files).collect();
        if let Some(more @ 1..) = files.len().checked_sub(MAX_SHOWN_LINES) {
            let more = counted(more as u64, "further file");
            lines.push(format!("all of {more} (file_not_used); --json names them"));
        }
        lines
    }
}

/// Returns what the user can do about a loss, in terms of the collector's options.
fn next_step(cause: LossCause) -> Option<&'static str> {
    match cause {
        LossCause::RingFull => {
            Some("raise --ring-memory and --ring-size, or leave the collector more CPU time")
        }
        LossCause::NoMemory => {
            Some("raise --ring-memory, or give the job more memory; messages of rpd-collect name the reason")
        }
        LossCause::NoSpace => Some("raise --max-size or choose another place with -o DIR"),
        _ => None,
    }
}

pub(super) fn loss_row(loss: &Loss, schema: &JobSchema) -> LossRow {
    let table = loss.table.map(|t| schema.name(t).into_owned());
    let (next_step, rows) = (next_step(loss.cause), loss.rows);
    LossRow { table, cause: loss.cause.name(), next_step, rows, ..LossRow::default() }
}

pub(super) fn lost_row(lost: &LostRows) -> LossRow {
    let (file, reason) = lost.file.clone().map(|file| (file.name, file.reason)).unzip();
    let (table, cause) = (lost.table.clone(), lost.cause.name());
    LossRow { table, cause, rows: lost.rows, file, reason, ..LossRow::default() }
}

/// Returns the entries of profilers that failed. A silent profiler may have lost nothing: see [`silent_profilers`].
pub(super) fn profiler_rows(losses: &ProfilerLosses) -> impl Iterator<Item = LossRow> {
    losses.iter().filter_map(|(profiler, reason, affected)| {
        let (reason, next_step) = why_failed(reason)?;
        Some(LossRow {
            cause: "profiler_failed",
            next_step: Some(next_step),
            reason: Some(reason.to_owned()),
            profiler: Some(profiler.to_owned()),
            ranks: affected.ranks.iter().copied().collect(),
            ..LossRow::default()
        })
    })
}

/// Returns a note for each profiler that left no file although nothing failed.
pub(super) fn silent_profilers(losses: &ProfilerLosses) -> impl Iterator<Item = String> {
    let silent = losses.iter().filter(|(_, reason, _)| *reason == ProfilerLossReason::Silent);
    silent.map(|(profiler, _, affected)| {
        let ranks: Vec<u32> = affected.ranks.iter().copied().collect();
        format!(
            "{profiler} left no file{}: the program called nothing that it records, or ended by _exit before it could write",
            for_ranks(&ranks)
        )
    })
}

/// Returns the reason for missing rows and the next step; `None` if a profiler may have had nothing to record.
fn why_failed(reason: ProfilerLossReason) -> Option<(&'static str, &'static str)> {
    let see_log = "read rank-*.log beside the shards";
    Some(match reason {
        ProfilerLossReason::Silent => return None,
        ProfilerLossReason::NotStarted => {
            ("it did not start the command, which ran without it", "run it by hand on such a node first")
        }
        ProfilerLossReason::Killed => {
            ("it did not end after the command and was killed", "give it more time with --backend-wait")
        }
        ProfilerLossReason::NoFile => ("a process has no file of it, and it or the program failed", see_log),
        ProfilerLossReason::Failed => ("it failed after the command", see_log),
        ProfilerLossReason::Unreadable => ("a file of it could not be read", see_log),
        ProfilerLossReason::TooManyFiles => ("it left more files than are fetched", see_log),
    })
}

fn for_ranks(ranks: &[u32]) -> String {
    match ranks {
        [] => String::new(),
        [rank] => format!(" for rank {rank}"),
        several => format!(" for ranks {}", rank_ranges(several)),
    }
}
