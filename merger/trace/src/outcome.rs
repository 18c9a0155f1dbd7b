//! Result of a trace, for the summary and for `--json`.

use super::files::{FileFrame, FilePart};
use super::item::{EventCounts, UnitFacts};
use crate::options::TraceSplit;
use rpd_console::wording::{counted, duration, grouped, noun};
use rpd_run::DRAWN_TABLES;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// End of a reason why rows are not in the files.
const NOT_DRAWN_SUFFIX: &str = ": not drawn";
/// End of a reason for rows that options exclude.
const EXCLUDED_SUFFIX: &str = "left out, as chosen";
/// End of a reason for rows of tables that traces do not show.
pub(super) const CARRIED_SUFFIX: &str = ": a trace has no place for them";

/// Name of the rows of each table of [`DRAWN_TABLES`].
const ROW_NAMES: [&str; DRAWN_TABLES.len()] =
    ["region", "sample", "kernel", "copy", "allocation", "counter value", "argument"];

/// A trace that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TraceOutcome {
    /// The file, or the folder of the files.
    pub output: PathBuf,
    /// Format.
    pub format: &'static str,
    /// Number of files.
    pub files: usize,
    /// Size of the files, bytes.
    pub bytes: u64,
    /// Size of the files before compression, bytes.
    pub raw_bytes: u64,
    /// Size of the largest file before compression, bytes.
    pub largest_raw_bytes: u64,
    /// Number of events in the files.
    events: EventCounts,
    /// Duration that the files show, ns.
    pub duration_ns: i64,
    /// Rows that are missing in the trace or changed, by reason. Zero counts are omitted.
    pub not_drawn: BTreeMap<String, u64>,
    /// Kinds of content that options leave out, such as `flows`. Not all of it is counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Names of files without events, up to a limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub empty_files: Vec<String>,
    /// Warnings about requested content that is missing.
    pub warnings: Vec<String>,
}

/// Maximum number of empty files that are listed.
const MAX_EMPTY_FILES: usize = 1_000;
/// Minimum number of events in the largest file, and factor between it and the mean, for a warning about uneven files.
const MIN_UNEVEN_EVENTS: u64 = 1_000;
const UNEVEN_FACTOR: u64 = 3;
/// Maximum number of empty files that the warning names.
const MAX_NAMED_EMPTY_FILES: usize = 3;

