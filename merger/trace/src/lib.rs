//! Draws a merged database as traces for Perfetto and Chrome: one file, or time slices of the run.
//!
//! [`draw_trace`] writes the [`TraceFiles`] of a [`TraceRequest`] and returns a [`TraceOutcome`]; it reads as the
//! algorithm. [`WrittenTrace`] is a finished trace, for opening it. [`JobRows`] passes on the items of a trace
//! instead of writing them.
//!
//! `draw` turns rows of the database into items (`item`); the trace writers do not depend on the tables.

mod chrome;
mod compressed_pieces;
mod described_tracks;
mod draw;
mod files;
mod format;
mod index;
mod item;
mod memory;
mod open;
mod options;
mod outcome;
mod output_files;
mod perfetto;
mod serve;
mod sort_items;
mod split;
mod spool;
mod time_slices;
mod track_numbers;
mod units;
mod write_items;

pub use draw::JobRows;
pub use item::{ArgValue, ItemExclusion, ItemKind, TraceSelection, TrackKind, UnitFacts, UnitLayout};
pub use open::WrittenTrace;
pub use options::{TraceFormat, TraceRequest, TraceSplit};
pub use outcome::TraceOutcome;
pub use output_files::TraceFiles;

use files::FileFrame;
use outcome::NO_PLACE;
use rpd_comm::{Comm, agree_on_result, broadcast_result, shared_failure};
use rpd_console::wording::{duration, noun, one_line, rank_list, rank_ranges};
use rpd_console::{Failure, Progress, TimeWindow, WallClock};
use rpd_shard::record::wire;
use split::SliceCutter;
use std::path::Path;
use time_slices::{TimeHistogram, TimeSlices};
use units::{RankUnits, RunTimes};

/// Writes the traces of a merged database into the working folder, as finished files without their final names.
/// `memory` is the number of bytes that this rank may use. All ranks must call this.
///
/// # Errors
/// If the database cannot be read, a file cannot be written, or the request does not fit the run.
pub fn draw_trace(
    comm: &impl Comm,
    order: &TraceRequest,
    memory: u64,
    database: &Path,
    place: &TraceFiles,
    progress: &mut Progress,
) -> Result<TraceOutcome, Failure> {
    // 1. Every rank opens the database and surveys its units: their tracks and times.
    let form = order.format;
    let mut rows = agree_on_result(comm, JobRows::open(database, &order.selection))?;
    let length = database.metadata().map_or(0, |found| found.len());
    let mut own = RankUnits::share(&rows, length, comm.rank(), comm.size());
    progress.phase_of_bytes("look", own.bytes());
    let counted = order.split != TraceSplit::Whole;
    let histogram = agree_on_result(
        comm,
        own.survey(&rows, counted.then(|| form.event_bytes(order.selection.annotations)), progress),
    )?;
    let numbers = track_numbers::number(comm, &own.layouts().collect::<Vec<_>>())?;
    let rest = agree_on_result(comm, rows.extent(comm.rank(), comm.size()))?;
    let times = own.times(comm, rest)?;
    let histogram = gather_histogram(comm, histogram)?;

    // 2. The run is divided into time slices.
    let realtime_minus_job = rows.run().realtime_minus_job_ns(times.first);
    let whole = window(order, times, realtime_minus_job).map_err(|failure| shared_failure(comm, failure))?;
    rows.set_window((order.window != TimeWindow::default()).then(|| (whole.first(), whole.end())));
    let described = units::described(comm, own.layouts(), form)?;
    let event_bytes = form.event_bytes(order.selection.annotations);
    let mut cutter = SliceCutter::new(order, &whole, histogram, event_bytes, described);
    let mut windows = cutter.first();

    // 3. Items are encoded as pieces of files, whose lengths are then known.
    let (frame, made, parts) = loop {
        let frame = FileFrame { form, windows: windows.clone(), t0: times.first, realtime_minus_job };
        progress.phase_of_bytes("draw", own.bytes());
        let made = agree_on_result(
            comm,
            own.draw(&rows, &numbers, &frame, memory, (place.work(), comm.rank()), progress),
        )?;
        let parts = files::agree(comm, &made.pieces, &made.tallies)?;
        match cutter.again(&windows, &parts) {
            Some(finer) => windows = finer,
            None => break (frame, made, parts),
        }
    };
    cutter.check(&parts).map_err(|failure| shared_failure(comm, failure))?;

    // 4. Every rank writes its part of each file.
    progress.phase("files");
    let count = windows.len();
    let path = |number: usize| place.work().join(place.target().name(number, count));
    let files = files::write(comm, &frame, (&made.pieces, &made.spool), &parts, &path)?;
    let ranks = index::gather_ranks(comm, &own.ranks_of_files(&made.pieces))?;
    let mut facts = units::gather_facts(comm, &made)?;
    facts.add(&rows.unselected());
    let mut drawn = TraceOutcome::new(place.target().path(), &frame, &parts, &facts);
    drawn.warnings = warnings(&rows);
    drawn.note_empty_files(order.split, &parts, |number| place.target().name(number, count));
    for (table, count) in broadcast_result(comm, || rows.carried_tables())? {
        drawn.not_drawn.insert(format!("{} of {table}{NO_PLACE}", noun(count, "row")), count);
    }
    if comm.rank() == 0 {
        drawn.warnings.iter().for_each(|line| eprintln!("warning: {}", one_line(line)));
    }
    let written = match comm.rank() == 0 && place.target().has_index() {
        true => index::write(place.work(), rows.run(), &drawn, &frame, place.target(), &files, &ranks),
        false => Ok(()),
    };
    agree_on_result(comm, written)?;
    drawn.bytes = files.iter().map(|file| file.bytes).sum();
    Ok(drawn)
}

