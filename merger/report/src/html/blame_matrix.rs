//! Which ranks delay which others, by ranks or by nodes.

use crate::report::{Cell, ReportTable};
use crate::waiting::{AnalysedRun, short};
use rpd_calls::CallProcess;

/// Maximum number of rows and columns.
const MAX_GROUPS: usize = 64;
/// Maximum number of pairs of ranks that are listed.
const MAX_PAIRS: usize = 1_000;

const PAIR_COLUMNS: [(&str, &str); 5] = [
    ("rank", "rank"),
    ("host", "on"),
    ("delayed_rank", "delays rank"),
    ("delayed_host", "on"),
    ("direct_ns", "for"),
];

/// The time for which each group of ranks delays each other one.
#[derive(Debug)]
pub(super) struct BlameMatrix {
    /// What a row and a column is: `rank`, `node` or `nodes`.
    pub(super) unit: &'static str,
    /// Names of the rows and columns.
    pub(super) groups: Vec<String>,
    /// Times, ns, row by row: the groups that delay are rows.
    pub(super) ns: Vec<f64>,
    /// The largest pairs of ranks.
    pub(super) pairs: ReportTable,
    /// Number of ranks, those that delay others most, of which pairs were compared; `None` if all were.
    pub(super) compared_causes: Option<usize>,
}

impl BlameMatrix {
    /// Sums up the direct waiting of the run.
    pub(super) fn of(found: &AnalysedRun<'_>) -> BlameMatrix {
        let processes = &found.calls.processes;
        let (unit, group_of, groups) = grouped_processes(processes);
        let waits = found.analysis.pair_waits(found.costs, (&group_of, groups.len()), MAX_PAIRS);
        let mut pairs = ReportTable::new("pairs", &PAIR_COLUMNS);
        for pair in &waits.largest {
            let [cause, waiting] = [pair.cause, pair.waiting].map(|of| processes.get(of as usize));
            let rank = |process: Option<&CallProcess>| {
                Cell::known(process.and_then(|process| process.rank), |rank| Cell::Count(rank.into()))
            };
            let host = |process: Option<&CallProcess>| {
                Cell::known(process, |process| Cell::Text(process.host.clone()))
            };
            let ns = Cell::Nanoseconds(pair.direct_ns.round() as i64);
            pairs.push_up_to(MAX_PAIRS, vec![rank(cause), host(cause), rank(waiting), host(waiting), ns]);
        }
        BlameMatrix { unit, groups, ns: waits.matrix, pairs, compared_causes: waits.compared_causes }
    }
}

/// Returns what a group is, the group of each process, and the names of the groups.
fn grouped_processes(processes: &[CallProcess]) -> (&'static str, Vec<u32>, Vec<String>) {
    if processes.len() <= MAX_GROUPS {
        let name = |process: &CallProcess| match process.rank {
            Some(rank) => rank.to_string(),
            None => short(&process.host),
        };
        return ("rank", (0..processes.len() as u32).collect(), processes.iter().map(name).collect());
    }
    let mut hosts: Vec<&str> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    let of_process: Vec<usize> = processes
        .iter()
        .map(|process| {
            *numbers.entry(process.host.as_str()).or_insert_with(|| {
                hosts.push(&process.host);
                hosts.len() - 1
            })
        })
        .collect();
    let in_group = hosts.len().div_ceil(MAX_GROUPS).max(1);
    let name = |hosts: &[&str]| match hosts {
        [first, .., last] => format!("{} to {}", short(first), short(last)),
        [only] => short(only),
        [] => String::new(),
    };
    let unit = if in_group > 1 { "nodes" } else { "node" };
    let groups = hosts.chunks(in_group).map(name).collect();
    (unit, of_process.into_iter().map(|host| (host / in_group) as u32).collect(), groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(ranks: u32, ranks_per_node: u32) -> Vec<CallProcess> {
        let process = |rank: u32| CallProcess {
            rank: Some(rank),
            host: format!("node{}", rank / ranks_per_node),
            gpu: None,
            is_python: false,
            failure: None,
            ended_ns: None,
            run_process: rank as usize,
        };
        (0..ranks).map(process).collect()
    }

    #[test]
    fn many_ranks_are_grouped_by_node() {
        let (unit, of, groups) = grouped_processes(&processes(64, 8));
        assert_eq!((unit, of[63], groups[63].as_str()), ("rank", 63, "63"));
        let (unit, of, groups) = grouped_processes(&processes(4_096, 64));
        assert_eq!((unit, of[4_095], groups.len(), groups[1].as_str()), ("node", 63, 64, "node1"));
        let (unit, of, groups) = grouped_processes(&processes(300, 2));
        assert_eq!((unit, groups.len(), groups[49].as_str()), ("nodes", 50, "node147 to node149"));
        assert_eq!((of[0], of[299]), (0, 49));
        assert_eq!(grouped_processes(&[]), ("rank", Vec::new(), Vec::new()));
    }
}
