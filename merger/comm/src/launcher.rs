//! Detects whether an MPI launcher started this process.

use rpd_console::Failure;
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

/// Under a launcher of several tasks, replaces this process by the program `NAME-mpi` in the same folder. Returns if there
/// is no such launcher.
///
/// # Errors
/// [`Failure::usage`], if the tasks do not know each other, or the program cannot be started. `name` is that of this
/// program, and `verb` what it does.
pub fn continue_under_launcher(name: &str, verb: &str) -> Result<(), Failure> {
    match Launcher::detect() {
        Launcher::None | Launcher::Mpi(Some(1)) => Ok(()),
        Launcher::Mpi(_) => {
            let (twin, error) = exec_twin(name);
            Err(Failure::usage(format!(
                "started by an MPI launcher, but {} cannot be run: {error}; install it beside {name} (cargo build \
                 --features mpi), or run {name} without the launcher",
                twin.display()
            )))
        }
        Launcher::SrunWithoutMpi(tasks) => Err(Failure::usage(format!(
            "srun started {tasks} tasks that do not know each other, each would {verb} on its own; use srun --mpi=pmix \
             (Open MPI) or --mpi=pmi2 (MPICH), or srun -n 1"
        ))),
    }
}

/// Replaces this process by the program `NAME-mpi` in the same folder. Returns only if that fails.
fn exec_twin(name: &str) -> (PathBuf, std::io::Error) {
    let twin = match std::env::current_exe() {
        Ok(path) => path.with_file_name(format!("{name}-mpi")),
        Err(error) => return (PathBuf::from(format!("{name}-mpi")), error),
    };
    let error = Command::new(&twin).args(std::env::args_os().skip(1)).exec();
    (twin, error)
}

/// Checks that MPI sees as many ranks as the launcher started.
///
/// A program built for one MPI, under the mpirun of another, silently becomes many programs of one rank each.
///
/// # Errors
/// [`Failure::usage`], if the numbers differ. `name` is that of this program.
pub fn check_launched_ranks(name: &str, ranks: usize) -> Result<(), Failure> {
    match Launcher::detect() {
        Launcher::Mpi(Some(size)) if size != ranks => Err(Failure::usage(format!(
            "the launcher started {size} ranks, MPI sees {ranks}: {name} was built for another MPI than this launcher's; \
             use that one's mpirun, or rebuild"
        ))),
        _ => Ok(()),
    }
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
