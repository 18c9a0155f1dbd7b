//! Report of each clock.

use crate::agree::findings::JobFindings;
use crate::agree::job_clocks::JobClocks;
use crate::input::BoottimeOffset;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use rpd_clocks::{AlignMethod, DomainFit};
use rpd_console::wording::rank_ranges;
use rpd_shard::record::{Clock, ClockDomain};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of hosts that are named per clock.
const MAX_HOSTS: usize = 3;
/// Maximum length of a list of ranks beside a host, characters.
const MAX_RANKS_CHARS: usize = 16;

/// How one clock domain was aligned, and how exactly.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClockRow {
    /// Host names of the nodes with this boot id.
    pub hosts: Vec<String>,
    /// Ranks that read this clock, as far as known.
    #[serde(default)]
    pub ranks: Vec<u32>,
    /// Boot id.
    pub boot_id: String,
    /// Inode of the time namespace.
    pub time_namespace: u64,
    /// Method of alignment.
    pub method: AlignMethod,
    /// Number of probe bursts between this domain and other nodes.
    pub probes: u64,
    /// Number of collectives used to compare it with other nodes.
    pub collectives: u64,
    /// Whether its collectives were ignored because probes contradict them.
    #[serde(default)]
    pub collectives_refuted: bool,
    /// Offset added to its BOOTTIME in the middle of the run, ns.
    pub offset_ns: i64,
    /// Drift: how much faster its clock ran than the reference clock, parts per million.
    pub drift_ppm: f64,
    /// Error bound of the drift, which holds in about 95 of 100 cases, parts per million. `null` if the drift was not
    /// measured between the nodes.
    #[serde(default)]
    pub drift_bar_ppm: Option<f64>,
    /// Error bound of job times, which holds in about 95 of 100 cases, ns: the median over times spread over the run.
    /// `null` if unknown.
    pub bar_ns: Option<i64>,
    /// Certain bound of job times, ns: the maximum over the same times. `null` if there is none at one of them.
    pub hard_ns: Option<i64>,
    /// Number of steps of its clock.
    pub steps: usize,
    /// Number of times at which certain bounds contradict each other, so that some observation is wrong.
    pub contradictions: u64,
    /// Number of times that one of its ranks left a collective before another rank for which it waits entered it, by
    /// the aligned times.
    pub violations: u64,
    /// Other clocks used for its timestamps.
    #[serde(default)]
    pub converted: Vec<ClockConversion>,
    /// Guid of the previous merge that aligned it, with a reference of its own. Its times were not changed again.
    #[serde(default, rename = "former_merge", skip_serializing_if = "Option::is_none")]
    pub previous_merge: Option<String>,
}

/// Conversion of times of another clock to BOOTTIME of their node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClockConversion {
    /// Name of the clock, such as `CLOCK_REALTIME`.
    pub clock: String,
    /// Offset added to the clock, ns; the first one if the clock was set during the run. `null` if unknown; then
    /// times are as recorded.
    pub offset_ns: Option<i64>,
    /// Certain bound of the offset, ns.
    pub hard_ns: Option<i64>,
    /// Number of times that the clock was set while it was observed.
    pub steps: usize,
    /// No shard contains clocks of the node, so its wall clock is assumed to equal that of the reference.
    #[serde(default)]
    pub by_wall_clocks: bool,
}

impl ClockConversion {
    fn of((clock, steps): (Clock, &[BoottimeOffset]), method: AlignMethod) -> ClockConversion {
        let is_wall = clock == Clock::Realtime && method == AlignMethod::RealtimeAnchors;
        ClockConversion {
            by_wall_clocks: is_wall && steps.is_empty(),
            clock: clock.name().to_owned(),
            offset_ns: steps.first().map(|step| step.offset),
            hard_ns: steps.iter().map(|step| step.bracket / 2 + step.bracket % 2).max(),
            steps: steps.len().saturating_sub(1),
        }
    }

