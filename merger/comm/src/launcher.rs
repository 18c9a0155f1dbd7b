//! Detects whether an MPI launcher started this process.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Variables in which a launcher stores the number of tasks. `SLURM_NTASKS` is not one of them, because a batch
/// script has it too.
const SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// Variable that PMIx launchers set. They do not store the size in the environment.
const PMIX_RANK: &str = "PMIX_RANK";
/// Variable that srun sets for its tasks. Together with [`PMIX_RANK`] it is the size of the step.
const SLURM_STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";
/// Variable that srun sets for its tasks, and that a batch script's own step also has.
const SLURM_PROCID: &str = "SLURM_PROCID";

/// Launcher that the environment shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// No launcher: the process runs alone.
    None,
    /// A launcher that started this many tasks; `None` if it does not store the number.
    Mpi(Option<usize>),
    /// srun with this many tasks and no MPI between them: each would merge separately.
    SrunWithoutMpi(usize),
}

impl Launcher {
    /// Detects the launcher from the variables of this process.
    pub fn detect() -> Launcher {
        Launcher::from_environment(std::env::vars_os())
    }

    /// Detects the launcher from an environment. Variables that are not UTF-8 are ignored, because no launcher
    /// sets such.
    fn from_environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Launcher {
        let variables: HashMap<String, String> = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let number = |name: &str| variables.get(name).and_then(|v| v.parse().ok());
        if let Some(size) = SIZE_VARIABLES.iter().find_map(|name| number(name)) {
            return Launcher::Mpi(Some(size));
        }
        let tasks = number(SLURM_STEP_TASKS);
        match tasks {
            _ if variables.contains_key(PMIX_RANK) => Launcher::Mpi(tasks),
            Some(tasks) if tasks > 1 && variables.contains_key(SLURM_PROCID) => {
                Launcher::SrunWithoutMpi(tasks)
            }
            _ => Launcher::None,
        }
    }
}

/// Replaces this process by the `rpd-merge-mpi` in the same folder. Returns only if that fails.
pub fn exec_rpd_merge_mpi(arguments: impl Iterator<Item = OsString>) -> (PathBuf, std::io::Error) {
    let twin = match std::env::current_exe() {
        Ok(path) => path.with_file_name("rpd-merge-mpi"),
        Err(error) => return (PathBuf::from("rpd-merge-mpi"), error),
    };
    let error = Command::new(&twin).args(arguments).exec();
    (twin, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_variable_that_is_no_text_hides_no_other() {
        let bytes = || OsString::from_vec(b"caf\xe9".to_vec());
        let all = [(bytes(), "1".into()), ("X".into(), bytes()), ("PMI_SIZE".into(), "2".into())];
        assert_eq!(Launcher::from_environment(all.into_iter()), Launcher::Mpi(Some(2)));
    }

    fn launcher(variables: &[(&str, &str)]) -> Launcher {
        Launcher::from_environment(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn a_batch_script_is_no_launcher_and_mpirun_and_srun_are() {
        assert_eq!(launcher(&[("SLURM_NTASKS", "16")]), Launcher::None);
        assert_eq!(launcher(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "0")]), Launcher::Mpi(Some(3)));
        assert_eq!(launcher(&[("PMI_SIZE", "2")]), Launcher::Mpi(Some(2)));
        assert_eq!(launcher(&[("PMIX_RANK", "1"), ("SLURM_STEP_NUM_TASKS", "4")]), Launcher::Mpi(Some(4)));
        assert_eq!(launcher(&[("PMIX_RANK", "1")]), Launcher::Mpi(None));
        let srun = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "2")];
        assert_eq!(launcher(&srun), Launcher::SrunWithoutMpi(4));
    }
}
