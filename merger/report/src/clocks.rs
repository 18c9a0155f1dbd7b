//! Alignment of the clocks: `rpd-report clocks`. The merge stored its results in the database.

use crate::input::{ReportRun, clock_error_bound};
use crate::report::{Cell, Report, ReportTable, Unavailable};
use rpd_verdict::{short, shown_time};
use serde_json::Value as Json;
use std::collections::BTreeSet;

const COLUMNS: [(&str, &str); 14] = [
    ("hosts", "hosts"),
    ("ranks", "ranks"),
    ("boot_id", ""),
    ("time_namespace", ""),
    ("method", "method"),
    ("probes", "probes"),
    ("collectives", "collectives"),
    ("offset_ns", "offset"),
    ("drift_ppm", "drift ppm"),
    ("drift_error_bound_ppm", "+-"),
    ("error_bound_ns", "error bound"),
    ("certain_bound_ns", "certain bound"),
    ("steps", "steps"),
    ("contradictions", "contradictions"),
];

/// Why values of a column are not known.
const REASONS: [(&str, &str); 3] = [
    ("drift_error_bound_ppm", "the drift of these clocks was not measured between nodes"),
    ("error_bound_ns", "the merge did not compare these clocks with others"),
    ("certain_bound_ns", "no observation bounds these clocks at all times"),
];

/// Makes the report.
pub(crate) fn report_clocks(run: &ReportRun, max_rows: usize) -> Report {
    let domains = run.clock_domains();
    let mut table = ReportTable::new("clocks", &COLUMNS);
    let mut unavailable = vec![Unavailable::new("run.start_ns", "this subcommand reads no rows")];
    if domains.is_empty() {
        unavailable.push(
            Unavailable::new("clocks", "the database does not describe its clocks")
                .recorded_by(Some("rpd-collect")),
        );
    }
    for domain in &domains {
        let (count, ns) = (
            |key: &str| number(domain, key),
            |key: &str| Cell::known(domain[key].as_i64(), Cell::Nanoseconds),
        );
        let row = vec![
            Cell::Texts(texts(&domain["hosts"])),
            Cell::Ranks(ranks(&domain["ranks"])),
            text(domain, "boot_id"),
            count("time_namespace"),
            text(domain, "method"),
            count("probes"),
            count("collectives"),
            ns("offset_ns"),
            Cell::known(domain["drift_ppm"].as_f64(), Cell::Ppm),
            Cell::known(domain["drift_bar_ppm"].as_f64(), Cell::Ppm),
            Cell::known(clock_error_bound(domain), Cell::Nanoseconds),
            ns("hard_ns"),
            count("steps"),
            count("contradictions"),
        ];
        table.push_up_to(max_rows, row);
    }
    unavailable.extend(table.unknown_values(&REASONS));
    let clock = format!("times are those of {}", run.database.clock());
    Report {
        subject: "clocks",
        run: run.head(),
        tables: vec![table],
        notes: vec![clock],
        unavailable,
        screen: None,
    }
}

fn number(of: &Json, key: &str) -> Cell {
    Cell::known(of[key].as_u64(), Cell::Count)
}

fn text(of: &Json, key: &str) -> Cell {
    Cell::known(of[key].as_str(), |text| Cell::Text(text.to_owned()))
}

fn texts(list: &Json) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}

fn ranks(list: &Json) -> Vec<u32> {
    let numbers = list.as_array().into_iter().flatten().filter_map(Json::as_u64);
    numbers.filter_map(|rank| u32::try_from(rank).ok()).collect()
}

/// Error bounds of the times of ranks and nodes.
#[derive(Debug)]
pub(crate) struct ClockBounds {
    domains: Vec<ClockBound>,
}

#[derive(Debug)]
struct ClockBound {
    ranks: Vec<u32>,
    hosts: Vec<String>,
    error_bound: Option<i64>,
}

impl ClockBounds {
    pub(crate) fn of(run: &ReportRun) -> ClockBounds {
        let bound = |domain: &Json| ClockBound {
            ranks: ranks(&domain["ranks"]),
            hosts: texts(&domain["hosts"]),
            error_bound: clock_error_bound(domain),
        };
        ClockBounds { domains: run.clock_domains().iter().map(bound).collect() }
    }

    /// Returns the largest error bound, ns. `None` if that of a clock is not known.
    pub(crate) fn largest(&self) -> Option<i64> {
        let bounds = self.domains.iter().map(|domain| domain.error_bound);
        bounds.collect::<Option<Vec<i64>>>()?.into_iter().max()
    }

    /// Describes the error bounds.
    pub(crate) fn describe(&self) -> String {
        let known = self.domains.iter().filter_map(|domain| domain.error_bound).max();
        match (self.largest(), known) {
            (Some(ns), _) => format!("error bound {} at most", shown_time(ns)),
            (None, Some(_)) => {
                let unknown = self.domains.iter().filter(|domain| domain.error_bound.is_none());
                let hosts: BTreeSet<&str> =
                    unknown.flat_map(|domain| &domain.hosts).map(String::as_str).collect();
                let named: Vec<String> = hosts.iter().take(3).map(|host| short(host)).collect();
                let more = if hosts.len() > named.len() { " and others" } else { "" };
                format!("the error bounds of {}{more} are not known", named.join(", "))
            }
            (None, None) => "error bounds are not known".to_owned(),
        }
    }

    /// Returns the error bound of a rank's clock, ns. Without a rank, the clock is that of the host if it has only one.
    pub(crate) fn error_bound(&self, rank: Option<u32>, host: &str) -> Option<i64> {
        let of_rank = rank.and_then(|rank| self.domains.iter().find(|domain| domain.ranks.contains(&rank)));
        let mut of_host = self.domains.iter().filter(|domain| domain.hosts.iter().any(|name| name == host));
        let only = match (of_host.next(), of_host.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        };
        of_rank.or(only)?.error_bound
    }
}
