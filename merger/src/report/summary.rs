use crate::agree::nodes::Nodes;
use crate::clock::{Clocks, Method};
use crate::input::plan::Plan;
use rpd_shard::record::Loss;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Warnings of one kind that are printed one by one; the rest is counted.
const SHOWN: usize = 10;

/// The outcome of a merge, the same in all merge ranks.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The run.
    pub run_id: String,
    /// The database.
    pub output: PathBuf,
    /// Number of shards read.
    pub shards: usize,
    /// Number of ranks in them.
    pub ranks: usize,
    /// Number of processes in them.
    pub processes: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Ranks that the job had and no shard holds.
    pub missing_ranks: Vec<u32>,
    /// Ranks whose processes called nothing that is recorded.
    pub silent_ranks: Vec<u32>,
    /// Ranks of which two collectors wrote a shard.
    pub repeated_ranks: Vec<u32>,
    /// Shards that are left out, and why.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Shards whose collector did not finish them.
    pub unfinished: Vec<PathBuf>,
    /// Rows read per table of the shards.
    pub rows_read: Vec<RowCount>,
    /// Rows per table: written, or counted in a dry run.
    pub rows: Vec<RowCount>,
    /// Of the rows written, those that stand for lost ones.
    pub placeholders: Vec<RowCount>,
    /// Strings of all shards, and distinct ones.
    pub strings: (u64, u64),
    /// Each clock domain.
    pub clocks: Vec<ClockRow>,
    /// The loss ledger.
    pub losses: Vec<LossRow>,
    /// Values that could not be kept: table, column, how many. Mostly references to lost rows, which
    /// are NULL now or point at a placeholder.
    pub replaced: Vec<(String, String, u64)>,
    /// Damaged places.
    pub warnings: Vec<String>,
    /// Wall time of the merge.
    pub seconds: f64,
}

/// Rows of one table.
#[derive(Debug, Serialize)]
pub struct RowCount {
    /// Its name.
    pub table: String,
    /// How many were written.
    pub rows: u64,
}

/// How one clock domain was joined.
#[derive(Debug, Serialize)]
pub struct ClockRow {
    /// Names of the nodes that have this boot id.
    pub hosts: Vec<String>,
    /// The boot.
    pub boot_id: String,
    /// Inode of the time namespace.
    pub time_namespace: u64,
    /// How.
    pub method: Method,
    /// Added to its BOOTTIME, ns.
    pub offset_ns: i64,
}

/// One sum of the loss ledger.
#[derive(Debug, Serialize)]
pub struct LossRow {
    /// The table, where it is known.
    pub table: Option<String>,
    /// Why.
    pub cause: &'static str,
    /// How many rows; `null` where nobody knows.
    pub rows: Option<u64>,
}

impl Report {
    /// What is known once all ranks agree. `losses` are summed per table and cause.
    pub fn new(plan: &Plan, warnings: &[String], losses: &[Loss], clocks: &Clocks, nodes: &Nodes) -> Report {
        Report {
            run_id: plan.run_id.clone(),
            output: plan.output.clone(),
            shards: plan.shards.len(),
            ranks: plan.ranks,
            processes: 0,
            nodes: nodes.nodes().len(),
            missing_ranks: plan.missing_ranks.clone(),
            silent_ranks: plan.silent_ranks.clone(),
            repeated_ranks: plan.repeated_ranks.clone(),
            unreadable: plan.unreadable.clone(),
            unfinished: plan.shards.iter().filter(|s| !s.complete).map(|s| s.path.clone()).collect(),
            rows_read: Vec::new(),
            rows: Vec::new(),
            placeholders: Vec::new(),
            strings: (0, 0),
            clocks: clock_rows(clocks, nodes),
            losses: losses.iter().map(loss_row).collect(),
            replaced: Vec::new(),
            warnings: warnings.to_vec(),
            seconds: 0.0,
        }
    }

    /// Why this run is not whole, for `--strict`; `None` if it is.
    pub fn incomplete(&self) -> Option<String> {
        let without = "merge without --strict to take what is there";
        if let Some((path, reason)) = self.unreadable.first() {
            return Some(format!("{}; {without}", left_out(path, reason)));
        }
        if !self.missing_ranks.is_empty() {
            return Some(format!("no shard of rank {}; {without}", ranges(&self.missing_ranks)));
        }
        if !self.repeated_ranks.is_empty() {
            return Some(format!("{}; {without}", self.repeated()));
        }
        if let Some(path) = self.unfinished.first() {
            return Some(format!("{} was not finished by its collector; {without}", path.display()));
        }
        if let Some(loss) = self.losses.first() {
            return Some(format!("{}; {without}", loss.line()));
        }
        self.warnings.first().map(|warning| format!("{warning}; {without}"))
    }

    /// One line on stderr for each thing that is not whole.
    pub fn print_warnings(&self) {
        for (path, reason) in &self.unreadable {
            eprintln!("warning: left out: {}", left_out(path, reason));
        }
        if !self.missing_ranks.is_empty() {
            eprintln!(
                "warning: no shard of rank {}: did its collector start, and did the rank call roctx or MPI?",
                ranges(&self.missing_ranks)
            );
        }
        if !self.repeated_ranks.is_empty() {
            eprintln!("warning: {}", self.repeated());
        }
        let unfinished = self.unfinished.iter().map(|path| {
            format!("{} was not finished by its collector: merged as far as it goes", path.display())
        });
        let all: Vec<String> = unfinished.chain(self.warnings.iter().cloned()).collect();
        all.iter().take(SHOWN).for_each(|line| eprintln!("warning: {line}"));
        if all.len() > SHOWN {
            eprintln!("warning: and {} more; --json lists all", all.len() - SHOWN);
        }
    }

