//! Runs a program call to its exit code, for both binaries.

use crate::budget::start_threads;
use crate::epilog::{EpilogMerge, MergeState, check_owners, is_merged};
use crate::input::listing::wait_for_shards;
use crate::merge::merge;
use crate::options::{CommandLine, InspectCommand, MergeArgs};
use crate::summary::MergeReport;
use crate::summary::inspect::inspect;
use crate::trace_inputs::{TraceReport, trace};
use rpd_comm::{Comm, broadcast_result, shared_failure};
use rpd_console::wording::one_line;
use rpd_console::{Exit, Failure};
use rpd_output_file::InterruptWatch;
use rpd_trace::{TraceRequest, WrittenTrace};
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a run ended on this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOutcome {
    /// The exit code.
    pub exit: Exit,
    /// Whether all ranks end with the same result. If not, the others may wait for this rank forever.
    pub shared: bool,
}

/// Executes the program call and prints the result on stderr. Never unwinds, because under MPI the other ranks would
/// wait forever for a rank that ended alone.
pub fn run(cli: &CommandLine, comm: &impl Comm) -> RunOutcome {
    match catch_unwind(AssertUnwindSafe(|| attempt(cli, comm))) {
        Ok(Ok(())) => RunOutcome { exit: Exit::Ok, shared: true },
        Ok(Err(failure)) => {
            if failure.is_printed_here() {
                eprintln!("error: {}", one_line(&failure.to_string()));
            }
            RunOutcome { exit: failure.exit(), shared: failure.is_shared() }
        }
        // The panic hook has printed the location.
        Err(_) => RunOutcome { exit: Exit::Internal, shared: false },
    }
}

fn attempt(cli: &CommandLine, comm: &impl Comm) -> Result<(), Failure> {
    if let Some(InspectCommand::Inspect { file, blocks }) = &cli.command {
        return if comm.rank() == 0 { inspect(file, *blocks) } else { Ok(()) };
    }
    let args = &cli.merge;
    let port = args.trace.serve;
    if port.is_some() && comm.size() > 1 {
        let why = "--serve is for one process; write the trace with all ranks, then rpd-merge --serve it without mpirun";
        return Err(shared_failure(comm, Failure::usage(why.to_owned())));
    }
    if let Some(path) = args.finished_trace() {
        let mut trace = None;
        let is_there = broadcast_result(comm, || {
            trace = WrittenTrace::at(path)?;
            Ok(trace.is_some())
        })?;
        if is_there {
            return trace.map_or(Ok(()), |trace| trace.open(port));
        }
    }
    let order = args.trace_request().map_err(|failure| shared_failure(comm, failure))?;
    let mut args = args.clone();
    if args.epilog {
        broadcast_result(comm, || check_owners(&args))?;
    }
    if args.wait > 0 {
        let began = Instant::now();
        // Waiting takes a part of the lease.
        let most = if args.epilog { args.wait.min(args.lease / 2) } else { args.wait };
        broadcast_result(comm, || {
            // A run that is merged already needs no wait.
            if args.epilog && is_merged(&args) {
                return Ok(());
            }
            let late = wait_for_shards(&args.inputs, Duration::from_secs(most.into()));
            late.into_iter().for_each(|line| eprintln!("warning: {line}"));
            Ok(())
        })?;
        let waited = u32::try_from(began.elapsed().as_secs()).unwrap_or(u32::MAX);
        args.lease = args.lease.saturating_sub(waited).max(1);
    }
    let args = &args;
    if !args.epilog {
        return merge_or_trace(comm, args, order.as_ref()).map(drop);
    }
    let Some(epilog) = EpilogMerge::begin(comm, args)? else { return Ok(()) };
    let made = merge_or_trace(comm, &MergeArgs { force: true, ..args.clone() }, order.as_ref());
    epilog.end(made.as_ref().map(|made| (made.output.as_path(), made.state, made.why.as_str())));
    made.map(drop)
}

/// Reason of a merge that lacks nothing.
const WHOLE: &str = "all that was recorded is in it";

/// The output that was made.
struct MadeOutput {
    output: PathBuf,
    state: MergeState,
    why: String,
}

impl MadeOutput {
    /// Returns the result of drawing a database that was merged before. That merge reported what is missing.
    fn drawn(database: &Path, output: PathBuf) -> MadeOutput {
        MadeOutput {
            output,
            state: MergeState::Done,
            why: format!("all that is in {} is in it", database.display()),
        }
    }

    fn of(report: &MergeReport) -> MadeOutput {
        let (state, why) = match (report.all_that_lacks(), report.died) {
            (Some(why), _) => (MergeState::Partial, why),
            (None, 0) => (MergeState::Done, WHOLE.to_owned()),
            (None, 1) => (MergeState::Done, format!("{WHOLE}; 1 process died")),
            (None, died) => (MergeState::Done, format!("{WHOLE}; {died} processes died")),
        };
        MadeOutput { output: report.output.clone(), state, why }
    }
}

fn merge_or_trace(
    comm: &impl Comm,
    args: &MergeArgs,
    order: Option<&TraceRequest>,
) -> Result<MadeOutput, Failure> {
    let port = args.trace.serve;
    start_threads(args.memory, args.threads)?;
    // A write beyond a file size limit must fail with an error instead of killing the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    // The watch of an epilog handles signals itself, because it also writes the status.
    let interrupts = (!args.epilog).then(|| InterruptWatch::begin(comm.rank() == 0));
    match order {
        Some(order) => {
            let traced = trace(comm, args, order)?;
            drop(interrupts);
            print_result(comm, args, "trace", &traced, || traced.summary())?;
            let wanted = comm.rank() == 0 && (args.trace.open || port.is_some());
            if wanted {
                WrittenTrace::of(traced.output())?.open(port)?;
            }
            Ok(match &traced {
                TraceReport::Merged(report) => MadeOutput::of(report),
                TraceReport::Direct { database, trace, .. } => {
                    MadeOutput::drawn(database, trace.output.clone())
                }
            })
        }
        None => {
            let report = merge(comm, args)?;
            drop(interrupts);
            print_result(comm, args, "database", &report, || report.summary(args.dry_run))?;
            Ok(MadeOutput::of(&report))
        }
    }
}

/// Prints the result on rank 0, after `made` was written.
fn print_result(
    comm: &impl Comm,
    args: &MergeArgs,
    made: &str,
    report: &impl Serialize,
    summary: impl Fn() -> String,
) -> Result<(), Failure> {
    if comm.rank() != 0 {
        return Ok(());
    }
    if !args.quiet {
        eprint!("{}", summary());
    }
    if args.json {
        let json = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::internal(format!("the report cannot be written as JSON: {error}")))?;
        // A reader that closed the pipe is not a failure.
        match writeln!(std::io::stdout(), "{json}") {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(Failure::output(format!(
                    "cannot print the report: {error}; the {made} is complete"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
