//! The names of counters, and the node, GPU or process that each one belongs to.

use rpd_run::{ComputeAgent, ProcessIdentity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of characters in a name that is kept.
const MAX_NAME_CHARS: usize = 256;

/// The node, GPU or process that a counter belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) enum CounterScope {
    Node,
    Gpu,
    /// A process of a rank, such as its memory.
    Process,
}

impl CounterScope {
    /// Returns the word for one of its kind.
    pub(super) fn noun(self) -> &'static str {
        match self {
            CounterScope::Node => "node",
            CounterScope::Gpu => "GPU",
            CounterScope::Process => "process",
        }
    }
}

/// A counted quantity, which several nodes, GPUs or processes may have. The order is that of names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) struct CounterKind {
    pub(super) name: String,
    /// Unit of the values; empty if it is not recorded.
    pub(super) unit: String,
    pub(super) scope: CounterScope,
}

impl CounterKind {
    pub(super) fn new(name: &str, unit: &str, scope: CounterScope) -> CounterKind {
        CounterKind { name: first_chars(name), unit: first_chars(unit), scope }
    }
}

/// The node, GPU or process that a counter belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) struct CounterOwner {
    pub(super) host: String,
    /// Rank of the process that recorded it; `None` for a node.
    pub(super) rank: Option<u32>,
    /// Label of the GPU, or name of the process; empty for a node.
    pub(super) device: String,
    /// PCI address of the GPU, where it is known.
    pub(super) pci: Option<String>,
}

impl CounterOwner {
    /// Returns what a counter of this process and agent belongs to. What a process without a rank records, such as the
    /// collector, is of its node.
    pub(super) fn of(
        process: &ProcessIdentity,
        agent: Option<&ComputeAgent>,
    ) -> (CounterScope, CounterOwner) {
        let (host, rank) = (first_chars(&process.host), process.rank);
        match (agent.filter(|agent| agent.is_gpu), rank) {
            (Some(gpu), _) => {
                (CounterScope::Gpu, CounterOwner { host, rank, device: gpu.label(), pci: gpu.pci.clone() })
            }
            (None, None) => {
                (CounterScope::Node, CounterOwner { host, rank, device: String::new(), pci: None })
            }
            (None, Some(_)) => {
                let device = first_chars(&process.name);
                (CounterScope::Process, CounterOwner { host, rank, device, pci: None })
            }
        }
    }

    /// Returns the name for people: `node n0`, `GPU 0 on n0`, `GPU 0 of rank 3 on n0`, `rank 3 (n0)`.
    pub(super) fn text(&self, scope: CounterScope) -> String {
        let of_rank = self.rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
        let host = if self.host.is_empty() { "an unknown node" } else { self.host.as_str() };
        match scope {
            CounterScope::Node => format!("node {host}"),
            CounterScope::Gpu => format!("{}{of_rank} on {host}", self.device),
            CounterScope::Process => self.device.clone(),
        }
    }
}

fn first_chars(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).collect()
}

/// A rank, with its node and the GPUs that it uses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct RankPlace {
    pub(super) rank: u32,
    pub(super) host: String,
    /// PCI addresses of the GPUs that run its kernels; empty if they are not known.
    pub(super) gpus: BTreeSet<String>,
}

impl RankPlace {
    /// Returns whether the rank is on this node, uses this GPU, or has this process. A GPU that its node has may be one
    /// that it uses, unless the addresses of these are known.
    pub(super) fn has(&self, scope: CounterScope, owner: &CounterOwner) -> bool {
        let is_of_node = owner.rank.is_none() && owner.host == self.host;
        let is_used = || owner.pci.as_ref().is_none_or(|pci| self.gpus.contains(pci));
        match scope {
            CounterScope::Node => is_of_node,
            CounterScope::Gpu if owner.rank.is_none() => is_of_node && (self.gpus.is_empty() || is_used()),
            CounterScope::Gpu | CounterScope::Process => owner.rank == Some(self.rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(host: &str, rank: Option<u32>) -> ProcessIdentity {
        ProcessIdentity {
            name: "rank 3 (n0)".to_owned(),
            order: (0, 0, 1),
            pid: 7,
            host: host.to_owned(),
            rank,
            id: 1,
        }
    }

    fn gpu(pci: Option<&str>) -> ComputeAgent {
        let pci = pci.map(str::to_owned);
        ComputeAgent { is_gpu: true, number: Some(0), model: String::new(), pci }
    }

    #[test]
    fn a_rank_has_its_node_the_gpus_that_it_uses_and_its_process() {
        let place = |gpus: &[&str]| RankPlace {
            rank: 3,
            host: "n0".to_owned(),
            gpus: gpus.iter().map(|pci| (*pci).to_owned()).collect(),
        };
        let has = |place: &RankPlace, process: &ProcessIdentity, agent: Option<&ComputeAgent>| {
            let (scope, owner) = CounterOwner::of(process, agent);
            place.has(scope, &owner)
        };
        let (collector, elsewhere) = (process("n0", None), process("n1", None));
        let (known, unknown) = (place(&["0000:c1:00.0"]), place(&[]));
        assert!(has(&known, &collector, None) && !has(&known, &elsewhere, None));
        let [used, unused] = [gpu(Some("0000:c1:00.0")), gpu(Some("0000:c5:00.0"))];
        assert!(has(&known, &collector, Some(&used)) && !has(&known, &collector, Some(&unused)));
        assert!(has(&unknown, &collector, Some(&unused)), "it may be the one that the rank uses");
        assert!(!has(&known, &elsewhere, Some(&used)), "addresses are those of a node");
        assert!(has(&known, &process("n0", Some(3)), Some(&gpu(None))));
        assert!(!has(&known, &process("n0", Some(2)), Some(&used)));
        assert!(has(&known, &process("n0", Some(3)), None) && !has(&known, &process("n0", Some(2)), None));
    }

    #[test]
    fn owners_are_named() {
        let text = |process: &ProcessIdentity, agent: Option<&ComputeAgent>| {
            let (scope, owner) = CounterOwner::of(process, agent);
            owner.text(scope)
        };
        assert_eq!(text(&process("n0", None), None), "node n0");
        assert_eq!(text(&process("", None), None), "node an unknown node");
        assert_eq!(
            text(&process("n0", None), Some(&gpu(Some("0000:c1:00.0")))),
            "GPU 0 (0000:c1:00.0) on n0"
        );
        assert_eq!(text(&process("n0", Some(3)), Some(&gpu(None))), "GPU 0 of rank 3 on n0");
        assert_eq!(text(&process("n0", Some(3)), None), "rank 3 (n0)");
    }
}
