//! Summary lines about clocks: a table, followed by facts that do not fit into a table.

use super::MergeReport;
use super::clocks::{ClockRow, names};
use rpd_clocks::AlignMethod;
use rpd_console::wording::{counted, duration, grouped};
use rpd_shard::record::ClockDomain;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of clocks for which the table has one line each.
const MAX_TABLE_CLOCKS: usize = 24;
/// Number of clocks in the table if there are more; the most urgent ones are chosen.
const MAX_SHOWN_CLOCKS: usize = 12;
/// Maximum number of names in a line about several clocks.
const MAX_NAMES: usize = 4;

/// Column headings; the first and the last column are left-aligned.
const HEADINGS: [&str; COLUMNS] =
    ["node", "offset (ns)", "drift (ppm)", "error bound", "certain", "aligned by"];
const COLUMNS: usize = 6;

impl MergeReport {
    /// Returns label and text of each line about clocks.
    pub(super) fn clock_lines(&self) -> Vec<(&'static str, String)> {
        let names = names(&self.clocks);
        if let ([row], [name]) = (self.clocks.as_slice(), names.as_slice())
            && row.is_reference()
        {
            let one = ("clock", format!("one clock, of {name}: times unchanged"));
            return std::iter::once(one).chain(self.conversions(&names)).collect();
        }
        let (unknown, known): (Vec<usize>, Vec<usize>) =
            (0..self.clocks.len()).partition(|place| self.clocks[*place].method == AlignMethod::None);
        let (shown, rest) = self.chosen(known);
        let rows: Vec<[String; COLUMNS]> =
            shown.iter().map(|place| self.cells(&self.clocks[*place], &names[*place])).collect();
        let mut lines = table(&rows);
        lines.extend(self.rest(&rest));
        lines.extend(self.unknown(&unknown, &names));
        let mut lines: Vec<_> = lines.into_iter().map(|line| ("clock", line)).collect();
        lines.extend(self.legend(&shown).map(|text| ("bound", text)));
        lines.extend(self.conversions(&names));
        lines
    }

    /// Returns the lines about conversions from other clocks of a node to its BOOTTIME.
    fn conversions(&self, names: &[String]) -> Vec<(&'static str, String)> {
        let of = |(row, name): (&ClockRow, &String)| -> Vec<String> {
            row.converted.iter().map(|conversion| format!("{name}: {}", conversion.line())).collect()
        };
        let lines: Vec<String> = self.clocks.iter().zip(names).flat_map(of).collect();
        let more = lines.len().saturating_sub(MAX_TABLE_CLOCKS);
        let mut shown: Vec<_> =
            lines.into_iter().take(MAX_TABLE_CLOCKS).map(|line| ("converted", line)).collect();
        if more > 0 {
            shown.push(("converted", format!("and {more} more; rpd-merge --json lists all")));
        }
        shown
    }

    /// Returns the clocks in the table and the others. The table has all clocks, or the reference and the most urgent
    /// ones, in the order of nodes.
    fn chosen(&self, mut known: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
        if known.len() <= MAX_TABLE_CLOCKS {
            return (known, Vec::new());
        }
        known.sort_by_key(|place| (Reverse(self.clocks[*place].urgency()), *place));
        let rest = known.split_off(MAX_SHOWN_CLOCKS);
        known.sort_unstable();
        (known, rest)
    }

    fn cells(&self, row: &ClockRow, name: &str) -> [String; COLUMNS] {
        let by = self.by(row);
        if row.is_reference() {
            return [name.to_owned(), String::new(), String::new(), String::new(), String::new(), by];
        }
        let drift = match row.drift_bar_ppm {
            Some(bar) => with_bar(row.drift_ppm, bar),
            // Wall clocks do not show a drift, and a clock file need not contain one.
            None if row.method == AlignMethod::RealtimeAnchors => "not known".to_owned(),
            None if row.method == AlignMethod::ClockFile && row.drift_ppm == 0.0 => "not known".to_owned(),
            None => format!("{:+.3}", row.drift_ppm),
        };
        let bar = row.bar_ns.map_or("not known".to_owned(), duration);
        let hard = row.hard_ns.map_or(String::new(), duration);
        [name.to_owned(), signed(row.offset_ns), drift, bar, hard, by]
    }

