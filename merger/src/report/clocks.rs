use super::Report;
use crate::agree::clock_file::ClockFile;
use crate::agree::clocks::{JobClocks, MERGED};
use crate::agree::nodes::Nodes;
use crate::clock::{DomainFit, Method};
use crate::collectives::late::{duration, grouped};
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};

/// Lines about clocks at most; of more, those that need a look are told one by one.
const MOST_LINES: usize = 24;

/// How one clock domain was aligned, and how well.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClockRow {
    /// Names of the nodes that have this boot id.
    pub hosts: Vec<String>,
    /// The boot.
    pub boot_id: String,
    /// Inode of the time namespace.
    pub time_namespace: u64,
    /// How.
    pub method: Method,
    /// Bursts of probes between it and other nodes.
    pub probes: u64,
    /// Collectives in which it was compared with other nodes.
    pub collectives: u64,
    /// Added to its BOOTTIME in the middle of the run, ns.
    pub offset_ns: i64,
    /// How much faster than the reference's its clock was, parts per million.
    pub drift_ppm: f64,
    /// Job times are off by no more than this in about 95 of 100 cases, ns. `null` if nothing is known.
    pub bar_ns: Option<i64>,
    /// The same, and for certain, ns.
    pub hard_ns: Option<i64>,
    /// Jumps of its clock.
    pub steps: usize,
    /// Times at which certain bounds contradict each other: some observation is wrong.
    pub contradictions: u64,
    /// How often one of its ranks left a collective before another one entered whom it waits for, by the aligned
    /// times.
    pub violations: u64,
    /// Guid of the former merge that did this, against a reference of its own; its times were not touched again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_merge: Option<String>,
}

impl ClockRow {
    pub(super) fn new(domain: &ClockDomain, clocks: &JobClocks, nodes: &Nodes) -> ClockRow {
        let fit = clocks.domain_fit(domain);
        let hosts = nodes.nodes().iter().filter(|n| n.boot_id == domain.boot_id);
        ClockRow {
            hosts: hosts.map(|n| n.hostname.clone()).collect(),
            boot_id: domain.boot_id.clone(),
            time_namespace: if domain.time_namespace == MERGED { 0 } else { domain.time_namespace },
            method: fit.method,
            probes: fit.probes,
            collectives: fit.collectives,
            offset_ns: fit.offset,
            drift_ppm: fit.drift_ppm,
            bar_ns: clocks.usual_bar(domain),
            hard_ns: usual_bound(fit).map(|ns| ns.saturating_add(clocks.beyond_observed(domain))),
            steps: fit.steps.len(),
            contradictions: fit.contradictions,
            violations: clocks.violations.get(domain).copied().unwrap_or(0),
            former_merge: None,
        }
    }

    /// The domain.
    pub(super) fn domain(&self) -> ClockDomain {
        ClockDomain { boot_id: self.boot_id.clone(), time_namespace: self.time_namespace }
    }

    /// How it was aligned.
    fn words(&self, align: &str) -> String {
        let by = match self.method {
            Method::Reference => return format!("reference, times unchanged{}", self.troubles()),
            Method::None => return not_aligned(align),
            Method::Fusion => format!("{} and {}", self.by_probes(), self.by_collectives()),
            Method::Probes => self.by_probes(),
            Method::Collectives => self.by_collectives(),
            Method::ClockFile => "the clock file".to_owned(),
            Method::RealtimeAnchors => "the REALTIME anchors, as exact as the nodes' NTP".to_owned(),
        };
        let bar = match self.bar_ns {
            Some(bar) => format!("bar {}", duration(bar)),
            None => "bar not known".to_owned(),
        };
        let hard = self.hard_ns.map_or(String::new(), |ns| format!(", certain to {}", duration(ns)));
        let (offset, drift) = (signed(self.offset_ns), self.drift_ppm);
        format!("{offset} ns, drift {drift:+.3} ppm, {bar}{hard}, by {by}{}", self.troubles())
    }

    /// The more, the more a user should know of it.
    fn urgency(&self) -> (u8, i64) {
        let urgent = match self.method {
            Method::Reference if self.former_merge.is_none() => 4,
            Method::None => 3,
            _ if self.steps as u64 + self.contradictions + self.violations > 0 => 2,
            _ => 1,
        };
        (urgent, self.bar_ns.unwrap_or(i64::MAX))
    }

    fn by_probes(&self) -> String {
        format!("{} bursts of probes", grouped(self.probes))
    }

    fn by_collectives(&self) -> String {
        format!("{} collectives", grouped(self.collectives))
    }

    fn troubles(&self) -> String {
        let all = [
            (self.steps as u64, "jumps of its clock"),
            (self.contradictions, "contradictions: a collective was matched wrongly, or a clock jumped"),
            (self.violations, "times its ranks left a collective before others came"),
        ];
        let told = all.iter().filter(|(n, _)| *n > 0);
        told.map(|(n, what)| format!("; {} {what}", grouped(*n))).collect()
    }
}

