//! From inputs to a trace: they are merged into a database beside the output, which is drawn and removed.

use super::drawn::Drawn;
use super::form::Form;
use super::place::{Place, Target};
use super::rows::JobRows;
use super::slices;
use crate::cli::{MergeArgs, TraceOrder};
use crate::clock::Align;
use crate::comm::Comm;
use crate::failure::Failure;
use crate::input::find::Listed;
use crate::input::unused::find_all;
use crate::listing::Listing;
use crate::merge::merge_listed;
use crate::output::partial::Partial;
use crate::output::planned_size::trace_bytes;
use crate::output::size_limit::SizeLimit;
use crate::report::progress::{PhaseTime, Progress};
use crate::report::words::one_line;
use crate::report::{NotUsed, Report};
use crate::together::{from_rank_0, settle};
use rpd_foreign::Format;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The outcome of a trace, the same in all merge ranks, but for what only rank 0 knows of the files.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Traced {
    /// Inputs were merged for it.
    Merged(Box<Report>),
    /// It was made of a merged database as it is.
    Direct {
        /// The database.
        database: PathBuf,
        /// The trace.
        trace: Box<Drawn>,
        /// Files beside it that are not merged.
        #[serde(flatten)]
        unused: NotUsed,
        /// Wall time,
        seconds: f64,
        /// and that of each phase.
        phases: Vec<PhaseTime>,
    },
}

/// Writes the trace of the inputs. Every rank calls this.
pub fn trace(comm: &impl Comm, args: &MergeArgs, order: &TraceOrder) -> Result<Traced, Failure> {
    let begun = Instant::now();
    let mut progress = Progress::new(comm.rank() == 0 && !args.quiet);
    progress.phase("plan");
    let (target, files, unused) = from_rank_0(comm, || {
        let (found, unused) = find_all(&args.inputs)?;
        let ending = Form::of(order.format).ending();
        let target = Target::new(args.output.as_deref(), &found.home, order.split, ending, args.force)?;
        Ok((target, found.files, unused))
    })?;
    let mut place = settle(comm, Place::begin(target, comm.rank() == 0))?;
    place.share();
    let direct = from_rank_0(comm, || {
        let database = merged_database(args, &files);
        if let Some(length) = database.as_ref().and_then(|path| path.metadata().ok()).map(|found| found.len())
        {
            SizeLimit::of(args, &files).check(trace_bytes(length), place.work())?;
        }
        Ok(database)
    })?;
    let (mut report, partial, database) = match direct {
        Some(database) => (None, None, database),
        None => {
            let output = place.work().join("merged.db");
            let mut listing =
                from_rank_0(comm, || Listing::of((files, unused.clone()), output.clone(), args))?;
            let mut partial = settle(comm, Partial::begin(&output, comm.rank() == 0, false))?;
            partial.share();
            let report = merge_listed(comm, args, &mut listing, Some(&partial), &mut progress)?;
            let database = partial.path().to_owned();
            (Some(report), Some(partial), database)
        }
    };
    let drawn = slices(comm, order, args.memory, &database, &place, &mut progress)?;
    drop(partial);
    let published = if comm.rank() == 0 { place.publish(drawn.files, args.share) } else { Ok(()) };
    settle(comm, published)?;
    let phases = progress.finish();
    let seconds = begun.elapsed().as_secs_f64();
    Ok(match report.take() {
        Some(mut report) => {
            report.output = drawn.output.clone();
            report.trace = Some(drawn);
            report.seconds = seconds;
            report.phases = phases;
            Traced::Merged(Box::new(report))
        }
        None => {
            let unused = NotUsed::new(unused);
            Traced::Direct { database, trace: Box::new(drawn), unused, seconds, phases }
        }
    })
}

/// The only input, if it is a merged database and nothing is asked for that only a merge can do.
fn merged_database(args: &MergeArgs, files: &[Listed]) -> Option<PathBuf> {
    let merges = args.strict
        || args.repair_causality
        || args.align != Align::default()
        || args.clock_file.is_some()
        || args.clock_plot.is_some()
        || args.environment.is_some();
    match files {
        [Listed { path, format: Ok(Format::RocPd), .. }] if !merges && JobRows::is_merged(path) => {
            Some(path.clone())
        }
        _ => None,
    }
}

impl Traced {
    /// The file, or the folder of the files.
    pub fn output(&self) -> &Path {
        match self {
            Traced::Merged(report) => &report.output,
            Traced::Direct { trace, .. } => &trace.output,
        }
    }

    /// The closing summary.
    pub fn summary(&self) -> String {
        match self {
            Traced::Merged(report) => report.summary(false),
            Traced::Direct { database, trace, seconds, unused, .. } => {
                let mut lines = vec![("drawn", format!("{} in {seconds:.1} s", database.display()))];
                lines.extend(trace.lines());
                lines.extend(unused.line().map(|text| ("not used", text)));
                lines.push(("output", trace.output.display().to_string()));
                lines.into_iter().map(|(label, text)| format!("{label:<10} {}\n", one_line(&text))).collect()
            }
        }
    }
}
