//! `rpd-merge`: merges with one rank and all cores, or executes `rpd-merge-mpi` under an MPI launcher.

use rpd_comm::{Solo, continue_under_launcher};
use rpd_merge::{ProgramCall, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let call = ProgramCall::load(std::env::args_os());
    if call.cli.command.is_none()
        && let Err(failure) = continue_under_launcher("rpd-merge", "merge")
    {
        eprintln!("error: {failure}");
        return failure.exit().into();
    }
    call.print_messages().unwrap_or_else(|| run(&call.cli, &Solo).exit).into()
}
