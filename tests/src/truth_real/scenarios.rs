//! The scenarios of the table in the design of rpd-report that real programs can show.

use super::truth::READS;
use serde::{Deserialize, Serialize};

/// What a report has to name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// One rank.
    Rank(u32),
    /// All ranks of a node.
    Node(u32),
    /// The network of a node, and no rank.
    Network(u32),
    /// Two ranks, the first with twice the excess of the second.
    TwoRanks(u32, u32),
    /// Each rank in turn, so none.
    Turns,
    /// No rank.
    Nobody,
    /// No rank, but the time before the first step.
    StartUp,
    /// A rank with work that no other rank does: the gain has an upper bound only.
    AtMost(u32),
}

/// Why a rank is slow in a program whose ranks have a core each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlantedCause {
    /// Another process computes on its core.
    SharedCore,
    /// Its reads are slow.
    SlowReads,
    /// Python searches many objects for garbage.
    Garbage,
}

impl PlantedCause {
    /// Returns the key by which a report names it.
    pub fn key(self) -> &'static str {
        match self {
            PlantedCause::SharedCore => "cpu_wait",
            PlantedCause::SlowReads => "disk_wait",
            PlantedCause::Garbage => "garbage_collection",
        }
    }
}

/// A program, the ranks that are slow in it, and the answer.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Unique.
    pub name: &'static str,
    /// Row of the table in the design.
    pub number: u32,
    /// Program of `tests/workloads/truth`.
    pub program: &'static str,
    /// Which ranks are slow, in the words of that program.
    pub plan: &'static str,
    /// Rank or node that the plan refers to.
    pub guilty: u32,
    /// Ranks of the job; two on each node.
    pub ranks: u32,
    /// What a report has to name.
    pub culprit: Culprit,
    /// Range of the excess.
    pub label: &'static str,
    /// Work between posting and completing messages, as a share of the work.
    pub inner: f64,
    /// Why a rank is slow, or would be; `None` if it sleeps.
    pub cause: Option<PlantedCause>,
}

impl Scenario {
    /// Nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.ranks / 2
    }

    /// Returns the length of a run with a cause: at least 6 s, because a collector samples threads from the first second on,
    /// and a cause must be known for most of the steps. How long a step is follows from the machine. `None` without a cause.
    pub fn proportions(&self) -> Option<Proportions> {
        let is_slow = self.culprit != Culprit::Nobody;
        let steps = match self.cause? {
            PlantedCause::SlowReads if is_slow => 60,
            PlantedCause::SharedCore | PlantedCause::SlowReads => 200,
            PlantedCause::Garbage => 100,
        };
        Some(Proportions { work_ms: 50.0, excess: 0.0, steps, noise: 0.0 })
    }

    /// The node of a rank, as `mpirun --map-by node` places it.
    pub fn node_of(&self, rank: u32) -> u32 {
        rank % self.nodes()
    }
}

/// Length of a run and size of the excess.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Proportions {
    /// Work of a step, ms.
    pub work_ms: f64,
    /// Excess as a share of the work.
    pub excess: f64,
    /// Number of steps.
    pub steps: u32,
    /// Standard deviation of the work, as a share of it.
    pub noise: f64,
}

impl Default for Proportions {
    fn default() -> Proportions {
        Proportions { work_ms: 50.0, excess: 0.2, steps: 40, noise: 0.02 }
    }
}

const fn slow_rank(name: &'static str, number: u32, program: &'static str, rank: u32) -> Scenario {
    Scenario {
        name,
        number,
        program,
        plan: "rank",
        guilty: rank,
        ranks: 4,
        culprit: Culprit::Rank(rank),
        label: "work",
        inner: 0.0,
        cause: None,
    }
}

/// Two ranks, which have a core each on this node, work without sleep.
const fn slow_by(name: &'static str, number: u32, program: &'static str, cause: PlantedCause) -> Scenario {
    Scenario { ranks: 2, cause: Some(cause), ..slow_rank(name, number, program, 1) }
}

const fn clean_by(name: &'static str, program: &'static str, cause: PlantedCause) -> Scenario {
    Scenario { plan: "none", culprit: Culprit::Nobody, ..slow_by(name, 27, program, cause) }
}

