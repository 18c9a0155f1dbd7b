//! From arguments to an exit code: the same for both binaries.

use crate::cli::{Cli, Inspect};
use crate::comm::Comm;
use crate::failure::{Exit, Failure};
use crate::merge::merge;
use crate::report::inspect::inspect;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run ended in this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The exit code.
    pub exit: Exit,
    /// Whether all ranks end like this. Where not, the others may wait for this one for ever.
    pub shared: bool,
}

/// Does what the arguments say and tells on stderr how it went. Never unwinds: under MPI a rank that
/// leaves without the others would hang them.
pub fn run(cli: &Cli, comm: &impl Comm) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| attempt(cli, comm))) {
        Ok(Ok(())) => Outcome { exit: Exit::Ok, shared: true },
        Ok(Err(failure)) => {
            if !matches!(failure, Failure::ToldByRank0(_)) {
                eprintln!("error: {failure}");
            }
            Outcome { exit: failure.exit(), shared: failure.is_shared() }
        }
        // The panic hook has printed where.
        Err(_) => Outcome { exit: Exit::Internal, shared: false },
    }
}

fn attempt(cli: &Cli, comm: &impl Comm) -> Result<(), Failure> {
    if let Some(Inspect::Inspect { file, blocks }) = &cli.command {
        return if comm.rank() == 0 { inspect(file, *blocks) } else { Ok(()) };
    }
    let args = &cli.merge;
    if let Some(threads) = args.threads {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads.into())
            .build_global()
            .map_err(|error| Failure::Internal(format!("cannot start {threads} threads: {error}")))?;
    }
    let report = merge(comm, args)?;
    if comm.rank() != 0 {
        return Ok(());
    }
    if !args.quiet {
        eprint!("{}", report.summary(args.dry_run));
    }
    if args.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::Internal(format!("the report cannot be written as JSON: {error}")))?;
        println!("{json}");
    }
    Ok(())
}
