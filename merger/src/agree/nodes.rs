//! Nodes of the job, one row each, identified by machine id and boot id.

use rpd_shard::model::{Keys, Merged, Rows, RowsBuilder, Schema, Value, rocpd};
use rpd_shard::record::Node;
use std::collections::{BTreeSet, HashMap};
use twox_hash::XxHash3_64;

/// Nodes of the job, in merge order; ids start at 1.
#[derive(Debug, Default)]
pub struct JobNodes {
    ids: HashMap<(String, String), i64>,
    nodes: Vec<Node>,
    /// Positions of the nodes by boot id.
    boots: HashMap<String, Vec<usize>>,
}

fn key(node: &Node) -> (String, String) {
    // If the machine id is unknown, the host name replaces it.
    let machine = if node.machine_id.is_empty() { &node.hostname } else { &node.machine_id };
    (machine.clone(), node.boot_id.clone())
}

impl JobNodes {
    /// Adds a node if it is new.
    pub fn add(&mut self, node: &Node) {
        let next = self.nodes.len() as i64 + 1;
        self.ids.entry(key(node)).or_insert_with(|| {
            self.boots.entry(node.boot_id.clone()).or_default().push(self.nodes.len());
            self.nodes.push(node.clone());
            next
        });
    }

    /// Returns the nodes by id.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes of a boot, by id.
    pub fn of_boot(&self, boot_id: &str) -> impl Iterator<Item = &Node> {
        let places = self.boots.get(boot_id).into_iter().flatten();
        places.filter_map(|place| self.nodes.get(*place))
    }

    /// Returns the id of a node.
    pub fn id(&self, node: &Node) -> Option<i64> {
        self.ids.get(&key(node)).copied()
    }

    /// Returns the rows of `rocpd_info_node`. Hash and machine id are UNIQUE there. If two boots have one machine id,
    /// as in containers and cloned images, the boot id is appended to the later one.
    pub fn rows(&self) -> Option<Rows<Merged>> {
        let mut hashes = BTreeSet::new();
        let mut machines = BTreeSet::new();
        let mut rows = RowsBuilder::new(Schema::builtin().get(rocpd::INFO_NODE)?);
        for node in &self.nodes {
            let (mut machine, boot) = key(node);
            if !machines.insert(machine.clone()) {
                machine = format!("{machine}-{boot}");
                while !machines.insert(machine.clone()) {
                    machine.push('+');
                }
            }
            // Hashes a value of the row, so that a merge of the merged database computes the same hash.
            let mut hash = XxHash3_64::oneshot(machine.as_bytes()) as i64 & i64::MAX;
            while !hashes.insert(hash) {
                hash = (hash + 1) & i64::MAX;
            }
            rows.push(&[
                Value::Int(hash),
                machine.as_str().into(),
                node.system_name.as_str().into(),
                node.hostname.as_str().into(),
                node.release.as_str().into(),
                node.version.as_str().into(),
                node.hardware_name.as_str().into(),
                node.domain_name.as_str().into(),
            ]);
        }
        let rows = rows.finish(1);
        let columns = rows.columns.clone();
        Some(rows.into_merged(Keys::Dense(1), columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_boots_with_one_machine_id_stay_two_nodes_with_different_ids() {
        let node = |boot: &str| Node { machine_id: "m".into(), boot_id: boot.into(), ..Node::default() };
        let mut nodes = JobNodes::default();
        [node("a"), node("b"), node("a")].iter().for_each(|n| nodes.add(n));
        assert_eq!((nodes.id(&node("a")), nodes.id(&node("b"))), (Some(1), Some(2)));
        let rows = nodes.rows().unwrap();
        let machines: Vec<_> =
            (0..2).map(|i| rows.column("machine_id").get(i).text_lossy().unwrap().into_owned()).collect();
        assert_eq!(machines, ["m", "m-b"]);
    }
}
