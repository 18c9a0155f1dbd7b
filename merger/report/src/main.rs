//! `rpd-report`: reports where the time of a run went.

use clap::Parser;
use rpd_report::{CommandLine, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&CommandLine::parse()).into()
}
