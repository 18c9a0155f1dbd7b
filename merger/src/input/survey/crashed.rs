//! Processes that died by a signal, ranks that failed, and their open calls.

use crate::input::{BuiltinString, REGIONS};
use rpd_console::wording::{counted, rank_ranges};
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{Cells, Local, Rows};
use rpd_shard::record::{Process, ProcessExit};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use signal_hook::low_level::signal_name;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of open ranges and calls kept per process; the latest ones are kept.
const MAX_OPEN_SPANS: usize = 1_024;
/// Maximum number of names that are printed per process.
const MAX_NAMES: usize = 3;
/// Maximum length of a printed name.
const MAX_NAME_CHARS: usize = 60;

/// Ranges and calls without an end.
#[derive(Debug, Default)]
pub(super) struct OpenSpans {
    count: u64,
    /// The ones that began last.
    kept: Vec<OpenSpan>,
}

#[derive(Clone, Copy, Debug)]
struct OpenSpan {
    start: i64,
    stack: i64,
    parent: i64,
    name: i64,
}

impl OpenSpans {
    /// Returns the open ranges and calls of a block.
    pub(super) fn of(rows: &Rows<Local>) -> OpenSpans {
        let ends = rows.column("end");
        let all_ended = matches!(ends, Cells::Int { nulls, .. } if !nulls.any());
        if all_ended || !REGIONS.contains(&rows.id()) {
            return OpenSpans::default();
        }
        let [starts, stacks, parents, names] =
            ["start", "stack_id", "parent_stack_id", "name_id"].map(|column| rows.column(column));
        let open = (0..rows.len).filter(|i| ends.int(*i).is_none()).map(|i| OpenSpan {
            start: starts.int(i).unwrap_or(i64::MIN),
            stack: stacks.int(i).unwrap_or(0),
            parent: parents.int(i).unwrap_or(0),
            name: names.int(i).unwrap_or(0),
        });
        let kept: Vec<OpenSpan> = open.collect();
        let mut spans = OpenSpans { count: kept.len() as u64, kept };
        spans.keep_last();
        spans
    }

    pub(super) fn add(&mut self, other: OpenSpans) {
        self.count += other.count;
        self.kept.extend(other.kept);
        self.keep_last();
    }

    fn keep_last(&mut self) {
        if self.kept.len() > MAX_OPEN_SPANS {
            self.kept.sort_unstable_by_key(|span| std::cmp::Reverse((span.start, span.stack)));
            self.kept.truncate(MAX_OPEN_SPANS);
        }
    }

    /// Returns the span that began last and its enclosing spans, outermost first. Returns one more than is printed if
    /// there are more.
    fn innermost(&self) -> Vec<OpenSpan> {
        let mut found: Vec<OpenSpan> = Vec::new();
        let mut next = self.kept.iter().max_by_key(|span| (span.start, span.stack));
        while let Some(span) = next.filter(|_| found.len() <= MAX_NAMES) {
            found.push(*span);
            next = self.kept.iter().find(|outer| outer.stack == span.parent && outer.stack != 0);
        }
        found.reverse();
        found
    }
}

/// A process that died by a signal, or a rank that ended with an exit code other than 0.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessCrash {
    /// Rank, if the process has one.
    pub rank: Option<u32>,
    /// Whether the process is a worker below the rank.
    pub worker: bool,
    /// Process id.
    pub pid: i32,
    /// Signal number.
    pub signal: Option<i32>,
    /// Exit code.
    pub code: Option<i32>,
    /// Signal name, if the signal has one.
    pub signal_name: Option<String>,
    /// Number of open ranges and calls.
    pub open: u64,
    /// Names of the open span that began last and of its enclosing spans, outermost first; `...` stands for more.
    pub innermost: Vec<String>,
}