    /// Returns how a clock was aligned, and the problems found.
    fn by(&self, row: &ClockRow) -> String {
        let probes = || format!("probes ({})", counted(row.probes, "burst"));
        let collectives = || format!("collectives ({})", grouped(row.collectives));
        let by = match row.method {
            AlignMethod::Reference if row.previous_merge.is_some() => {
                "reference of a previous merge".to_owned()
            }
            // The reference should be the node of rank 0.
            AlignMethod::Reference if self.missing_ranks.contains(&0) => {
                "reference, times unchanged; of rank 0 nothing is there".to_owned()
            }
            AlignMethod::Reference => "reference, times unchanged".to_owned(),
            AlignMethod::None => "nothing".to_owned(),
            AlignMethod::Fusion => format!("{} and {}", probes(), collectives()),
            AlignMethod::Probes if row.collectives_refuted => {
                format!("{}; its collectives are left out", probes())
            }
            AlignMethod::Probes => probes(),
            AlignMethod::Collectives => collectives(),
            AlignMethod::ClockFile => "the clock file".to_owned(),
            AlignMethod::RealtimeAnchors => "wall clocks, as exact as NTP".to_owned(),
        };
        let is_adopted = row.previous_merge.is_some() && !row.is_reference();
        let of_previous = if is_adopted { " in a previous merge" } else { "" };
        format!("{by}{of_previous}{}", row.troubles())
    }

    /// Returns a line with the range of error bounds of the clocks that are not in the table.
    fn rest(&self, rest: &[usize]) -> Option<String> {
        let bars: Vec<i64> = rest.iter().filter_map(|place| self.clocks[*place].bar_ns).collect();
        let ends = bars.iter().min().zip(bars.iter().max());
        let bars = ends.map_or(String::new(), |(least, most)| {
            format!(", error bounds from {} to {}", duration(*least), duration(*most))
        });
        (!rest.is_empty())
            .then(|| format!("and {} more{bars}; rpd-merge --json lists all", grouped(rest.len() as u64)))
    }

    /// Returns the lines about clocks that are not aligned, one for each reason.
    fn unknown(&self, unknown: &[usize], names: &[String]) -> Vec<String> {
        let of = |wanted: fn(&ClockRow) -> bool| -> Vec<&str> {
            let some = unknown.iter().filter(|place| wanted(&self.clocks[**place]));
            some.map(|place| names[*place].as_str()).collect()
        };
        let line = |names: Vec<&str>, words: &dyn Fn(bool) -> String| {
            (!names.is_empty()).then(|| format!("{}: {}", some_of(&names), words(names.len() == 1)))
        };
        let lines = [
            line(of(|row| row.previous_merge.is_none() && !row.is_of_rpd()), &|one| self.not_aligned(one)),
            line(of(|row| row.previous_merge.is_none() && row.is_of_rpd()), &|_| {
                "of a merged .rpd that does not say that its nodes have one time: times unchanged, and maybe not \
                 comparable with others; merge what it was made of"
                    .to_owned()
            }),
            line(of(|row| row.previous_merge.is_some()), &|_| {
                "not aligned by a previous merge; times unchanged, and not comparable with others".to_owned()
            }),
        ];
        lines.into_iter().flatten().collect()
    }

    /// Returns why times of clocks are unchanged, and what the user can do.
    fn not_aligned(&self, one: bool) -> String {
        let (its, it) = if one { ("its clock", "it") } else { ("their clocks", "them") };
        let why = match self.align.as_str() {
            "auto" => {
                let next = match self.merged_before {
                    true => "merge what it was made of, with --clock-file FILE",
                    false if self.has_clock_file => "record with rpd-collect, or name them in the clock file",
                    false => "record with rpd-collect, or give --clock-file FILE",
                };
                return format!(
                    "nothing is known of {its}; times unchanged, and not comparable with others; {next}"
                );
            }
            "none" => return "not aligned, as --align none says; times unchanged".to_owned(),
            "probes" => format!("no probes reach {it}"),
            "collectives" => format!("no collectives reach {it}, or too few"),
            _ => format!("no wall clock is known of {it}"),
        };
        format!(
            "{why}: not aligned, times unchanged and not comparable with others; --align auto uses all there is"
        )
    }

    /// Returns the meaning of the table's columns, if they are shown.
    fn legend(&self, shown: &[usize]) -> Option<String> {
        let rows = || shown.iter().map(|place| &self.clocks[*place]).filter(|row| !row.is_reference());
        let has_bar = rows().any(|row| row.bar_ns.is_some());
        let certain = match rows().any(|row| row.hard_ns.is_some()) {
            true => ", and never by more than is certain",
            false => "",
        };
        has_bar.then(|| {
            format!("times are off by no more than the error bound in about 95 of 100 cases{certain}")
        })
    }