    /// Describes the conversion in one line.
    pub(super) fn line(&self) -> String {
        let ClockConversion { clock, offset_ns, hard_ns, steps, by_wall_clocks } = self;
        if *by_wall_clocks {
            return format!("{clock}, taken for that of the reference: no shard is of this node");
        }
        let (Some(offset), Some(hard)) = (offset_ns, hard_ns) else {
            return format!("{clock} as it was recorded: no shard contains its offset to CLOCK_BOOTTIME");
        };
        let set = match steps {
            0 => String::new(),
            1 => "; the clock was set once, and later times are converted with its offset before that"
                .to_owned(),
            n => format!("; the clock was set {n} times, and each time is converted by what it was then"),
        };
        let sign = if *offset < 0 { '-' } else { '+' };
        let ns = offset.unsigned_abs();
        format!(
            "{clock} {sign} {}.{:09} s = CLOCK_BOOTTIME, to {hard} ns{set}",
            ns / 1_000_000_000,
            ns % 1_000_000_000
        )
    }
}

impl ClockRow {
    pub(super) fn new(domain: &ClockDomain, clocks: &JobClocks, found: &JobFindings) -> ClockRow {
        let fit = clocks.domain_fit(domain);
        ClockRow {
            hosts: found.nodes.of_boot(&domain.boot_id).map(|node| node.hostname.clone()).collect(),
            ranks: found.ranks.get(domain).map_or(Vec::new(), |ranks| ranks.iter().copied().collect()),
            boot_id: domain.boot_id.clone(),
            time_namespace: match domain.time_namespace {
                MERGED_TIME_NAMESPACE => 0,
                own => own,
            },
            method: fit.method,
            probes: fit.probes,
            collectives: fit.collectives,
            collectives_refuted: fit.refuted,
            offset_ns: fit.offset,
            drift_ppm: fit.drift_ppm,
            drift_bar_ppm: drift_bar(fit),
            bar_ns: clocks.median_error_bound(domain),
            hard_ns: clocks.max_certain_bound(domain),
            steps: fit.steps.len(),
            contradictions: fit.contradictions,
            violations: clocks.violations.get(domain).copied().unwrap_or(0),
            converted: clocks.conversions(domain).map(|one| ClockConversion::of(one, fit.method)).collect(),
            previous_merge: None,
        }
    }

    /// Returns the clock domain.
    pub(super) fn domain(&self) -> ClockDomain {
        ClockDomain { boot_id: self.boot_id.clone(), time_namespace: self.time_namespace }
    }

    /// Returns whether it is the reference clock of its merge.
    pub(super) fn is_reference(&self) -> bool {
        self.method == AlignMethod::Reference
    }

    /// Returns its hosts and ranks, for example `gpu003 (ranks 8-15)`.
    pub(super) fn name(&self) -> String {
        let ranks = match self.ranks.as_slice() {
            [] => return self.hosts_text(),
            [rank] => format!("rank {rank}"),
            [first, ..] => match rank_ranges(&self.ranks) {
                short if short.len() <= MAX_RANKS_CHARS => format!("ranks {short}"),
                _ => format!("{} ranks from {first}", self.ranks.len()),
            },
        };
        format!("{} ({ranks})", self.hosts_text())
    }

    fn hosts_text(&self) -> String {
        // Host names are read from files, and control characters could manipulate the terminal.
        let shown = |host: &String| host.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let shown: Vec<String> = self.hosts.iter().take(MAX_HOSTS).map(shown).collect();
        match self.hosts.len().checked_sub(MAX_HOSTS) {
            Some(more @ 1..) => format!("{} and {more} more", shown.join(", ")),
            _ => shown.join(", "),
        }
    }
}

/// Returns a name for each row. Rows of the same host are distinguished by ranks, or by boot ids if the ranks are
/// unknown.
pub(super) fn names(rows: &[ClockRow]) -> Vec<String> {
    let name = |row: &ClockRow| {
        let same_host = || rows.iter().filter(|other| other.hosts == row.hosts);
        if !row.ranks.is_empty() || same_host().count() < 2 {
            return row.name();
        }
        let hosts = row.hosts_text();
        match same_host().filter(|other| other.boot_id == row.boot_id).count() {
            1 => format!("{hosts} (boot {})", row.boot_id.chars().take(8).collect::<String>()),
            _ => format!("{hosts} (time namespace {})", row.time_namespace),
        }
    };
    rows.iter().map(name).collect()
}