impl ProcessCrash {
    /// Returns a crash if the process died by a signal or is a rank that failed. Exit codes of workers concern only
    /// their parent process.
    pub(super) fn of(process: &Process, open: &OpenSpans, strings: &ShardStrings) -> Option<ProcessCrash> {
        let (signal, code) = match process.exit? {
            ProcessExit::Signal(signal) => (Some(signal), None),
            ProcessExit::Code(code) if code != 0 && !process.worker => (None, Some(code)),
            ProcessExit::Code(_) | ProcessExit::Unknown => return None,
        };
        let spans = open.innermost();
        let shown = &spans[spans.len().saturating_sub(MAX_NAMES)..];
        let more = (shown.len() < spans.len()).then(|| "...".to_owned());
        let names = shown.iter().map(|span| name_of(strings.get(span.name)));
        Some(ProcessCrash {
            rank: process.rank,
            worker: process.worker,
            pid: process.pid,
            signal,
            code,
            signal_name: signal.and_then(signal_name).map(str::to_owned),
            open: open.count,
            innermost: more.into_iter().chain(names).collect(),
        })
    }

    /// Returns the order of printing: processes that caused their own end come first. When one rank crashes, the
    /// launcher ends all others, and the crashed rank must not be lost among them.
    pub fn order(&self) -> impl Ord + use<> {
        (self.sent_signal().is_some(), self.rank.unwrap_or(u32::MAX), self.worker, self.pid)
    }

    /// Returns the signal if it usually comes from outside: from a launcher that ends a job, or from a user.
    pub fn sent_signal(&self) -> Option<i32> {
        self.signal.filter(|signal| matches!(*signal, SIGHUP | SIGINT | SIGKILL | SIGTERM))
    }

    /// Returns how the process ended.
    pub fn exit(&self) -> ProcessExit {
        match (self.signal, self.code) {
            (Some(signal), _) => ProcessExit::Signal(signal),
            (None, Some(code)) => ProcessExit::Code(code),
            (None, None) => ProcessExit::Unknown,
        }
    }

    /// Returns the printed line.
    pub fn line(&self) -> String {
        let worker = if self.worker { ", worker" } else { "" };
        let process = match self.rank {
            Some(rank) => format!("rank {rank} (pid {}{worker})", self.pid),
            None => format!("pid {}", self.pid),
        };
        let died = format!("{process} {}", exit_text(self.exit()));
        match self.open {
            0 => died,
            open => format!("{died}; {open} open at its end: {}", self.innermost.join(" > ")),
        }
    }
}

/// Processes that a signal from outside ended, grouped by signal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoppedProcesses(BTreeMap<i32, StoppedGroup>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoppedGroup {
    count: u64,
    /// Number of these processes with an exit that is in the line of all commands, too.
    commands: u64,
    ranks: BTreeSet<u32>,
}

impl StoppedProcesses {
    /// Counts a process if a signal from outside ended it.
    pub fn add(&mut self, death: &ProcessCrash, is_command: bool) {
        if let Some(signal) = death.sent_signal() {
            let group = self.0.entry(signal).or_default();
            group.count += 1;
            group.commands += u64::from(is_command);
            group.ranks.extend(death.rank);
        }
    }

    /// Adds the processes of another merge rank.
    pub fn join(&mut self, other: StoppedProcesses) {
        for (signal, theirs) in other.0 {
            let own = self.0.entry(signal).or_default();
            own.count += theirs.count;
            own.commands += theirs.commands;
            own.ranks.extend(theirs.ranks);
        }
    }

    /// Returns whether a line about several processes includes this process.
    pub fn names(&self, death: &ProcessCrash) -> bool {
        death.sent_signal().and_then(|signal| self.0.get(&signal)).is_some_and(|group| group.count > 1)
    }

