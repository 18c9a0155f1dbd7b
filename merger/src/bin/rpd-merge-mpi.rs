//! `rpd-merge-mpi`: one merge by all ranks of an MPI job. Users start `rpd-merge`, which executes this program.

use rpd_comm::{Comm, check_launched_ranks};
use rpd_comm_mpi::Mpi;
use rpd_console::Exit;
use rpd_merge::{ProgramCall, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let call = ProgramCall::load(std::env::args_os());
    let Some(comm) = Mpi::initialize() else {
        eprintln!(
            "error: cannot initialise MPI (already initialised, or not available); check that mpirun and libmpi belong to one installation"
        );
        return Exit::Usage.into();
    };
    if let Err(failure) = check_launched_ranks("rpd-merge-mpi", comm.size()) {
        eprintln!("error: {failure}");
        comm.abort(failure.exit() as i32);
    }
    if comm.rank() == 0
        && let Some(exit) = call.print_messages()
    {
        return exit.into();
    }
    if call.cli.merge.print_config {
        return Exit::Ok.into();
    }
    let outcome = run(&call.cli, &comm);
    if !outcome.shared {
        comm.abort(outcome.exit as i32);
    }
    outcome.exit.into()
}
