//! Detection of rank, number of ranks and local rank.

/// Identity of a process in its job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RankIdentity {
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Number of ranks in the job.
    pub size: Option<u32>,
    /// Rank on the node.
    pub local_rank: Option<u32>,
    /// The variable that the rank was read from.
    pub rank_from: Option<String>,
    /// Number of times that torchrun has restarted its workers.
    pub restart: u32,
}

/// The variables of one launcher.
struct Launcher {
    rank: &'static str,
    size: &'static [&'static str],
    local: &'static [&'static str],
}

const SLURM: Launcher =
    Launcher { rank: "SLURM_PROCID", size: &["SLURM_STEP_NUM_TASKS"], local: &["SLURM_LOCALID"] };
const TORCHRUN: Launcher = Launcher { rank: "RANK", size: &["WORLD_SIZE"], local: &["LOCAL_RANK"] };

/// MPI launchers and related ones, in the order in which they are tried.
const MPI: [Launcher; 7] = [
    Launcher {
        rank: "PMIX_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local: &["OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK"],
    },
    Launcher { rank: "PMI_RANK", size: &["PMI_SIZE"], local: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"] },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    },
    Launcher {
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local: &["MV2_COMM_WORLD_LOCAL_RANK"],
    },
    Launcher { rank: "MPI_RANKID", size: &["MPI_NRANKS"], local: &["MPI_LOCALRANKID"] },
    Launcher { rank: "PALS_RANKID", size: &["PALS_NRANKS"], local: &["PALS_LOCAL_RANKID"] },
    Launcher { rank: "FLUX_TASK_RANK", size: &["FLUX_JOB_SIZE"], local: &["FLUX_TASK_LOCAL_ID"] },
];

/// The variables of a process.
struct Variables<F>(F);

impl<'a, F: Fn(&str) -> Option<&'a str>> Variables<F> {
    /// Returns a variable that is set and not empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a variable that is a number.
    fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }
}

/// Reads rank, size and local rank from the first launcher that sets a rank. `variable` returns the value of a
/// variable; `rank_env` names the variable that has the rank according to the user.
///
/// Below torchrun its own variables count. Otherwise the order is: the variable that the user named, Slurm, the MPI
/// launchers, torchrun's names set by hand. If an MPI launcher and Slurm set different values, those of the MPI
/// launcher count: below `mpirun` in an allocation, `SLURM_PROCID` is 0 in every rank.
pub fn detect_rank<'a>(variable: impl Fn(&str) -> Option<&'a str>, rank_env: Option<&str>) -> RankIdentity {
    let environment = &Variables(variable);
    let restart = environment.number("TORCHELASTIC_RESTART_COUNT").unwrap_or(0);
    let below_torchrun = environment.get("TORCHELASTIC_RUN_ID").is_some();
    let found = below_torchrun
        .then(|| TORCHRUN.identity(environment))
        .flatten()
        .or_else(|| named(environment, rank_env?))
        .or_else(|| slurm_or_mpi(environment))
        .or_else(|| TORCHRUN.identity(environment))
        .unwrap_or_default();
    RankIdentity { restart, ..found }
}

fn slurm_or_mpi<'a, F: Fn(&str) -> Option<&'a str>>(environment: &Variables<F>) -> Option<RankIdentity> {
    let slurm = SLURM.identity(environment);
    let mpi = MPI.iter().find_map(|launcher| launcher.identity(environment));
    match (slurm, mpi) {
        (Some(slurm), Some(mpi)) => {
            let agree = slurm.rank == mpi.rank && (slurm.size == mpi.size || mpi.size.is_none());
            Some(if agree { slurm } else { mpi })
        }
        (slurm, mpi) => slurm.or(mpi),
    }
}

/// Reads the rank from the variable that the user named, and the rest from any launcher.
fn named<'a, F: Fn(&str) -> Option<&'a str>>(
    environment: &Variables<F>,
    rank_env: &str,
) -> Option<RankIdentity> {
    let rank = environment.number(rank_env)?;
    let rest = slurm_or_mpi(environment).unwrap_or_default();
    Some(RankIdentity { rank: Some(rank), rank_from: Some(rank_env.to_owned()), ..rest })
}

/// Returns whether a variable has the rank, the number of ranks or the local rank.
pub fn is_rank_variable(name: &str) -> bool {
    let names = |launcher: &Launcher| {
        launcher.rank == name || launcher.size.contains(&name) || launcher.local.contains(&name)
    };
    name.starts_with("TORCHELASTIC_") || names(&SLURM) || names(&TORCHRUN) || MPI.iter().any(names)
}

