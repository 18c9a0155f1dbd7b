//! `rpd-merge`: merges with one rank and all cores, or executes `rpd-merge-mpi` under an MPI launcher.

use rpd_comm::{Launcher, Solo, exec_rpd_merge_mpi};
use rpd_console::Exit;
use rpd_merge::{ProgramCall, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let call = ProgramCall::load(std::env::args_os());
    if call.cli.command.is_none() {
        match Launcher::detect() {
            Launcher::None | Launcher::Mpi(Some(1)) => {}
            Launcher::Mpi(_) => {
                let (twin, error) = exec_rpd_merge_mpi(std::env::args_os().skip(1));
                eprintln!(
                    "error: started by an MPI launcher, but {} cannot be run: {error}; install it beside \
                     rpd-merge (cargo build --features mpi), or run rpd-merge without the launcher",
                    twin.display()
                );
                return Exit::Usage.into();
            }
            Launcher::SrunWithoutMpi(tasks) => {
                eprintln!(
                    "error: srun started {tasks} tasks that do not know each other, each would merge on its \
                     own; use srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or srun -n 1"
                );
                return Exit::Usage.into();
            }
        }
    }
    call.print_messages().unwrap_or_else(|| run(&call.cli, &Solo).exit).into()
}
