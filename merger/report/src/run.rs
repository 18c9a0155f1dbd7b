//! Runs a program call to its exit code.

use crate::blame::report_blame;
use crate::clocks::report_clocks;
use crate::collectives::report_collectives;
use crate::efficiency::report_efficiency;
use crate::input::ReportRun;
use crate::integrity::{incomplete, report_integrity};
use crate::messages::report_messages;
use crate::options::{CommandLine, OutputFormat, Subject};
use crate::overview::report_overview;
use crate::path::report_path;
use crate::print::print;
use crate::ranks::report_ranks;
use crate::report::Report;
use crate::steps::report_steps;
use crate::summary::{SummaryRows, report_summary};
use crate::what_if::{WhatIfSubject, report_what_if};
use rpd_console::wording::one_line;
use rpd_console::{Exit, Failure};
use rpd_output_file::InterruptWatch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Executes the program call: prints the report on stdout, and failures on stderr.
pub fn run(cli: &CommandLine) -> Exit {
    match catch_unwind(AssertUnwindSafe(|| attempt(cli))) {
        Ok(Ok(())) => Exit::Ok,
        Ok(Err(failure)) => {
            eprintln!("error: {}", one_line(&failure.to_string()));
            failure.exit()
        }
        // The panic hook has printed the location.
        Err(_) => Exit::Internal,
    }
}

fn attempt(cli: &CommandLine) -> Result<(), Failure> {
    if cli.subject.is_none() && cli.common.format == OutputFormat::Csv {
        let why = "--format csv prints one table: add a subcommand, such as summary or ranks";
        return Err(Failure::usage(why));
    }
    let _interrupts = InterruptWatch::begin_for("report", true);
    // A write beyond a file size limit must fail with an error instead of killing the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let _ = cli.explained()?;
    let run = ReportRun::open(cli)?;
    print(&make_report(cli, &run)?, cli.common.format)?;
    match incomplete(&run).filter(|_| cli.common.strict) {
        Some(reason) => Err(Failure::incomplete(format!("the run is incomplete: {reason}"))),
        None => Ok(()),
    }
}

fn make_report(cli: &CommandLine, run: &ReportRun) -> Result<Report, Failure> {
    let (max_rows, explained) = (cli.common.max_rows(), cli.explained()?);
    match &cli.subject {
        None => report_overview(run, max_rows, explained),
        Some(Subject::Summary { by_rank: true, .. }) => report_summary(run, SummaryRows::ByRank, max_rows),
        Some(Subject::Summary { by_node: true, .. }) => report_summary(run, SummaryRows::ByNode, max_rows),
        Some(Subject::Summary { .. }) => report_summary(run, SummaryRows::WholeRun, max_rows),
        Some(Subject::Ranks(_)) => report_ranks(run, max_rows),
        Some(Subject::Collectives(_)) => report_collectives(run, max_rows),
        Some(Subject::Blame { rank, .. }) => report_blame(run, *rank, max_rows, explained),
        Some(Subject::Steps { rank, .. }) => report_steps(run, *rank, max_rows),
        Some(Subject::Messages(_)) => report_messages(run, max_rows),
        Some(Subject::WhatIf { rank, node, range, .. }) => {
            let subject = WhatIfSubject { rank: *rank, node: node.clone(), range: range.clone() };
            report_what_if(run, &subject, max_rows)
        }
        Some(Subject::Path(_)) => report_path(run, max_rows),
        Some(Subject::Efficiency(_)) => report_efficiency(run, max_rows),
        Some(Subject::Clocks(_)) => Ok(report_clocks(run, max_rows)),
        Some(Subject::Integrity(_)) => report_integrity(run, max_rows),
    }
}
