//! After the file is complete: finds which rank the others wait for, as rpd-report does, and writes many calls into a
//! file of their own, from which rpd-report reads them.

use super::agree::JobAgreement;
use crate::budget::MemoryBudget;
use crate::options::{LateChoice, MergeArgs};
use crate::partial_output::PartialOutput;
use crate::summary::MergeReport;
use rpd_calls::{CallFile, ReadOptions, RunCalls, has_collective_kernels};
use rpd_comm::{Comm, broadcast_result};
use rpd_console::wording::grouped;
use rpd_console::{Failure, Progress};
use rpd_files::remove_output;
use rpd_run::{RowUnit, RunDatabase};
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::size::Size;
use rpd_verdict::{AnalysisOptions, RunVerdict};
use serde::{Deserialize, Serialize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Maximum number of calls to MPI that are analysed unless the user wants it.
const MAX_CALLS: u64 = 50_000_000;
/// Minimum number of calls to MPI that have a file of their own. Fewer are read from rows within a tenth of a second.
const MIN_CALLS_OF_FILE: u64 = 100_000;

/// Result of the analysis of the calls.
#[derive(Debug, Serialize, Deserialize)]
struct FoundInCalls {
    /// The object of the verdict.
    verdict: String,
    has_call_file: bool,
    /// Why there is no file of calls, although there should be one.
    note: Option<String>,
}

/// Analyses the calls to MPI in the complete file on rank 0, and adds the verdict to the report, or the reason why they
/// cannot be analysed. The file does not have it: whether calls are analysed depends on the memory of the merge, and
/// what it writes does not.
///
/// # Errors
/// A failure that the ranks have agreed on.
pub(super) fn analyse(
    comm: &impl Comm,
    args: &MergeArgs,
    agreed: &JobAgreement,
    output: &PartialOutput,
    report: &mut MergeReport,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let is_wanted = args.late != LateChoice::Never && report.has_several_processes();
    if report.verdict.is_some() || !is_wanted {
        return Ok(());
    }
    // Without calls to MPI, only kernels of RCCL may show it.
    let is_of_mpi = agreed.findings.mpi_calls > 0;
    if !is_of_mpi && broadcast_result(comm, || Ok(lacks_collective_kernels(output.path())))? {
        report.verdict = Some(RunVerdict::without_calls(&[]));
        return Ok(());
    }
    progress.phase("analyse");
    let found = broadcast_result(comm, || Ok(analyse_file(args, agreed, output, report)))?;
    report.verdict = RunVerdict::parse(&found.verdict);
    report.call_file = found.has_call_file.then(|| CallFile::place(&report.output));
    report.notes.extend(found.note);
    Ok(())
}

fn analyse_file(
    args: &MergeArgs,
    agreed: &JobAgreement,
    output: &PartialOutput,
    report: &MergeReport,
) -> FoundInCalls {
    let path = output.path();
    let is_worth_it = agreed.findings.mpi_calls >= MIN_CALLS_OF_FILE && agreed.sets.all.len() == 1;
    let place = (is_worth_it && report.is_database).then(|| output.calls_path());
    let written = place.map(|place| {
        output.check_calls_place()?;
        write_calls(path, &place, args.memory).map(|()| place)
    });
    let written = written.transpose();
    let (call_file, failed) = written.map_or_else(|reason| (None, Some(reason)), |place| (place, None));
    let verdict = match obstacle(args, agreed) {
        Some(reason) => Err(reason),
        None => find_verdict(path, call_file.as_deref()),
    };
    FoundInCalls {
        verdict: verdict.unwrap_or_else(|reason| not_analysed(&reason, path, report)).object().to_owned(),
        has_call_file: call_file.is_some(),
        note: failed.map(|reason| format!("the calls have no file beside the database: {reason}")),
    }
}

/// Writes the file of calls. Returns the reason if that fails.
fn write_calls(database: &Path, place: &Path, memory: MemoryBudget) -> Result<(), String> {
    let written = without_panic(|| {
        let run = RunDatabase::open(database, None)?;
        const TABLES: [TableId; 3] = [rocpd::REGION, rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY];
        let rows = |unit: &RowUnit| {
            TABLES.iter().fold(0u64, |sum, table| sum.saturating_add(unit.ids(*table).count()))
        };
        let regions = run.units.iter().map(rows).max().unwrap_or(0);
        match memory.units_at_once(regions, rayon::current_num_threads()) {
            0 => Err(Failure::usage(format!(
                "a rank has {} regions, kernels and copies; give it more --memory",
                grouped(regions)
            ))),
            at_once => CallFile::write(place, &run, at_once),
        }
    });
    written.map_err(|reason| {
        let _ = remove_output(place);
        // It would have got another name.
        let [unfinished, database] = [place, database].map(|path| path.display().to_string());
        reason.replace(&unfinished, "the file").replace(&database, "the database")
    })
}

/// Returns why the calls are not analysed.
fn obstacle(args: &MergeArgs, agreed: &JobAgreement) -> Option<String> {
    if agreed.sets.all.len() > 1 {
        return Some("the merge does not analyse calls in several table sets".to_owned());
    }
    if args.late == LateChoice::Always {
        return None;
    }
    let calls = agreed.findings.mpi_calls;
    let found = format!("up to {} calls to MPI are not analysed", grouped(calls));
    if calls > MAX_CALLS {
        return Some(format!("{found} without --late always"));
    }
    let regions = agreed.numbering.totals.get(&rocpd::REGION).copied().unwrap_or(0);
    let of_gpus = [rocpd::KERNEL_DISPATCH, rocpd::MEMORY_COPY]
        .map(|table| agreed.numbering.totals.get(&table).copied().unwrap_or(0));
    // A kernel or copy takes as much as a call, and so does its launch.
    let of_gpus = of_gpus.into_iter().fold(0, u64::saturating_add).saturating_mul(2);
    let needed = args.memory.lacks_for_analysis(calls.saturating_add(of_gpus), regions)?;
    let needed = Size(needed.next_multiple_of(1 << 20));
    Some(format!("{found} without --late always, because that may take {needed} of memory"))
}

/// Returns the verdict on calls that are not analysed, with the command that analyses them.
fn not_analysed(reason: &str, path: &Path, report: &MergeReport) -> RunVerdict {
    let [partial, output] = [path, &report.output].map(|path| path.display().to_string());
    let command = match report.is_database {
        true => format!("run rpd-report {output}"),
        false => "run rpd-report with the same inputs".to_owned(),
    };
    // The file at `path` gets the name of the output.
    RunVerdict::not_analysed(&format!("{}; {command}", reason.replace(&partial, &output)))
}

/// Returns whether the file is known to have no kernels of collectives.
fn lacks_collective_kernels(path: &Path) -> bool {
    without_panic(|| has_collective_kernels(&RunDatabase::open(path, None)?)).is_ok_and(|has_some| !has_some)
}

/// Analyses the calls in the file. Returns the reason if that fails.
fn find_verdict(path: &Path, call_file: Option<&Path>) -> Result<RunVerdict, String> {
    without_panic(|| {
        let run = RunDatabase::open(path, None)?;
        let stored = call_file.and_then(|place| CallFile::open(place, &run).ok().flatten());
        let calls = stored.and_then(|stored| RunCalls::from_file(&run, &stored).ok());
        let calls = calls.map_or_else(|| RunCalls::read(&run, &ReadOptions::default()), Ok)?;
        drop(run);
        AnalysisOptions::default().analyse(calls, |found| Ok(RunVerdict::of(found)))
    })
}

/// Returns the reason if a computation fails or panics.
fn without_panic<T>(compute: impl FnOnce() -> Result<T, Failure>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(compute)) {
        Ok(found) => found.map_err(|failure| failure.to_string()),
        // The panic hook has printed the location.
        Err(_) => Err("the analysis of calls failed, which is a fault of rpd-merge".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_that_cannot_be_analysed_has_the_reason_in_its_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let [partial, output] = ["run.db.partial", "run.db"].map(|name| folder.path().join(name));
        let mut report = MergeReport::default();
        (report.output, report.is_database) = (output.clone(), true);
        for content in [&b""[..], b"SQLite format 3\0", &[7; 10_000]] {
            std::fs::write(&partial, content).unwrap();
            let reason = find_verdict(&partial, None).unwrap_err();
            let verdict = not_analysed(&reason, &partial, &report);
            let headline = verdict.headline();
            let begin = format!("CANNOT TELL which rank the others wait for: {}", output.display());
            let end = format!("; run rpd-report {}", output.display());
            assert!(headline.starts_with(&begin) && headline.ends_with(&end), "{headline}");
            assert!(!headline.contains(".partial"), "{headline}");
        }
    }
}