const fn clean(name: &'static str, program: &'static str) -> Scenario {
    Scenario { plan: "none", culprit: Culprit::Nobody, ..slow_rank(name, 27, program, 0) }
}

/// All of them, in the order of the table.
pub const SCENARIOS: [Scenario; 30] = [
    Scenario { label: "setup", ..slow_rank("chain", 1, "chain", 1) },
    Scenario { label: "setup", ..slow_rank("displaced", 2, "displaced", 1) },
    Scenario { label: "update", ..slow_rank("stencil", 3, "stencil", 2) },
    Scenario { label: "update", ..slow_rank("stencil-sendrecv", 4, "sendrecv", 2) },
    Scenario { label: "update", ..slow_rank("stencil-persistent", 4, "persistent", 2) },
    Scenario { label: "update", ..slow_rank("stencil-large", 4, "large", 2) },
    // The excess is smaller than the inner work, which hides it in the first steps of a window.
    Scenario { label: "update", inner: 0.5, ..slow_rank("overlap-hidden", 5, "overlap", 1) },
    Scenario { label: "update", inner: 0.1, ..slow_rank("overlap-exposed", 5, "overlap", 1) },
    Scenario { label: "stage", ..slow_rank("pipeline", 6, "pipeline", 1) },
    Scenario { label: "task", ..slow_rank("master", 7, "master", 3) },
    Scenario { label: "task", ..slow_rank("master-blind", 7, "master-blind", 3) },
    Scenario { label: "task", culprit: Culprit::Nobody, ..slow_rank("demand", 8, "demand", 3) },
    Scenario {
        label: "prepare",
        culprit: Culprit::AtMost(0),
        ..slow_rank("slow-master", 9, "slow-master", 0)
    },
    slow_rank("late-root", 10, "root", 2),
    slow_rank("reduce", 11, "reduce", 3),
    Scenario { number: 12, culprit: Culprit::StartUp, label: "load", ..clean("start-up", "startup") },
    Scenario {
        plan: "node",
        ranks: 6,
        culprit: Culprit::Node(1),
        ..slow_rank("slow-node", 16, "allreduce", 1)
    },
    Scenario { plan: "turns", culprit: Culprit::Turns, ..slow_rank("turns", 17, "allreduce", 0) },
    Scenario { ranks: 6, ..slow_rank("grid", 18, "grid", 4) },
    Scenario { ranks: 6, ..slow_rank("halves", 19, "halves", 4) },
    Scenario { ranks: 6, ..slow_rank("nested", 20, "nested", 1) },
    // The plan plants nothing: what the node sends comes later by the excess.
    Scenario {
        number: 21,
        ranks: 6,
        culprit: Culprit::Network(1),
        guilty: 1,
        ..clean("slow-network", "sendrecv")
    },
    Scenario { plan: "two", culprit: Culprit::TwoRanks(1, 2), ..slow_rank("two", 23, "allreduce", 1) },
    Scenario { plan: "phase", ..slow_rank("phase", 24, "allreduce", 2) },
    clean("clean-allreduce", "allreduce"),
    clean("clean-stencil", "stencil"),
    clean("clean-ring", "ring"),
    Scenario { ranks: 6, ..clean("clean-grid", "grid") },
    clean("clean-demand", "demand"),
    clean("clean-pipeline", "pipeline"),
];

/// Those in which a report has to name why a rank is slow, in the order of the table.
pub const CAUSE_SCENARIOS: [Scenario; 6] = [
    slow_by("shared-core", 13, "core", PlantedCause::SharedCore),
    Scenario { label: READS, ..slow_by("slow-reads", 14, "reads", PlantedCause::SlowReads) },
    slow_by("garbage", 15, "garbage", PlantedCause::Garbage),
    clean_by("clean-core", "core", PlantedCause::SharedCore),
    clean_by("clean-reads", "reads", PlantedCause::SlowReads),
    clean_by("clean-python", "garbage", PlantedCause::Garbage),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_slow_ranks_exist() {
        let all = || SCENARIOS.iter().chain(&CAUSE_SCENARIOS);
        for (at, scenario) in all().enumerate() {
            assert!(all().take(at).all(|other| other.name != scenario.name), "{}", scenario.name);
            assert!(
                scenario.guilty < scenario.ranks && scenario.ranks.is_multiple_of(2),
                "{}",
                scenario.name
            );
        }
    }
}
