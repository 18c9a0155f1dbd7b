//! `rpd-report-mpi`: one report by all ranks of an MPI job. Users start `rpd-report`, which executes this program.

use clap::Parser;
use rpd_comm::{Comm, check_launched_ranks};
use rpd_comm_mpi::Mpi;
use rpd_console::Exit;
use rpd_report::{CommandLine, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(comm) = Mpi::initialize() else {
        eprintln!(
            "error: cannot initialise MPI (already initialised, or not available); check that mpirun and libmpi belong to one installation"
        );
        return Exit::Usage.into();
    };
    if let Err(failure) = check_launched_ranks("rpd-report-mpi", comm.size()) {
        eprintln!("error: {failure}");
        comm.abort(failure.exit() as i32);
    }
    let cli = match CommandLine::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            let exit = u8::try_from(message.exit_code()).unwrap_or(Exit::Usage as u8);
            // All ranks have the same command line.
            if comm.rank() == 0 {
                let _ = message.print();
            }
            return exit.into();
        }
    };
    let outcome = run(&cli, &comm);
    if !outcome.shared {
        comm.abort(outcome.exit as i32);
    }
    outcome.exit.into()
}