    /// Returns, for each signal that ended several processes, their number and a line. The line is omitted if the
    /// line of all commands covers all of them.
    pub fn lines(&self) -> Vec<(u64, Option<String>)> {
        let several = self.0.iter().filter(|(_, group)| group.count > 1);
        several
            .map(|(signal, StoppedGroup { count, commands, ranks })| {
                let ranks: Vec<u32> = ranks.iter().copied().collect();
                let ranks =
                    if ranks.is_empty() { String::new() } else { format!("rank {}: ", rank_ranges(&ranks)) };
                let died = exit_text(ProcessExit::Signal(*signal));
                let line = format!("{ranks}{} {died}, sent from outside", counted(*count, "process"));
                (*count, (commands < count).then_some(line))
            })
            .collect()
    }
}

/// Shortens a name for a terminal and removes control characters.
fn name_of(text: Option<&[u8]>) -> String {
    let text = String::from_utf8_lossy(text.unwrap_or(BuiltinString::Lost.text().as_bytes()));
    let mut name: String = text.chars().take(MAX_NAME_CHARS).filter(|c| !c.is_control()).collect();
    if text.chars().nth(MAX_NAME_CHARS).is_some() {
        name += "...";
    }
    name
}

/// Describes how a process ended.
pub(crate) fn exit_text(exit: ProcessExit) -> String {
    match exit {
        ProcessExit::Code(code) => format!("ended with exit code {code}"),
        ProcessExit::Signal(signal) => match signal_name(signal) {
            Some(name) => format!("died by signal {signal} ({name})"),
            None => format!("died by signal {signal}"),
        },
        ProcessExit::Unknown => "ended, in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_shard::model::{RowsBuilder, Schema, Value, native};

    fn spans(rows: impl Iterator<Item = (i64, Option<i64>, i64, i64)>) -> OpenSpans {
        let mut builder = RowsBuilder::new(Schema::builtin().get(native::RANGE).unwrap());
        for (start, end, stack, parent) in rows {
            let name = Value::Int(stack);
            builder.push(&[1.into(), start.into(), end.into(), name, stack.into(), parent.into()]);
        }
        OpenSpans::of(&builder.finish(1))
    }

    fn names(spans: &OpenSpans) -> Vec<i64> {
        spans.innermost().iter().map(|span| span.name).collect()
    }

    #[test]
    fn the_last_begun_span_is_told_with_those_around_it() {
        // 1 > 2 > 4 in one thread, 3 in another one; 5 has ended.
        let mut open = spans([(10, None, 1, 0), (20, None, 2, 1), (50, Some(60), 5, 4)].into_iter());
        open.add(spans([(30, None, 3, 0), (40, None, 4, 2)].into_iter()));
        assert_eq!((open.count, names(&open)), (4, vec![1, 2, 4]));
        assert_eq!(names(&OpenSpans::default()), Vec::<i64>::new());
    }

    #[test]
    fn a_million_open_spans_and_parents_in_a_circle_are_bounded() {
        let mut open = OpenSpans::default();
        for block in 0..20 {
            open.add(spans((1..50_000).map(|i| (block * 50_000 + i, None, i, i % 7 + 1))));
        }
        assert_eq!((open.count, open.kept.len()), (20 * 49_999, MAX_OPEN_SPANS));
        assert!(open.kept.iter().all(|span| span.start > 998_000), "the last begun ones");
        let circle = spans([(1, None, 1, 2), (2, None, 2, 1)].into_iter());
        assert_eq!(names(&circle).len(), MAX_NAMES + 1);
    }

    #[test]
    fn names_are_short_and_no_terminal_commands() {
        assert_eq!(name_of(Some(b"a\x1b[31mb\n")), "a[31mb");
        assert_eq!(name_of(None), "(lost)");
        assert_eq!(name_of(Some(&[b'x'; 100])).len(), MAX_NAME_CHARS + 3);
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(exit_text(ProcessExit::Signal(11)), "died by signal 11 (SIGSEGV)");
        assert_eq!(exit_text(ProcessExit::Signal(40)), "died by signal 40");
    }
}
