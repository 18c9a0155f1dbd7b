//! `rpd-merge`: one rank with all cores, or the door to `rpd-merge-mpi` under a launcher.

use clap::Parser;
use rpd_merge::cli::Cli;
use rpd_merge::comm::Solo;
use rpd_merge::comm::launcher::{Launcher, exec_mpi_twin};
use rpd_merge::failure::Exit;
use rpd_merge::run::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.command.is_none()
        && let Launcher::Mpi(size) = Launcher::detect()
    {
        let (twin, error) = exec_mpi_twin(std::env::args_os().skip(1));
        if size != Some(1) {
            eprintln!(
                "error: started by an MPI launcher, but {} cannot be run: {error}; install it beside rpd-merge \
                 (cargo build --features mpi), or run rpd-merge without the launcher",
                twin.display()
            );
            return Exit::Usage.into();
        }
    }
    run(&cli, &Solo).exit.into()
}
