//! Makes a trace from inputs: merges them into a database beside the output, draws that, and removes it.

use crate::input::listing::find_all;
use crate::options::MergeArgs;
use crate::output::planned_size::trace_bytes;
use crate::output::size_limit::SizeLimit;
use crate::summary::{MergeReport, NotUsed};
use crate::temporary_merge::{TemporaryMerge, merged_database};
use rpd_comm::{Comm, broadcast_result};
use rpd_console::wording::one_line;
use rpd_console::{Failure, PhaseTime, Progress};
use rpd_output_file::check_output_name;
use rpd_trace::{TraceFiles, TraceOutcome, TraceRequest, draw_trace};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The outcome of a trace. It is the same on all merge ranks, except for what only rank 0 knows about the files.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum TraceReport {
    /// The inputs were merged for it.
    Merged(Box<MergeReport>),
    /// It was drawn directly from a merged database.
    Direct {
        /// Path of the database.
        database: PathBuf,
        /// The resulting trace.
        trace: Box<TraceOutcome>,
        /// Files beside the database that are not merged.
        #[serde(flatten)]
        unused: NotUsed,
        /// Wall time, s.
        seconds: f64,
        /// Wall time of each phase.
        phases: Vec<PhaseTime>,
    },
}

/// Writes the trace of the inputs. Every rank calls this.
pub(crate) fn trace(
    comm: &impl Comm,
    args: &MergeArgs,
    order: &TraceRequest,
) -> Result<TraceReport, Failure> {
    let begun = Instant::now();
    let mut progress = Progress::new(comm.rank() == 0 && !args.quiet);
    progress.phase("plan");
    let (output, files, unused) = broadcast_result(comm, || {
        let (found, unused) = find_all(&args.inputs)?;
        let output = args.output.clone().unwrap_or(found.output_folder);
        // A path that is not UTF-8 cannot be sent to the other ranks.
        check_output_name(&output)?;
        Ok((output, found.files, unused))
    })?;
    let place = TraceFiles::begin(comm, order, &output, args.force)?;
    let direct = broadcast_result(comm, || {
        let database = merged_database(args, &files);
        if let Some(length) = database.as_ref().and_then(|path| path.metadata().ok()).map(|found| found.len())
        {
            SizeLimit::of(args, &files).check(trace_bytes(length), place.work_folder())?;
        }
        Ok(database)
    })?;
    let (merged, database) = match direct {
        Some(database) => (None, database),
        None => {
            let files = (files, unused.clone());
            let merged = TemporaryMerge::of(comm, args, files, place.work_folder(), &mut progress)?;
            let database = merged.path().to_owned();
            (Some(merged), database)
        }
    };
    let drawn = draw_trace(comm, order, args.memory.drawing(), &database, &place, &mut progress)?;
    let report = merged.map(TemporaryMerge::into_report);
    broadcast_result(comm, || place.publish(drawn.files, args.share))?;
    let phases = progress.finish();
    let seconds = begun.elapsed().as_secs_f64();
    Ok(match report {
        Some(mut report) => {
            report.output = drawn.output.clone();
            (report.trace, report.seconds, report.phases) = (Some(drawn), seconds, phases);
            TraceReport::Merged(Box::new(report))
        }
        None => {
            let unused = NotUsed::new(unused);
            TraceReport::Direct { database, trace: Box::new(drawn), unused, seconds, phases }
        }
    })
}

impl TraceReport {
    /// Returns the file, or the folder of the files.
    pub(crate) fn output(&self) -> &Path {
        match self {
            TraceReport::Merged(report) => &report.output,
            TraceReport::Direct { trace, .. } => &trace.output,
        }
    }

    /// Returns the closing summary.
    pub(crate) fn summary(&self) -> String {
        match self {
            TraceReport::Merged(report) => report.summary(false),
            TraceReport::Direct { database, trace, seconds, unused, .. } => {
                let mut lines = vec![("drawn", format!("{} in {seconds:.1} s", database.display()))];
                lines.extend(trace.lines());
                lines.extend(unused.line.clone().map(|text| ("not used", text)));
                lines.push(("output", trace.output.display().to_string()));
                lines.into_iter().map(|(label, text)| format!("{label:<10} {}\n", one_line(&text))).collect()
            }
        }
    }
}
