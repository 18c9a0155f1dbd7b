//! Run and rank of a process, from the variables of its launcher.
//!
//! Callers pass the environment, since every traced process has its own. This room does not read the
//! environment of this process by itself.

mod hydra;
mod run_id;
mod source_defaults;

pub(crate) use hydra::hydra_job;
pub(crate) use rpd_shard::identity::RankIdentity;
pub(crate) use run_id::{RunId, detect_run_id, lone_run_id, slurm_marks};
pub use source_defaults::SourceDefaults;

use std::collections::HashMap;

/// Environment variables of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct LauncherEnvironment(HashMap<String, String>);

impl LauncherEnvironment {
    /// Reads the variables of this process. Skips those that are not UTF-8.
    pub(crate) fn of_this_process() -> LauncherEnvironment {
        let utf8 = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        LauncherEnvironment(utf8.collect())
    }

    /// Returns a variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a variable that holds a number.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }
}

/// Determines rank, size and local rank from the launcher's variables. `rank_env` is the variable that the
/// user named for the rank.
pub(crate) fn detect_rank(environment: &LauncherEnvironment, rank_env: Option<&str>) -> RankIdentity {
    rpd_shard::identity::detect_rank(|name| environment.get(name), rank_env)
}

/// Whether all ranks run on this node according to the launcher, or there is no launcher. `false` if the
/// launcher does not say.
pub(crate) fn is_on_one_node(environment: &LauncherEnvironment, rank: &RankIdentity) -> bool {
    let Some(from) = &rank.rank_from else { return true };
    if rank.rank.is_none() || rank.size == Some(1) {
        return true;
    }
    match from.as_str() {
        "SLURM_PROCID" => return environment.number("SLURM_STEP_NUM_NODES") == Some(1),
        "FLUX_TASK_RANK" => return environment.number("FLUX_JOB_NNODES") == Some(1),
        _ => {}
    }
    let here = RANKS_OF_NODE.iter().find_map(|name| environment.number(name));
    here.is_some() && here == rank.size
}

/// Variables with the number of ranks on this node.
const RANKS_OF_NODE: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"];
/// Variable with the numbers of ranks of all nodes, as `8(x4),2`.
const RANKS_OF_NODES: &str = "SLURM_STEP_TASKS_PER_NODE";
/// Variable with the place of this node in that list.
const NODE_OF_STEP: &str = "SLURM_NODEID";

/// Returns the number of ranks on this node; `None` if the launcher does not say.
pub(crate) fn ranks_of_node(environment: &LauncherEnvironment) -> Option<u32> {
    let of_slurm = || {
        let node = environment.number(NODE_OF_STEP)?;
        let mut last = 0u32;
        for (ranks, nodes) in slurm_counts(environment)? {
            last = last.saturating_add(nodes);
            if node < last {
                return Some(ranks);
            }
        }
        None
    };
    RANKS_OF_NODE.iter().find_map(|name| environment.number(name)).or_else(of_slurm)
}

/// Returns the number of ranks on this node, or the maximum of all nodes; `None` if the launcher says neither.
pub(crate) fn most_ranks_of_node(environment: &LauncherEnvironment) -> Option<u32> {
    let of_nodes = || slurm_counts(environment)?.into_iter().map(|(ranks, _)| ranks).max();
    ranks_of_node(environment).or_else(of_nodes)
}

/// Returns numbers of ranks, each with the number of successive nodes that have so many. `None` if Slurm does not say, or in
/// another way.
fn slurm_counts(environment: &LauncherEnvironment) -> Option<Vec<(u32, u32)>> {
    let count = |part: &str| {
        let (ranks, nodes) = part.trim().split_once("(x").unwrap_or((part.trim(), "1"));
        Some((ranks.parse().ok()?, nodes.trim_end_matches(')').parse().ok()?))
    };
    environment.get(RANKS_OF_NODES)?.split(',').map(count).collect()
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for LauncherEnvironment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> LauncherEnvironment {
        LauncherEnvironment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_report_how_many_ranks_the_node_has() {
        for (variables, expected) in [
            ("", None),
            ("SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=8(x?),2", None),
            ("OMPI_COMM_WORLD_LOCAL_SIZE=3 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=1", Some(3)),
            ("SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=8(x4),2", Some(8)),
            ("SLURM_NODEID=3 SLURM_STEP_TASKS_PER_NODE=8(x4),2", Some(8)),
            ("SLURM_NODEID=4 SLURM_STEP_TASKS_PER_NODE=8(x4),2", Some(2)),
            ("SLURM_NODEID=5 SLURM_STEP_TASKS_PER_NODE=8(x4),2", None),
            ("SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=8(x4294967295),2(x4294967295)", Some(8)),
            ("SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=8(x", None),
            ("SLURM_STEP_TASKS_PER_NODE=8(x4),2", None),
        ] {
            let environment: LauncherEnvironment =
                variables.split_whitespace().filter_map(|entry| entry.split_once('=')).collect();
            assert_eq!(ranks_of_node(&environment), expected, "{variables}");
            if expected.is_some() {
                assert_eq!(most_ranks_of_node(&environment), expected, "{variables}");
            }
        }
        let environment = [("SLURM_STEP_TASKS_PER_NODE", "2,8(x4)")].into_iter().collect();
        assert_eq!(most_ranks_of_node(&environment), Some(8));
    }

    #[test]
    fn launchers_report_whether_there_are_other_nodes() {
        let alone = |variables: &str| {
            let environment: LauncherEnvironment =
                variables.split_whitespace().filter_map(|entry| entry.split_once('=')).collect();
            is_on_one_node(&environment, &detect_rank(&environment, Some("MINE")))
        };
        for (variables, expected) in [
            ("", true),
            ("RANK=0 WORLD_SIZE=1", true),
            ("RANK=0 WORLD_SIZE=2", false),
            ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", true),
            ("MINE=3", false),
            ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1", true),
            ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2", false),
            ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4", true),
            ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2", false),
            // With mpirun in an allocation, the daemons of mpirun are a step of their own.
            (
                "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 OMPI_COMM_WORLD_RANK=1 \
                 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                false,
            ),
            ("PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=4", true),
            ("PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=1", false),
            ("FLUX_TASK_RANK=0 FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=1", true),
            ("PALS_RANKID=0 PALS_NRANKS=4", false),
        ] {
            assert_eq!(alone(variables), expected, "{variables}");
        }
    }
}
