use super::Report;
use crate::agree::clock_file::ClockFile;
use crate::agree::clocks::{JobClocks, MERGED};
use crate::agree::nodes::Nodes;
use crate::clock::{DomainFit, Method};
use crate::collectives::late::{duration, grouped};
use rpd_shard::record::ClockDomain;
use serde::Serialize;

/// How one clock domain was aligned, and how well.
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
    /// Collectives that its ranks left before others entered, by the aligned times.
    pub violations: u64,
}

impl ClockRow {
    fn new(domain: &ClockDomain, clocks: &JobClocks, nodes: &Nodes) -> ClockRow {
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
            bar_ns: fit.usual_bar(),
            hard_ns: usual_bound(fit),
            steps: fit.steps.len(),
            contradictions: fit.contradictions,
            violations: clocks.violations.get(domain).copied().unwrap_or(0),
        }
    }

    /// One line.
    pub(super) fn line(&self) -> String {
        let hosts = self.hosts.join(", ");
        let by = match self.method {
            Method::Reference => return format!("{hosts}: reference, times unchanged{}", self.troubles()),
            Method::None => return format!("{hosts}: nothing is known of its clock; times unchanged"),
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
        format!("{hosts}: {offset} ns, drift {drift:+.3} ppm, {bar}{hard}, by {by}{}", self.troubles())
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
            (self.contradictions, "contradictions"),
            (self.violations, "collectives left before others came"),
        ];
        let told = all.iter().filter(|(n, _)| *n > 0);
        told.map(|(n, what)| format!("; {} {what}", grouped(*n))).collect()
    }
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

pub(super) fn clock_rows(clocks: &JobClocks, nodes: &Nodes) -> Vec<ClockRow> {
    shown_domains(clocks, nodes).iter().map(|domain| ClockRow::new(domain, clocks, nodes)).collect()
}

impl Report {
    /// Notes what of a clock file has no use.
    pub fn note_clock_file(&mut self, file: &ClockFile, clocks: &JobClocks, nodes: &Nodes) {
        let names: Vec<Vec<String>> = clocks.domains.iter().map(|domain| nodes.names(domain)).collect();
        self.notes.extend(file.unused(&names, &nodes.names(&clocks.reference)));
    }
}
