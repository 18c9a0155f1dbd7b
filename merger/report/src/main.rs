//! `rpd-report`: reports where the time of a run went, with one rank and all cores, or executes `rpd-report-mpi` under an
//! MPI launcher.

use clap::Parser;
use rpd_comm::{Solo, continue_under_launcher};
use rpd_report::{CommandLine, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(failure) = continue_under_launcher("rpd-report", "report") {
        eprintln!("error: {failure}");
        return failure.exit().into();
    }
    run(&CommandLine::parse(), &Solo).exit.into()
}