/// Adds the histograms of all ranks, in pairs; all ranks get the sum.
fn gather_histogram(comm: &impl Comm, own: TimeHistogram) -> Result<TimeHistogram, Failure> {
    let mut sum = own;
    let mut step = 1;
    while step < comm.size() {
        let mut outgoing = vec![Vec::new(); comm.size()];
        if comm.rank() % (2 * step) == step {
            outgoing[comm.rank() - step] = wire::encode(&sum);
        }
        for message in comm.all_to_all(outgoing).iter().filter(|message| !message.is_empty()) {
            sum.join(wire::decode_message(message).map_err(Failure::message)?);
        }
        step *= 2;
    }
    broadcast_result(comm, || Ok(sum))
}

/// Returns warnings about selected ranks that are not in the job.
fn warnings(rows: &JobRows) -> Vec<String> {
    let unknown = rows.unknown_ranks();
    if unknown.is_empty() {
        return Vec::new();
    }
    let known = match rows.run().ranks() {
        known if known.is_empty() => "no rank is known in it".to_owned(),
        known => format!("it has {}", rank_ranges(&known)),
    };
    vec![format!("--ranks {}: nothing of them is in the job; {known}", rank_list(&unknown))]
}

/// Returns the part of the run that is drawn, as a single time slice.
fn window(
    order: &TraceRequest,
    times: RunTimes,
    realtime_minus_job: Option<i64>,
) -> Result<TimeSlices, Failure> {
    let wall_clock = realtime_minus_job.map(|more| WallClock(times.first.saturating_add(more)));
    let ends = order.window.of_job(times.first, wall_clock);
    let (from, to) = ends.map_err(|error| Failure::usage(error.to_string()))?;
    let end = times.last.saturating_add(1);
    if from.is_some_and(|from| from >= end) {
        return Err(Failure::usage(format!(
            "the window {} begins when the job is over: its last event ends {} after its first one begins",
            order.window,
            duration(times.last.saturating_sub(times.first))
        )));
    }
    Ok(TimeSlices::one(from.unwrap_or(times.first).max(times.first), to.unwrap_or(end).min(end)))
}
