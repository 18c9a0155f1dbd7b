//! After the file is complete: finds which rank the others wait for, as rpd-report does.

use super::agree::JobAgreement;
use crate::options::{LateChoice, MergeArgs};
use crate::summary::MergeReport;
use rpd_calls::{ReadOptions, RunCalls};
use rpd_comm::{Comm, broadcast_result};
use rpd_console::wording::grouped;
use rpd_console::{Failure, Progress};
use rpd_run::RunDatabase;
use rpd_shard::model::rocpd;
use rpd_shard::size::Size;
use rpd_verdict::{AnalysisOptions, RunVerdict};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Maximum number of calls to MPI that are analysed unless the user wants it.
const MAX_CALLS: u64 = 50_000_000;

/// Analyses the calls to MPI in the complete file at `path` on rank 0, and adds the verdict to the report, or the reason
/// why they cannot be analysed. The file does not have it: whether calls are analysed depends on the memory of the
/// merge, and what it writes does not.
///
/// # Errors
/// A failure that the ranks have agreed on.
pub(super) fn analyse(
    comm: &impl Comm,
    args: &MergeArgs,
    agreed: &JobAgreement,
    path: &Path,
    report: &mut MergeReport,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let is_wanted = args.late != LateChoice::Never && report.has_several_processes();
    if report.verdict.is_some() || !is_wanted {
        return Ok(());
    }
    progress.phase("analyse");
    let object = broadcast_result(comm, || {
        let verdict = match obstacle(args, agreed).map_or_else(|| find_verdict(path), Err) {
            Ok(verdict) => verdict,
            Err(reason) => not_analysed(&reason, path, report),
        };
        Ok(verdict.object().to_owned())
    })?;
    report.verdict = RunVerdict::parse(&object);
    Ok(())
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
    let needed = args.memory.lacks_for_analysis(calls, regions)?;
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

/// Analyses the calls in the file. Returns the reason if that fails.
fn find_verdict(path: &Path) -> Result<RunVerdict, String> {
    let analysed = catch_unwind(AssertUnwindSafe(|| {
        let calls = RunCalls::read(&RunDatabase::open(path, None)?, &ReadOptions::default())?;
        AnalysisOptions::default().analyse(calls, |found| Ok(RunVerdict::of(found)))
    }));
    match analysed {
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
            let reason = find_verdict(&partial).unwrap_err();
            let verdict = not_analysed(&reason, &partial, &report);
            let headline = verdict.headline();
            let begin = format!("CANNOT TELL which rank the others wait for: {}", output.display());
            let end = format!("; run rpd-report {}", output.display());
            assert!(headline.starts_with(&begin) && headline.ends_with(&end), "{headline}");
            assert!(!headline.contains(".partial"), "{headline}");
        }
    }
}
