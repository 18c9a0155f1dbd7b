//! CPUs that more ranks share than there are CPUs.

use crate::analysed_run::AnalysedRun;
use crate::names::{process_of, short};
use rpd_console::wording::rank_ranges;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of a CPU.
const MAX_CPU: u32 = 1 << 16;
/// Maximum number of CPUs of all lists of a node that are compared.
const MAX_LISTED: usize = 1 << 18;
/// Maximum number of ranks of all sets of CPUs.
const MAX_RANKS: usize = 1 << 20;
/// Maximum number of lines.
const MAX_PRINTED: usize = 3;
/// Maximum number of sets for machines.
const MAX_STORED: usize = 64;

/// CPUs of a node, and the ranks that may run on no others. Its form as JSON is that of the verdict.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CrowdedCpus {
    host: String,
    /// The list as `0,4-7`.
    cpus: String,
    /// Number of CPUs in the list.
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
        let mut room = MAX_RANKS;
        of_nodes.into_values().flat_map(|(host, ranks)| crowded_on(&host, &ranks, &mut room)).collect()
    }

    /// Describes them: `ranks 0-1 on gpu001 may run on CPU 4 only`.
    pub(crate) fn text(&self) -> String {
        let CrowdedCpus { host, cpus, count, ranks } = self;
        let (ranks, host) = (rank_ranges(ranks), short(host));
        match count {
            1 => format!("ranks {ranks} on {host} may run on CPU {cpus} only"),
            count => format!("ranks {ranks} on {host} may run on the {count} CPUs {} only", short(cpus)),
        }
    }

    /// Returns those that are printed for machines.
    pub(crate) fn stored(crowded: &[CrowdedCpus]) -> &[CrowdedCpus] {
        crowded.get(..MAX_STORED).unwrap_or(crowded)
    }

    /// Returns label and text of each line about them.
    pub(crate) fn lines(crowded: &[CrowdedCpus]) -> impl Iterator<Item = (&'static str, String)> {
        crowded.iter().take(MAX_PRINTED).map(|crowded| ("CPUs", crowded.text()))
    }
}

/// Finds the sets on a node, from the list of CPUs of each rank. There is `room` for so many ranks in all sets.
fn crowded_on(host: &str, ranks: &BTreeMap<u32, &str>, room: &mut usize) -> Vec<CrowdedCpus> {
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
    let mut known: BTreeSet<u32> = BTreeSet::new();
    let mut by_size: Vec<(&str, &BTreeSet<u32>)> = lists.iter().map(|(text, cpus)| (*text, cpus)).collect();
    by_size.sort_by_key(|(text, cpus)| (cpus.len(), cpus.first().copied(), *text));
    for (text, cpus) in by_size {
        let inner: BTreeSet<&str> =
            lists.iter().filter(|(_, inner)| inner.is_subset(cpus)).map(|(text, _)| *text).collect();
        let inside: Vec<u32> =
            ranks.iter().filter(|(_, text)| inner.contains(*text)).map(|(rank, _)| *rank).collect();
        // A larger set with the same ranks is no further fact.
        if inside.len() > cpus.len() && !inside.iter().all(|rank| known.contains(rank)) {
            let Some(rest) = room.checked_sub(inside.len()) else { break };
            *room = rest;
            known.extend(&inside);
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
        let (ranks, mut room) = ((0..).zip(ranks.iter().copied()).collect(), MAX_RANKS);
        crowded_on("n1", &ranks, &mut room).iter().map(CrowdedCpus::text).collect()
    }

    #[test]
    fn few_sets_are_found_in_many_lists() {
        let lists: Vec<String> = (1..2000).map(|last| format!("0-{last}")).collect();
        let ranks = (0..20_000u32).map(|rank| (rank, "0"));
        let ranks = ranks.chain((20_000..).zip(lists.iter().map(String::as_str))).collect();
        // Lists of more CPUs in all than are compared.
        let mut room = 100_000;
        assert_eq!(crowded_on("n1", &ranks, &mut room), []);
        let ranks = ranks.into_iter().filter(|(rank, _)| *rank < 20_400).collect();
        assert_eq!(crowded_on("n1", &ranks, &mut room).len(), 4, "each has 20,000 ranks or a few more");
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