/// What there is to say of bursts that are not used.
pub(super) fn impossible_bursts(count: u64) -> Option<String> {
    let bursts = if count == 1 { "burst of probes has" } else { "bursts of probes have" };
    (count > 0).then(|| {
        format!(
            "{} {bursts} times at which the job did not run, and tell nothing of the clocks",
            grouped(count)
        )
    })
}

/// Why times of a clock stay as they are, and what can be done about it.
fn not_aligned(align: &str) -> String {
    let why = match align {
        "auto" => {
            let next = "record with rpd-collect, or give --clock-file FILE";
            return format!(
                "nothing is known of its clock; times unchanged, and not comparable with others: {next}"
            );
        }
        "none" => return "not aligned, as --align none says; times unchanged".to_owned(),
        "probes" => "no probes reach it",
        "collectives" => "no collectives reach it, or too few",
        _ => "no wall clock is known of it",
    };
    format!(
        "{why}: not aligned, times unchanged and not comparable with others; --align auto uses all there is"
    )
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    format!("{sign}{}", grouped(ns.unsigned_abs()))
}

/// The middle one of what is certain over time, ns.
fn usual_bound(fit: &DomainFit) -> Option<i64> {
    let certain = |(low, high): (i64, i64)| low.saturating_abs().max(high.saturating_abs());
    let mut bounds: Vec<i64> = fit.bars.iter().filter_map(|knot| knot.hard.map(certain)).collect();
    bounds.sort_unstable();
    bounds.get(bounds.len() / 2).copied()
}

/// The domains that are told, the reference first, then in the order of the nodes.
pub(super) fn shown_domains(clocks: &JobClocks, nodes: &Nodes) -> Vec<ClockDomain> {
    let mut domains = clocks.domains.clone();
    // Nodes of which no clock set came along are in no domain that has one.
    for node in nodes.nodes() {
        if !domains.iter().any(|d| d.boot_id == node.boot_id) {
            domains.push(ClockDomain { boot_id: node.boot_id.clone(), time_namespace: 0 });
        }
    }
    // Clocks that no process read are nobody's.
    domains.retain(|d| nodes.nodes().iter().any(|n| n.boot_id == d.boot_id));
    let place = |boot_id: &str| nodes.nodes().iter().position(|n| n.boot_id == *boot_id);
    domains.sort_by_key(|d| (*d != clocks.reference, place(&d.boot_id), d.time_namespace));
    domains
}

impl Report {
    /// Label and text of each line about clocks.
    pub(super) fn clock_lines(&self) -> Vec<(&'static str, String)> {
        let mut urgent: Vec<usize> = (0..self.clocks.len()).collect();
        urgent.sort_by_key(|i| (std::cmp::Reverse(self.clocks[*i].urgency()), *i));
        let (shown, rest) = urgent.split_at(urgent.len().min(MOST_LINES));
        let mut shown = shown.to_vec();
        shown.sort_unstable();
        let line = |i: &usize| ("clock", self.clock_line(&self.clocks[*i]));
        let mut lines: Vec<_> = shown.iter().map(line).collect();
        if !rest.is_empty() {
            let bars: Vec<i64> = rest.iter().filter_map(|i| self.clocks[*i].bar_ns).collect();
            let ends = bars.iter().min().zip(bars.iter().max());
            let bars = ends.map_or(String::new(), |(least, most)| {
                format!(", bars from {} to {}", duration(*least), duration(*most))
            });
            lines.push(("clock", format!("and {} more{bars}; --json lists all", rest.len())));
        }
        let has_bar = |row: &ClockRow| row.bar_ns.is_some_and(|bar| bar > 0);
        if self.clocks.iter().any(has_bar) {
            let certain = match self.clocks.iter().any(|row| row.hard_ns.is_some()) {
                true => ", and by what is certain never",
                false => "",
            };
            let text = format!("times are off by no more than the bar in about 95 of 100 cases{certain}");
            lines.push(("bar", text));
        }
        lines
    }

    fn clock_line(&self, row: &ClockRow) -> String {
        let hosts = row.hosts.join(", ");
        let words = row.words(&self.align);
        if row.former_merge.is_some() {
            return format!("{hosts}: as a former merge left it: {words}");
        }
        if row.method != Method::Reference {
            return format!("{hosts}: {words}");
        }
        let others = match self.clocks.len() {
            0 | 1 => "",
            _ => "; others are brought to its CLOCK_BOOTTIME",
        };
        // Whose node the reference should be.
        let instead = if self.missing_ranks.contains(&0) { "; of rank 0 nothing is there" } else { "" };
        format!("{hosts}: {words}{others}{instead}")
    }

    /// Notes what of a clock file has no use.
    pub fn note_clock_file(&mut self, file: &ClockFile, clocks: &JobClocks, nodes: &Nodes) {
        let names: Vec<Vec<String>> = clocks.domains.iter().map(|domain| nodes.names(domain)).collect();
        self.notes.extend(file.unused(&names, &nodes.names(&clocks.reference)));
    }
}
