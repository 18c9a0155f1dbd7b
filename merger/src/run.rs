//! From arguments to an exit code: the same for both binaries.

use crate::cli::{Cli, Inspect};
use crate::comm::Comm;
use crate::failure::{Exit, Failure};
use crate::merge::merge;
use crate::report::inspect::inspect;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does what the arguments say and tells on stderr how it went. Never unwinds: under MPI a rank that
/// leaves without the others would hang them.
pub fn run(cli: &Cli, comm: &impl Comm) -> Exit {
    match catch_unwind(AssertUnwindSafe(|| attempt(cli, comm))) {
        Ok(Ok(())) => Exit::Ok,
        Ok(Err(Failure::Elsewhere(exit))) => exit,
        Ok(Err(failure)) => {
            eprintln!("error: {failure}");
            failure.exit()
        }
        // The panic hook has printed where.
        Err(_) => Exit::Internal,
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
