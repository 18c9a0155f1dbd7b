//! Draws a merged database as traces for Perfetto and Chrome: one file, or time slices of the run.
//!
//! [`draw_trace`] writes the [`TraceFiles`] of a [`TraceRequest`] and returns a [`TraceOutcome`]; it reads as the
//! algorithm. [`WrittenTrace`] is a finished trace, for opening it. [`JobRows`] passes on the items of a trace
//! instead of writing them.
//!
//! `draw` turns rows of the database into items (`item`); the trace writers do not depend on the tables.

mod chrome;
mod collective_arrows;
mod compressed_pieces;
mod described_tracks;
mod draw;
mod earlier_calls;
mod file_note;
mod files;
mod format;
mod index;
mod item;
mod memory;
mod message_arrows;
mod open;
mod options;
mod outcome;
mod output_files;
mod perfetto;
mod rank_order;
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

use file_note::FileNotes;
use files::FileFrame;
use message_arrows::MessageArrows;
use outcome::CARRIED_SUFFIX;
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
    request: &TraceRequest,
    memory: u64,
    database: &Path,
    output: &TraceFiles,
    progress: &mut Progress,
) -> Result<TraceOutcome, Failure> {
    // 1. Every rank opens the database and surveys its units: their tracks and times.
    let format = request.format;
    let mut rows = agree_on_result(comm, JobRows::open(database, &request.selection))?;
    let length = database.metadata().map_or(0, |found| found.len());
    let mut units = RankUnits::share(&rows, length, comm.rank(), comm.size());
    progress.phase_of_bytes("look", units.bytes());
    let counts_events = request.split != TraceSplit::Whole;
    let histogram = agree_on_result(comm, units.survey(&rows, counts_events, progress))?;
    let numbers = track_numbers::number(comm, &units.layouts().collect::<Vec<_>>())?;
    let undrawn_times = agree_on_result(comm, rows.extent(comm.rank(), comm.size()))?;
    let times = units.gather_times(comm, undrawn_times)?;
    let histogram = gather_histogram(comm, histogram)?;
    check_ranks(&rows).map_err(|failure| shared_failure(comm, failure))?;
    let messages = MessageArrows::find(comm, &mut rows, &units, memory)?;

    // 2. The run is divided into time slices.
    let realtime_minus_job = rows.run().realtime_minus_job_ns(times.first);
    let whole =
        window(request, times, realtime_minus_job).map_err(|failure| shared_failure(comm, failure))?;
    rows.set_window((request.window != TimeWindow::default()).then(|| (whole.first(), whole.end())));
    let described = units::description_bytes(comm, units.layouts(), format)?;
    let event_bytes = format.event_bytes(request.selection.annotations);
    let mut cutter = SliceCutter::new(request, &whole, histogram, event_bytes, described);
    let mut windows = cutter.first_slices();

    // 3. Items are encoded as pieces of files of then known lengths.
    let (frame, mut encoded, parts) = loop {
        let frame = FileFrame { format, windows: windows.clone(), t0: times.first, realtime_minus_job };
        progress.phase_of_bytes("draw", units.bytes());
        let encoded = agree_on_result(
            comm,
            units.draw(&rows, &numbers, &frame, memory, (output.work_folder(), comm.rank()), progress),
        )?;
        let parts = files::agree_on_parts(comm, &encoded.pieces, &encoded.tallies)?;
        match cutter.divide_again(&windows, &parts) {
            Some(finer) => windows = finer,
            None => break (frame, encoded, parts),
        }
    };
    cutter.check_sizes(&parts).map_err(|failure| shared_failure(comm, failure))?;

    // 4. The ranks of each file, and the rows that are missing, are known.
    let count = windows.len();
    let ranks = index::gather_ranks(comm, units.ranks_of_files(&encoded.pieces), count)?;
    let mut facts = units::gather_facts(comm, &encoded)?;
    facts.add(&rows.unselected());
    let mut outcome = TraceOutcome::new(output.target().path(), &frame, &parts, &facts);
    outcome.warnings = warnings(&rows);
    outcome.warnings.extend(messages.warning());
    outcome.warnings.extend(request.selection.unmatched_categories(facts.matched_exclusions));
    messages.count_not_drawn(comm, &frame.windows, &mut outcome.not_drawn)?;
    outcome.note_cut_collectives(encoded.take_collectives().count_cut(comm)?);
    outcome.left_out = request.selection.left_out();
    outcome.note_empty_trace();
    outcome.note_empty_files(request.split, &parts, |number| output.target().name(number, count));
    outcome.note_uneven_files(request.split, &parts, |number| output.target().name(number, count));
    for (table, count) in broadcast_result(comm, || rows.carried_tables())? {
        outcome.not_drawn.insert(format!("{} of {table}{CARRIED_SUFFIX}", noun(count, "row")), count);
    }
    if comm.rank() == 0 {
        outcome.warnings.iter().for_each(|line| eprintln!("warning: {}", one_line(line)));
    }

    // 5. Every rank writes its part of each file.
    progress.phase("files");
    let notes = FileNotes::new(rows.run().run_id(), &outcome, ranks);
    let path = |number: usize| output.work_folder().join(output.target().name(number, count));
    let spooled = (&encoded.pieces[..], &encoded.spool);
    let files = files::write_files(comm, (&frame, &notes), spooled, &parts, &path)?;
    let written = match comm.rank() == 0 && output.target().has_index() {
        true => index::write(output, rows.run(), &outcome, &frame, &files, &notes),
        false => Ok(()),
    };
    agree_on_result(comm, written)?;
    outcome.bytes = files.iter().map(|file| file.bytes).sum();
    Ok(outcome)
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
            sum.join(wire::decode_message(message).map_err(Failure::damaged_message)?);
        }
        step *= 2;
    }
    broadcast_result(comm, || Ok(sum))
}

/// Fails if the job has none of the selected ranks.
fn check_ranks(rows: &JobRows) -> Result<(), Failure> {
    if !rows.selects_unknown_ranks_only() {
        return Ok(());
    }
    let (ranks, selected) = (rows.run().ranks(), rank_list(&rows.unknown_ranks()));
    Err(Failure::usage(match ranks.is_empty() {
        true => format!("--ranks {selected}: no rank is known in the job; omit --ranks"),
        false => {
            format!("--ranks {selected}: the job does not have them; it has ranks {}", rank_ranges(&ranks))
        }
    }))
}

/// Returns warnings about selected ranks that are not in the job.
fn warnings(rows: &JobRows) -> Vec<String> {
    let unknown = rows.unknown_ranks();
    if unknown.is_empty() {
        return Vec::new();
    }
    let known = rank_ranges(&rows.run().ranks());
    vec![format!("--ranks {}: the job does not have them; it has ranks {known}", rank_list(&unknown))]
}

/// Returns the part of the run that is drawn, as a single time slice.
fn window(
    request: &TraceRequest,
    times: RunTimes,
    realtime_minus_job: Option<i64>,
) -> Result<TimeSlices, Failure> {
    let wall_clock = realtime_minus_job.map(|more| WallClock(times.first.saturating_add(more)));
    let ends = request.window.of_job(times.first, wall_clock);
    let (from, to) = ends.map_err(|error| Failure::usage(error.to_string()))?;
    let end = times.last.saturating_add(1);
    if from.is_some_and(|from| from >= end) {
        return Err(Failure::usage(format!(
            "the window {} begins after the last event of the job, which ends {} after the first one begins",
            request.window,
            duration(times.last.saturating_sub(times.first))
        )));
    }
    Ok(TimeSlices::one(from.unwrap_or(times.first).max(times.first), to.unwrap_or(end).min(end)))
}
