//! `rpd-merge-mpi`: one merge by all ranks of an MPI job. Users start `rpd-merge`, which executes this program.

use rpd_comm::{Comm, Launcher};
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
    // A binary built for one MPI, under the mpirun of another, silently becomes many merges of one rank each.
    if let Launcher::Mpi(Some(size)) = Launcher::detect()
        && size != comm.size()
    {
        eprintln!(
            "error: the launcher started {size} ranks, MPI sees {}: rpd-merge-mpi was built for another MPI than \
             this launcher's; use that one's mpirun, or rebuild",
            comm.size()
        );
        comm.abort(Exit::Usage as i32);
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
