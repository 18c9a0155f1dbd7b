//! Runs a program call to its exit code.

use crate::anomalies::report_anomalies;
use crate::blame::report_blame;
use crate::clocks::report_clocks;
use crate::collectives::report_collectives;
use crate::efficiency::report_efficiency;
use crate::gpu::report_gpu;
use crate::hang::report_hang;
use crate::input::ReportRun;
use crate::integrity::{incomplete, report_integrity};
use crate::messages::report_messages;
use crate::options::{CommandLine, Subject};
use crate::overview::report_overview;
use crate::path::report_path;
use crate::print::print;
use crate::ranks::report_ranks;
use crate::report::Report;
use crate::steps::report_steps;
use crate::summary::{SummaryRows, report_summary};
use crate::what_if::report_what_if;
use rpd_comm::{Comm, agree_on_result, shared_failure};
use rpd_console::wording::one_line;
use rpd_console::{Exit, Failure};
use rpd_merge::start_threads;
use rpd_output_file::InterruptWatch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How a call ended on this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportOutcome {
    /// The exit code.
    pub exit: Exit,
    /// Whether all ranks end with the same result. If not, the others may wait for this rank forever.
    pub shared: bool,
}

/// Executes the program call: rank 0 prints the report on stdout, and failures on stderr. Every merge rank calls this.
pub fn run(cli: &CommandLine, comm: &impl Comm) -> ReportOutcome {
    match catch_unwind(AssertUnwindSafe(|| attempt(cli, comm))) {
        Ok(Ok(())) => ReportOutcome { exit: Exit::Ok, shared: true },
        Ok(Err(failure)) => {
            if failure.is_printed_here() {
                eprintln!("error: {}", one_line(&failure.to_string()));
            }
            ReportOutcome { exit: failure.exit(), shared: failure.is_shared() }
        }
        // The panic hook has printed the location.
        Err(_) => ReportOutcome { exit: Exit::Internal, shared: false },
    }
}

fn attempt(cli: &CommandLine, comm: &impl Comm) -> Result<(), Failure> {
    let is_first = comm.rank() == 0;
    agree_on_result(comm, begin(cli))?;
    let _interrupts = InterruptWatch::begin_for("report", is_first);
    // These make collective calls, and agree on each failure between them.
    let run = ReportRun::open(cli, comm)?;
    let report = make_report(cli, comm, &run)?;
    let printed = report.filter(|_| is_first).map_or(Ok(()), |report| print(&report, cli.common.format));
    agree_on_result(comm, printed)?;
    match incomplete(&run).or(run.damage.clone()).filter(|_| cli.common.strict) {
        Some(reason) => {
            let failure = Failure::incomplete(format!("the run is incomplete: {reason}"));
            Err(shared_failure(comm, failure))
        }
        None => Ok(()),
    }
}

/// Checks the options, and starts the threads.
fn begin(cli: &CommandLine) -> Result<(), Failure> {
    cli.check()?;
    // A write beyond a file size limit must fail with an error instead of killing the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    start_threads(cli.common.memory(), cli.common.threads)
}

/// Makes the report. Some subjects have none on other ranks than 0.
fn make_report(cli: &CommandLine, comm: &dyn Comm, run: &ReportRun) -> Result<Option<Report>, Failure> {
    let (max_rows, explained) = (cli.common.max_rows(), cli.explained()?);
    match &cli.subject {
        None => report_overview(run, comm, max_rows, explained),
        Some(Subject::Summary { by_rank, by_node, .. }) => {
            let by = match (by_rank, by_node) {
                (true, _) => SummaryRows::ByRank,
                (_, true) => SummaryRows::ByNode,
                _ => SummaryRows::WholeRun,
            };
            report_summary(run, comm, by, max_rows).map(Some)
        }
        Some(Subject::Ranks(_)) => report_ranks(run, comm, max_rows).map(Some),
        Some(Subject::Gpu(_)) => report_gpu(run, comm, max_rows).map(Some),
        Some(Subject::Collectives(_)) => report_collectives(run, comm, max_rows).map(Some),
        Some(Subject::Blame { rank, .. }) => report_blame(run, comm, *rank, max_rows, explained),
        Some(Subject::Steps { rank, .. }) => report_steps(run, comm, *rank, max_rows),
        Some(Subject::Messages(_)) => report_messages(run, comm, max_rows),
        Some(Subject::Anomalies(_)) => report_anomalies(run, comm, max_rows),
        Some(Subject::Hang(_)) => report_hang(run, comm, max_rows),
        Some(Subject::WhatIf { rank, node, range, .. }) => {
            report_what_if(run, comm, (*rank, node.as_deref(), range.as_deref()), max_rows)
        }
        Some(Subject::Path(_)) => report_path(run, comm, max_rows),
        Some(Subject::Efficiency(_)) => report_efficiency(run, comm, max_rows),
        Some(Subject::Html { output, force, .. }) => {
            crate::html::write_html(run, comm, (output, *force), cli.common.max_page_rows()).map(|()| None)
        }
        Some(Subject::Clocks(_)) => Ok(Some(report_clocks(run, max_rows))),
        Some(Subject::Integrity(_)) => report_integrity(run, comm, max_rows).map(Some),
    }
}