impl TraceOutcome {
    pub(super) fn new(
        output: PathBuf,
        frame: &FileFrame,
        parts: &[FilePart],
        facts: &UnitFacts,
    ) -> TraceOutcome {
        let mut events = EventCounts::default();
        parts.iter().for_each(|part| events.add(&part.tally));
        TraceOutcome {
            output,
            format: frame.format.name(),
            files: parts.len(),
            bytes: 0,
            raw_bytes: parts.iter().map(FilePart::raw_bytes).sum(),
            largest_raw_bytes: parts.iter().map(FilePart::raw_bytes).max().unwrap_or(0),
            events,
            duration_ns: frame.windows.end().saturating_sub(frame.windows.first()),
            not_drawn: count_not_drawn(facts),
            left_out: Vec::new(),
            empty_files: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Records files without events, if there are several files, and suggests an option that avoids them.
    pub(super) fn note_empty_files(
        &mut self,
        split: TraceSplit,
        parts: &[FilePart],
        name: impl Fn(usize) -> String,
    ) {
        let is_empty = |part: &FilePart| part.tally.items() + part.tally.continued == 0;
        let empty = || parts.iter().enumerate().filter(|(_, part)| is_empty(part));
        let count = empty().count() as u64;
        if count == 0 || parts.len() < 2 {
            return;
        }
        self.empty_files = empty().take(MAX_EMPTY_FILES).map(|(number, _)| name(number)).collect();
        let mut shown: Vec<&str> =
            self.empty_files.iter().take(MAX_NAMED_EMPTY_FILES).map(String::as_str).collect();
        if count > shown.len() as u64 {
            shown.push("...");
        }
        let each = self.events.items().div_ceil(parts.len() as u64).max(1);
        let option = match split {
            TraceSplit::ByTime(files) => format!("--split-by-time {files}: "),
            _ => String::new(),
        };
        self.warnings.push(format!(
            "{option}{} of {} files have no event, as nothing was recorded in their time ({}); use --split-by-events {each} \
             to cut the run where events are",
            grouped(count),
            grouped(parts.len() as u64),
            shown.join(", "),
        ));
    }

    /// Counts the arrows of collectives that the borders of files cut; `None` if these are too many to be counted.
    pub(super) fn note_cut_collectives(&mut self, cut: Option<u64>) {
        match cut {
            Some(0) => {}
            Some(cut) => {
                let arrows = noun(cut, "arrow");
                let why = format!("{arrows} of collectives between calls in two files{NOT_DRAWN_SUFFIX}");
                self.not_drawn.insert(why, cut);
            }
            None => self.warnings.push(
                "collectives with calls in two files lack arrows, which are not counted, as --memory is too little"
                    .to_owned(),
            ),
        }
    }

    /// Warns if nothing is drawn.
    pub(super) fn note_empty_trace(&mut self) {
        if self.events.items() + self.events.continued == 0 {
            let why = "nothing of the kinds, ranks and times to draw is recorded";
            self.warnings.push(format!("the trace is empty: {why}"));
        }
    }

    /// Suggests another split if files of equal time have very different numbers of events.
    pub(super) fn note_uneven_files(
        &mut self,
        split: TraceSplit,
        parts: &[FilePart],
        name: impl Fn(usize) -> String,
    ) {
        // Files without events have a warning of their own.
        let TraceSplit::ByTime(files) = split else { return };
        if !self.empty_files.is_empty() {
            return;
        }
        let counts = parts.iter().map(|part| part.tally.items()).enumerate();
        let Some((largest, most)) = counts.max_by_key(|(number, items)| (*items, std::cmp::Reverse(*number)))
        else {
            return;
        };
        let all = self.events.items();
        let mean = all / parts.len().max(1) as u64;
        if most < MIN_UNEVEN_EVENTS || most / UNEVEN_FACTOR < mean {
            return;
        }
        self.warnings.push(format!(
            "--split-by-time {files}: {} has {} % of all events; use --split auto for files that a browser opens, or \
             --split-by-events {} for about {} with equal numbers of events",
            name(largest),
            u128::from(most) * 100 / u128::from(all.max(1)),
            mean.max(1),
            counted(parts.len() as u64, "file"),
        ));
    }

    /// Returns the lines of the summary: label and text.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let EventCounts { slices, instants, counters, samples, flows, continued, repeated, earlier_calls } =
            self.events;
        let kinds = [
            (slices, "slice"),
            (instants, "instant"),
            (counters, "counter value"),
            (samples, "sample"),
            (flows, "arrow end"),
        ];
        let there = kinds.into_iter().filter(|(count, what)| *count > 0 || *what == "slice");
        let mut what: Vec<String> = there.map(|(count, what)| counted(count, what)).collect();
        if continued + repeated > 0 {
            what.push(format!(
                "{} of what began before its file",
                counted(continued + repeated, "continuation")
            ));
        }
        if earlier_calls > 0 {
            what.push(format!("{} repeated for the kernels of a later file", counted(earlier_calls, "call")));
        }
        let files = format!(
            "{}, {} in all: {}; {} compressed, {} before",
            counted(self.files as u64, "file"),
            duration(self.duration_ns),
            what.join(", "),
            format_size(self.bytes),
            format_size(self.raw_bytes),
        );
        let largest = match self.files {
            0 | 1 => String::new(),
            _ => format!(", the largest {}", format_size(self.largest_raw_bytes)),
        };
        let mut lines = vec![("trace", files + &largest)];
        if !self.left_out.is_empty() {
            lines.push(("not drawn", format!("by options: {}", self.left_out.join(", "))));
        }
        lines.extend(self.not_drawn.iter().map(|(why, count)| not_drawn_line(why, *count)));
        lines
    }
}

/// Returns the label and text for rows that are missing or changed in the trace.
fn not_drawn_line(why: &str, count: u64) -> (&'static str, String) {
    let missing = why.strip_suffix(NOT_DRAWN_SUFFIX);
    let is_missing = missing.is_some() || why.ends_with(EXCLUDED_SUFFIX) || why.ends_with(CARRIED_SUFFIX);
    let label = if is_missing { "not drawn" } else { "drawn" };
    (label, format!("{} {}", grouped(count), missing.unwrap_or(why)))
}

/// Formats a size in bytes.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..10_000 => counted(bytes, "byte"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

/// Returns counts of missing and changed rows, by reason.
fn count_not_drawn(facts: &UnitFacts) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut note = |count: u64, why: String| {
        if count > 0 {
            all.insert(why, count);
        }
    };
    // The texts are also keys in JSON, so they stay as they are.
    for (what, table) in ROW_NAMES.into_iter().zip(&facts.tables) {
        let of =
            |count: u64| if what == "copy" && count != 1 { "copies".to_owned() } else { noun(count, what) };
        let left_out = match what {
            "argument" => {
                (table.left_out + facts.extdata_args_left_out).saturating_sub(facts.flow_ends_left_out)
            }
            _ => table.left_out,
        };
        note(left_out, format!("{} {EXCLUDED_SUFFIX}", of(left_out)));
        let why = match what {
            "counter value" | "argument" => "whose event is none of a row of their process",
            _ => "without a time, or with one that no clock shows",
        };
        note(table.untimed, format!("{} {why}{NOT_DRAWN_SUFFIX}", of(table.untimed)));
        note(
            table.clamped,
            format!("{} that end before they begin: drawn without a duration", of(table.clamped)),
        );
    }
    let ends = facts.flow_ends_left_out;
    note(ends, format!("{} {EXCLUDED_SUFFIX}", noun(ends, "recorded arrow end")));
    let sinks = "kernels and copies that begin before their call: without an arrow";
    note(facts.backward, sinks.to_owned());
    let ends = "arrows whose call is before the part that is drawn: without their beginning";
    note(facts.without_source, ends.to_owned());
    note(facts.without_event, "rows whose event is missing: without category and arguments".to_owned());
    note(
        facts.without_track,
        "rows whose thread, agent, queue or stream is missing: on tracks of their own".to_owned(),
    );
    note(facts.cut_stacks, "call stacks cut".to_owned());
    note(facts.no_numbers, "values of counters that are no numbers: drawn as gaps".to_owned());
    note(facts.mended, "texts that are no UTF-8: U+FFFD stands for what is none".to_owned());
    note(facts.replaced, "texts longer than 64 KiB or with NUL, written cut or with U+2400".to_owned());
    all
}
