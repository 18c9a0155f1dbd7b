//! Nodes and processes of a table set.

use super::table_set_reader::TableSetReader;
use crate::input::BuiltinString;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use rpd_rocpd::read::{ProcessFacts, StoredTableSet};
use rpd_shard::identity::{boot_of_machine, unknown_boot, unnamed_node};
use rpd_shard::record::{Clock, ClockDomain, Node, Process};

impl TableSetReader<'_> {
    /// Returns the nodes by key; a placeholder if the nodes are lost.
    pub(super) fn nodes(&self) -> Vec<(i64, Node)> {
        if self.found.nodes.is_empty() {
            let boot_id = unknown_boot(&self.found.guid);
            let hostname = BuiltinString::Lost.text().to_owned();
            return vec![(
                i64::MIN,
                Node { machine_id: boot_id.clone(), boot_id, hostname, ..Node::default() },
            )];
        }
        let node = |(number, (key, node)): (usize, &(i64, Node))| {
            let mut node = node.clone();
            node.boot_id = match boot_of_machine(&node) {
                Some(boot_id) => boot_id,
                // All table sets of a merge have the same nodes.
                None if self.found.is_merged() => unknown_boot(""),
                None => {
                    let Node { machine_id, boot_id, hostname, .. } =
                        unnamed_node(number as i64, &self.processes());
                    (node.machine_id, node.hostname) = (machine_id, hostname);
                    boot_id
                }
            };
            (*key, node)
        };
        self.found.nodes.iter().enumerate().map(node).collect()
    }

    /// Returns pid and first time of each process.
    fn processes(&self) -> Vec<(i32, i64)> {
        let seen = |p: &ProcessFacts| (i32::try_from(p.pid).unwrap_or(-1), p.start.unwrap_or(0));
        self.found.processes.iter().map(seen).collect()
    }
}

/// Returns the process of the lowest rank, which determines the position of a table set in the merge order.
pub(super) fn main_process(set: &StoredTableSet, nodes: &[(i64, Node)]) -> Process {
    let main = set.processes.iter().min_by_key(|p| (p.rank.unwrap_or(u32::MAX), p.start, p.pid));
    let facts = main.cloned().unwrap_or_default();
    let node = nodes.iter().find(|(key, _)| *key == facts.nid).or(nodes.first());
    let node = node.map_or_else(Node::default, |(_, node)| node.clone());
    let ProcessFacts { rank, size, local_rank, rank_from, pid, start, end, .. } = facts;
    Process {
        source: 0,
        rank,
        size,
        local_rank,
        rank_from,
        domain: ClockDomain {
            boot_id: node.boot_id.clone(),
            time_namespace: if set.is_merged() { MERGED_TIME_NAMESPACE } else { 0 },
        },
        pid: i32::try_from(pid).unwrap_or(-1),
        ppid: -1,
        first_seen: start.unwrap_or(0),
        last_seen: end,
        ..Process::of_file(node, Clock::Boottime)
    }
}