    /// Adds a note about nodes that no probes reach although other nodes are probed, and names the logs with the
    /// reason.
    pub fn note_unprobed(&mut self, logs: &BTreeMap<ClockDomain, String>) {
        let own = || self.clocks.iter().filter(|row| row.previous_merge.is_none());
        let asked = matches!(self.align.as_str(), "auto" | "probes") && own().any(|row| row.probes > 0);
        // No probes are expected for databases without shards.
        let is_missed = |row: &&ClockRow| !row.is_reference() && row.probes == 0 && row.time_namespace != 0;
        let missed: Vec<&ClockRow> = own().filter(is_missed).collect();
        if self.merged_before || !asked || missed.is_empty() {
            return;
        }
        let names: Vec<String> = missed.iter().map(|row| row.name()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let known: Vec<&str> = missed.iter().filter_map(|row| row.log(logs)).collect();
        let ranks: Vec<u32> = missed.iter().flat_map(|row| &row.ranks).copied().collect();
        let logs = match (known.as_slice(), ranks.as_slice()) {
            ([], []) => "the logs beside their shards may contain the reason".to_owned(),
            ([], [rank]) => format!("rank-{rank:05}.log beside its shard may contain the reason"),
            ([], [first, ..]) => {
                format!(
                    "rank-{first:05}.log and those of their other ranks, beside the shards, may contain the reason"
                )
            }
            ([log], _) => format!("{log} contains the reason"),
            ([log, ..], _) => {
                format!("{log} and {} contain the reason", counted(known.len() as u64 - 1, "other log"))
            }
        };
        self.notes.push(format!("no probes went between {} and other nodes: {logs}", some_of(&names)));
    }
}

impl ClockRow {
    /// Returns the log with the reason why this clock was not measured.
    fn log<'a>(&self, logs: &'a BTreeMap<ClockDomain, String>) -> Option<&'a str> {
        logs.get(&self.domain()).map(String::as_str)
    }

    /// Returns the priority for printing; higher values are more urgent.
    pub(super) fn urgency(&self) -> (u8, i64) {
        let urgent = match self.method {
            AlignMethod::Reference if self.previous_merge.is_none() => 3,
            _ if self.steps as u64 + self.contradictions + self.violations > 0 => 2,
            _ => 1,
        };
        (urgent, self.bar_ns.unwrap_or(i64::MAX))
    }

    /// Returns whether it is a node of a `.rpd` that was merged from several, with a clock of its own.
    fn is_of_rpd(&self) -> bool {
        self.hosts.iter().any(|host| host.starts_with("unknown-") && host.contains(" (node "))
    }

    fn troubles(&self) -> String {
        let all = [
            (self.steps as u64, "jump", " of its clock"),
            (
                self.contradictions,
                "contradiction",
                " with what is certain: a collective was matched wrongly, or a clock jumped",
            ),
            (self.violations, "time", " its ranks left a collective before others came"),
        ];
        let parts = all.iter().filter(|(n, ..)| *n > 0);
        parts.map(|(n, thing, what)| format!("; {}{what}", counted(*n, thing))).collect()
    }
}

/// Formats the rows with headings. Omits empty columns, and omits the headings if only names and methods remain.
fn table(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let heads = HEADINGS.map(str::to_owned);
    let is_used = |column: usize| rows.iter().any(|row| !row[column].is_empty());
    let used: Vec<usize> = (0..COLUMNS).filter(|column| is_used(*column)).collect();
    let heads = if used.len() > 2 { Some(&heads) } else { None };
    let all = || heads.into_iter().chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<(usize, usize)> = used.iter().map(|column| (*column, width(*column))).collect();
    let line = |row: &[String; COLUMNS]| {
        let cell = |(column, width): &(usize, usize)| match column {
            0 => format!("{:<width$}", row[*column]),
            _ if column + 1 == COLUMNS => row[*column].clone(),
            _ => format!("{:>width$}", row[*column]),
        };
        widths.iter().map(cell).collect::<Vec<_>>().join("  ")
    };
    all().map(line).collect()
}

/// Formats a drift with its error bound.
fn with_bar(drift: f64, bar: f64) -> String {
    match bar < 10.0 {
        true => format!("{drift:+.3} +- {:.3}", (bar * 1e3).ceil() / 1e3),
        false => format!("{drift:+.0} +- {:.0}", bar.ceil()),
    }
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    format!("{sign}{}", grouped(ns.unsigned_abs()))
}

fn some_of(names: &[&str]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        Some(more @ 1..) => {
            format!("{} and {} more", names[..MAX_NAMES].join(", "), grouped(more as u64))
        }
        _ => names.join(", "),
    }
}

/// Returns a note about bursts that are not used.
pub(super) fn impossible_bursts(count: u64) -> Option<String> {
    let (has, is) = if count == 1 { ("has", "is") } else { ("have", "are") };
    (count > 0).then(|| {
        format!(
            "{} of probes {has} times at which the job did not run, and {is} ignored",
            counted(count, "burst")
        )
    })
}
