//! `rpd-merge-mpi`: all ranks of an MPI job on one merge. Users start `rpd-merge`, which finds it.

#[path = "../comm/mpi.rs"]
mod comm_mpi;

use clap::Parser;
use comm_mpi::Mpi;
use rpd_merge::cli::Cli;
use rpd_merge::comm::Comm;
use rpd_merge::comm::launcher::Launcher;
use rpd_merge::failure::Exit;
use rpd_merge::run::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(comm) = Mpi::initialize() else {
        eprintln!(
            "error: MPI cannot be initialised (or only twice): check that mpirun and libmpi are of one installation"
        );
        return Exit::Usage.into();
    };
    // A binary for one MPI under the mpirun of another silently becomes many merges of one rank each.
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
    let outcome = run(&cli, &comm);
    if !outcome.shared {
        comm.abort(outcome.exit as i32);
    }
    outcome.exit.into()
}