/// Returns the error bound of the drift, parts per million. It is the sum of the error bounds at both ends of the
/// time span, divided by its length. The errors at both ends can differ, for example after only a few probe bursts,
/// so they do not cancel.
fn drift_bar(fit: &DomainFit) -> Option<f64> {
    if !matches!(fit.method, AlignMethod::Fusion | AlignMethod::Probes | AlignMethod::Collectives) {
        return None;
    }
    let (first, last) = fit.map.bends().next().zip(fit.map.bends().last())?;
    let seconds = last.0.saturating_sub(first.0) as f64 / 1e9;
    let both = fit.bar_at(first)?.saturating_add(fit.bar_at(last)?) as f64;
    (seconds > 0.0).then_some(both / seconds / 1e3)
}

/// Returns the reported domains, the reference first, then in the order of nodes.
pub(super) fn shown_domains(clocks: &JobClocks, found: &JobFindings) -> Vec<ClockDomain> {
    let nodes = &found.nodes;
    let mut domains = clocks.domains.clone();
    let mut boots: BTreeSet<String> = domains.iter().map(|domain| domain.boot_id.clone()).collect();
    // Nodes without any clock set belong to no domain that has one.
    for node in nodes.nodes() {
        if boots.insert(node.boot_id.clone()) {
            domains.push(ClockDomain { boot_id: node.boot_id.clone(), time_namespace: 0 });
        }
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, node) in nodes.nodes().iter().enumerate() {
        places.entry(&node.boot_id).or_insert(place);
    }
    // Omits clocks that no process read.
    domains.retain(|d| places.contains_key(d.boot_id.as_str()));
    let place = |d: &ClockDomain| places.get(d.boot_id.as_str()).copied();
    let first = |d: &ClockDomain| found.ranks.get(d).and_then(|ranks| ranks.first().copied());
    domains.sort_by_cached_key(|d| (*d != clocks.reference, place(d), first(d), d.time_namespace));
    domains
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_clocks::{ErrorKnot, TimeMap};
    use serde_json::json;

    fn row(host: &str, ranks: &[u32], boot: &str, time_namespace: u64) -> ClockRow {
        let row = json!({
            "hosts": [host], "ranks": ranks, "boot_id": boot, "time_namespace": time_namespace,
            "method": "none", "probes": 0, "collectives": 0, "offset_ns": 0, "drift_ppm": 0.0, "bar_ns": null,
            "hard_ns": null, "steps": 0, "contradictions": 0, "violations": 0,
        });
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn clocks_of_one_host_are_told_apart() {
        let many: Vec<u32> = (0..16).map(|i| i * 16 + 3).collect();
        let rows = [
            row("a", &[8, 9, 10], "b1", 1),
            row("a", &[3], "b1", 2),
            row("b", &many, "b2", 1),
            row("c", &[], "b3", 1),
            row("d", &[], "0123456789", 1),
            row("d", &[], "9876543210", 1),
            row("e", &[], "b5", 1),
            row("e", &[], "b5", 2),
            row("f\u{1b}[2J", &[0], "b6", 1),
        ];
        let wanted = [
            "a (ranks 8-10)",
            "a (rank 3)",
            "b (16 ranks from 3)",
            "c",
            "d (boot 01234567)",
            "d (boot 98765432)",
            "e (time namespace 1)",
            "e (time namespace 2)",
            "f?[2J (rank 0)",
        ];
        assert_eq!(names(&rows), wanted);
    }

    #[test]
    fn the_bar_of_the_drift_is_that_of_both_ends() {
        let knot =
            |local: i64, bar: i64| ErrorKnot { local, offset: 0, bar, certain_bounds: None, growth: 100 };
        let second = 1_000_000_000;
        let fit = |method| DomainFit {
            method,
            map: TimeMap::through(vec![(-second, -second), (9 * second, 9 * second)]),
            bars: vec![knot(0, 300), knot(8 * second, 500)],
            ..DomainFit::default()
        };
        // (300 + 100 + 500 + 100) ns over 10 s.
        assert_eq!(drift_bar(&fit(AlignMethod::Probes)), Some(0.1));
        assert_eq!(drift_bar(&fit(AlignMethod::RealtimeAnchors)), None);
    }
}