impl Launcher {
    fn identity<'a, F: Fn(&str) -> Option<&'a str>>(
        &self,
        environment: &Variables<F>,
    ) -> Option<RankIdentity> {
        let first = |names: &[&str]| names.iter().find_map(|name| environment.number(name));
        Some(RankIdentity {
            rank: Some(environment.number(self.rank)?),
            size: first(self.size),
            local_rank: first(self.local),
            rank_from: Some(self.rank.to_owned()),
            restart: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{RankIdentity, is_rank_variable};
    use std::collections::HashMap;

    /// Variables as `NAME=VALUE NAME=VALUE`, and the expected rank, size, local rank and variable.
    type Case = (&'static str, Option<u32>, Option<u32>, Option<u32>, Option<&'static str>);

    fn detect_rank(text: &str, rank_env: Option<&str>) -> RankIdentity {
        let variables: HashMap<_, _> = text.split_whitespace().filter_map(|e| e.split_once('=')).collect();
        super::detect_rank(|name| variables.get(name).copied(), rank_env)
    }

    #[test]
    fn every_launcher_is_understood() {
        let cases: [Case; 14] = [
            ("", None, None, None, None),
            ("RANK=3 WORLD_SIZE=8 LOCAL_RANK=1", Some(3), Some(8), Some(1), Some("RANK")),
            (
                "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=16 SLURM_LOCALID=1",
                Some(5),
                Some(16),
                Some(1),
                Some("SLURM_PROCID"),
            ),
            (
                "PMIX_RANK=2 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0",
                Some(2),
                Some(4),
                Some(0),
                Some("PMIX_RANK"),
            ),
            ("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1", Some(1), Some(2), Some(1), Some("PMI_RANK")),
            // mpirun in an allocation
            ("SLURM_PROCID=0 PMIX_RANK=3 OMPI_COMM_WORLD_SIZE=4", Some(3), Some(4), None, Some("PMIX_RANK")),
            (
                "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMIX_RANK=0 OMPI_COMM_WORLD_SIZE=4",
                Some(0),
                Some(4),
                None,
                Some("PMIX_RANK"),
            ),
            // srun --mpi=pmix, --mpi=pmi2
            (
                "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 PMIX_RANK=3",
                Some(3),
                Some(4),
                None,
                Some("SLURM_PROCID"),
            ),
            (
                "SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 PMI_RANK=3 PMI_SIZE=4",
                Some(3),
                Some(4),
                None,
                Some("SLURM_PROCID"),
            ),
            // torchrun below srun
            (
                "TORCHELASTIC_RUN_ID=none RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 SLURM_PROCID=1",
                Some(9),
                Some(16),
                Some(1),
                Some("RANK"),
            ),
            // The agent of torchrun has no rank of its own.
            ("SLURM_PROCID=1 TORCHELASTIC_RUN_ID=x", Some(1), None, None, Some("SLURM_PROCID")),
            ("PALS_RANKID=7 PALS_LOCAL_RANKID=3", Some(7), None, Some(3), Some("PALS_RANKID")),
            ("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2", Some(1), Some(2), None, Some("FLUX_TASK_RANK")),
            ("SLURM_PROCID=many", None, None, None, None),
        ];
        for (given, rank, size, local_rank, from) in cases {
            let found = detect_rank(given, None);
            let expected =
                RankIdentity { rank, size, local_rank, rank_from: from.map(str::to_owned), restart: 0 };
            assert_eq!(found, expected, "{given}");
        }
    }

    #[test]
    fn a_named_variable_comes_first_but_for_torchrun() {
        let named = |text: &str| detect_rank(text, Some("MY_RANK")).rank_from;
        assert_eq!(named("MY_RANK=1 SLURM_PROCID=0").as_deref(), Some("MY_RANK"));
        assert_eq!(named("SLURM_PROCID=0").as_deref(), Some("SLURM_PROCID"));
        assert_eq!(named("MY_RANK=1 TORCHELASTIC_RUN_ID=a RANK=2").as_deref(), Some("RANK"));
    }

    #[test]
    fn the_variables_of_launchers_are_known() {
        for name in ["SLURM_PROCID", "PMI_SIZE", "RANK", "MPI_LOCALRANKID", "TORCHELASTIC_RUN_ID"] {
            assert!(is_rank_variable(name), "{name}");
        }
        assert!(!is_rank_variable("SLURM_JOB_USER"));
    }

    #[test]
    fn restarts_are_counted() {
        let text = "TORCHELASTIC_RUN_ID=a RANK=2 TORCHELASTIC_RESTART_COUNT=3";
        assert_eq!(detect_rank(text, None).restart, 3);
    }
}
