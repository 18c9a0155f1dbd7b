//! CPUs that more ranks share than there are CPUs.

use crate::analysed_run::AnalysedRun;
use crate::names::{process_of, short};
use rpd_console::wording::rank_ranges;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of a CPU.
const MAX_CPU: u32 = 1 << 16;
/// Maximum number of CPUs of all lists of a node that are compared.
const MAX_LISTED: usize = 1 << 20;

/// CPUs of a node, and the ranks that may run on no others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CrowdedCpus {
    host: String,
    /// The list as `0,4-7`.
    cpus: String,
    count: usize,
    pub(crate) ranks: Vec<u32>,
}

impl CrowdedCpus {
    /// Finds the smallest such sets of CPUs, by what was recorded of the first thread with calls of each rank.
    pub(crate) fn find(found: &AnalysedRun<'_>) -> Vec<CrowdedCpus> {
        let calls = found.calls;
        let mut of_nodes: BTreeMap<u32, (String, BTreeMap<u32, &str>)> = BTreeMap::new();
        for (timeline, (call_timeline, cpus)) in (0..).zip(calls.job.timelines.iter().zip(&calls.cpus)) {
            let Some(process) = process_of(calls, timeline) else { continue };
            if let Some(rank) = process.rank.filter(|_| !call_timeline.is_stream && !cpus.allowed.is_empty())
            {
                let (_, ranks) = of_nodes
                    .entry(call_timeline.node)
                    .or_insert_with(|| (process.host.clone(), BTreeMap::new()));
                ranks.entry(rank).or_insert(&cpus.allowed);
            }
        }
        of_nodes.into_values().flat_map(|(host, ranks)| crowded_on(&host, &ranks)).collect()
    }

    /// Describes them: `ranks 0-1 on gpu001 share CPU 4`.
    pub(crate) fn text(&self) -> String {
        let CrowdedCpus { host, cpus, count, ranks } = self;
        let (ranks, host) = (rank_ranges(ranks), short(host));
        match count {
            1 => format!("ranks {ranks} on {host} may run on CPU {cpus} only"),
            count => format!("ranks {ranks} on {host} may run on the {count} CPUs {} only", short(cpus)),
        }
    }

    /// Returns them for machines.
    pub(crate) fn json(&self) -> Json {
        json!({ "host": self.host, "cpus": self.cpus, "ranks": self.ranks })
    }
}

/// Finds the sets on a node, from the list of CPUs of each rank.
fn crowded_on(host: &str, ranks: &BTreeMap<u32, &str>) -> Vec<CrowdedCpus> {
    let mut lists: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let mut listed = 0;
    for text in ranks.values() {
        if !lists.contains_key(text) {
            let Some(cpus) = cpu_list(text) else { continue };
            listed += cpus.len();
            if listed > MAX_LISTED {
                return Vec::new();
            }
            lists.insert(text, cpus);
        }
    }
    let mut found: Vec<CrowdedCpus> = Vec::new();
    let mut by_size: Vec<(&str, &BTreeSet<u32>)> = lists.iter().map(|(text, cpus)| (*text, cpus)).collect();
    by_size.sort_by_key(|(text, cpus)| (cpus.len(), cpus.first().copied(), *text));
    for (text, cpus) in by_size {
        let is_inside = |of_rank: &&str| lists.get(*of_rank).is_some_and(|inner| inner.is_subset(cpus));
        let inside: Vec<u32> =
            ranks.iter().filter(|(_, text)| is_inside(text)).map(|(rank, _)| *rank).collect();
        // A larger set with the same ranks is no further fact.
        let is_known = inside.iter().all(|rank| found.iter().any(|known| known.ranks.contains(rank)));
        if inside.len() > cpus.len() && !is_known {
            found.push(CrowdedCpus {
                host: host.to_owned(),
                cpus: text.to_owned(),
                count: cpus.len(),
                ranks: inside,
            });
        }
    }
    found
}

/// Parses a list as `0,4-7`. `None` if it is none.
fn cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ranks: &[&'static str]) -> Vec<String> {
        let ranks = (0..).zip(ranks.iter().copied()).collect();
        crowded_on("n1", &ranks).iter().map(CrowdedCpus::text).collect()
    }

    #[test]
    fn ranks_that_share_too_few_cpus_are_found() {
        assert_eq!(texts(&["0", "1", "0-1"]), ["ranks 0-2 on n1 may run on the 2 CPUs 0-1 only"]);
        assert_eq!(texts(&["0", "1", "2-3", "3"]), Vec::<String>::new());
        assert_eq!(texts(&["4", "1", "4", "4"]), ["ranks 0,2-3 on n1 may run on CPU 4 only"]);
        assert_eq!(
            texts(&["0", "0", "0-1", "1"]),
            ["ranks 0-1 on n1 may run on CPU 0 only", "ranks 0-3 on n1 may run on the 2 CPUs 0-1 only"]
        );
        assert_eq!(texts(&["", "x", "0-", "5-4", "0-4000000000", "1"]), Vec::<String>::new());
    }
}