    fn repeated(&self) -> String {
        let ranks = ranges(&self.repeated_ranks);
        format!(
            "run {}: more than one collector was rank {ranks}: two jobs share this run id, their rows are in one database",
            self.run_id
        )
    }

    /// The closing summary.
    pub fn summary(&self, dry_run: bool) -> String {
        let mut out = String::new();
        let verb = if dry_run { "would merge" } else { "merged" };
        // A program without launcher has no rank.
        let ranks = match self.ranks {
            0 => String::new(),
            n => format!("{}, ", plural(n, "rank")),
        };
        let mut line = |label: &str, text: String| {
            let _ = writeln!(out, "{label:<10} {text}");
        };
        line(
            verb,
            format!(
                "run {}: {ranks}{} on {}, {} in {:.1} s",
                self.run_id,
                plural(self.processes as usize, "process"),
                plural(self.nodes, "node"),
                plural(self.shards, "shard"),
                self.seconds
            ),
        );
        let rows: Vec<String> = self
            .rows
            .iter()
            .filter(|r| r.rows > 0)
            .map(|r| format!("{} {}", r.table.trim_start_matches("rocpd_"), r.rows))
            .collect();
        if !rows.is_empty() {
            line("rows", rows.join(", "));
        }
        line("strings", format!("{} in shards, {} distinct", self.strings.0, self.strings.1));
        for clock in &self.clocks {
            line("clock", clock.line());
        }
        if !self.silent_ranks.is_empty() {
            let ranks = ranges(&self.silent_ranks);
            line("silent", format!("rank {ranks}: no roctx or MPI call was seen"));
        }
        if !self.missing_ranks.is_empty() {
            line("missing", format!("rank {}", ranges(&self.missing_ranks)));
        }
        if !self.unreadable.is_empty() {
            line("left out", plural(self.unreadable.len(), "shard"));
        }
        match self.losses.as_slice() {
            [] if !self.missing_ranks.is_empty() || !self.unreadable.is_empty() => {
                line("lost", "nothing of what was read".to_owned());
            }
            [] => line("lost", "nothing".to_owned()),
            losses => losses.iter().for_each(|loss| line("lost", loss.line())),
        }
        for (table, column, rows) in &self.replaced {
            line("replaced", format!("{rows} values of {table}.{column} could not be kept"));
        }
        if !dry_run {
            line("output", self.output.display().to_string());
        }
        out
    }
}

impl ClockRow {
    fn line(&self) -> String {
        let hosts = self.hosts.join(", ");
        match self.method {
            Method::Reference => format!("{hosts}: reference, times unchanged"),
            Method::RealtimeAnchors => format!(
                "{hosts}: {:+} ns by the REALTIME anchors, as exact as the nodes' NTP",
                self.offset_ns
            ),
            Method::None => format!("{hosts}: NOT aligned, no clock set was recorded"),
        }
    }
}

impl LossRow {
    fn line(&self) -> String {
        let table = self.table.as_deref().unwrap_or("unknown tables");
        match self.rows {
            Some(rows) => format!("{rows} rows of {table} ({})", self.cause),
            None => format!("an unknown number of rows of {table} ({})", self.cause),
        }
    }
}

fn clock_rows(clocks: &Clocks, nodes: &Nodes) -> Vec<ClockRow> {
    let mut domains: Vec<_> = clocks.domains().cloned().collect();
    if !domains.contains(&clocks.reference) && !nodes.nodes().is_empty() {
        domains.push(clocks.reference.clone());
    }
    // Nodes of which no clock set came along are in no domain that has one.
    for node in nodes.nodes() {
        if !domains.iter().any(|d| d.boot_id == node.boot_id) {
            let boot_id = node.boot_id.clone();
            domains.push(rpd_shard::record::ClockDomain { boot_id, time_namespace: 0 });
        }
    }
    // Clocks that no process read are nobody's.
    domains.retain(|d| nodes.nodes().iter().any(|n| n.boot_id == d.boot_id));
    // In the order of the nodes, the reference first.
    let place = |boot_id: &str| nodes.nodes().iter().position(|n| n.boot_id == *boot_id);
    domains.sort_by_key(|d| (*d != clocks.reference, place(&d.boot_id), d.time_namespace));
    let row = |domain: &rpd_shard::record::ClockDomain| {
        let fit = clocks.domain_fit(domain);
        let hosts = nodes.nodes().iter().filter(|n| n.boot_id == domain.boot_id);
        ClockRow {
            hosts: hosts.map(|n| n.hostname.clone()).collect(),
            boot_id: domain.boot_id.clone(),
            time_namespace: domain.time_namespace,
            method: fit.method,
            offset_ns: fit.offset,
        }
    };
    domains.iter().map(row).collect()
}

/// A shard and why it is left out, the path once.
fn left_out(path: &Path, reason: &str) -> String {
    let path = path.display().to_string();
    if reason.contains(&path) { reason.to_owned() } else { format!("{path}: {reason}") }
}

fn loss_row(loss: &Loss) -> LossRow {
    LossRow { table: loss.table.map(|t| t.to_string()), cause: loss.cause.name(), rows: loss.rows }
}

fn plural(n: usize, thing: &str) -> String {
    format!(
        "{n} {thing}{}",
        if n == 1 {
            ""
        } else if thing.ends_with('s') {
            "es"
        } else {
            "s"
        }
    )
}

/// `0-2,5` for 0, 1, 2, 5.
fn ranges(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => parts.push((*rank, *rank)),
        }
    }
    let part = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_slurm_lists_them() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
