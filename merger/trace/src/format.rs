//! The trace formats.

use super::chrome::{self, ChromeWriter};
use super::item::UnitLayout;
use super::perfetto::{PerfettoWriter, TrackForm};
use super::sort_items::ItemSorter;
use super::time_slices::TimeSlices;
use super::write_items::{EncodedUnit, FileCanvas, SlicePieces, SliceWriter, WrittenChanges};
use crate::options::TraceFormat;
use rpd_console::Failure;
use rpd_files::open_input;
use rpd_perfetto::{MAX_HEAD, Timestamp, file_head, gunzip_start, is_file_head};
use std::path::Path;

impl TraceFormat {
    /// Returns the name that `--format` uses.
    pub(super) fn name(self) -> &'static str {
        match self {
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => "perfetto",
            TraceFormat::ChromeJson => "chrome-json",
        }
    }

    /// Returns the suffix of file names.
    pub(super) fn file_suffix(self) -> &'static str {
        match self {
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => ".pftrace.gz",
            TraceFormat::ChromeJson => ".json.gz",
        }
    }

    /// Returns the head of a file. `start` is its first time since T0, `wall_clock` the same since 1970, if
    /// known; ns.
    pub(super) fn head(self, start: i64, wall_clock: Option<i64>) -> Vec<u8> {
        match self {
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => {
                let wall_clock = wall_clock.and_then(|time| u64::try_from(time).ok());
                file_head(Timestamp::new(start).unwrap_or_default(), wall_clock)
            }
            TraceFormat::ChromeJson => chrome::HEAD.to_vec(),
        }
    }

    /// Returns whether a file has a head that one of our formats writes.
    pub(super) fn is_ours(path: &Path) -> bool {
        let start = open_input(path).and_then(|file| gunzip_start(file, MAX_HEAD.max(chrome::HEAD.len())));
        start.is_ok_and(|start| is_file_head(&start) || start.starts_with(chrome::HEAD))
    }

    /// Returns the end of a file.
    pub(super) fn tail(self) -> &'static [u8] {
        match self {
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => b"",
            TraceFormat::ChromeJson => chrome::TAIL,
        }
    }

    /// Returns the approximate size of an event in a file before compression, bytes. The final sizes of the
    /// files are checked.
    pub(super) fn event_bytes(self, annotations: bool) -> u64 {
        match (self, annotations) {
            (TraceFormat::Perfetto | TraceFormat::PerfettoPlain, false) => 48,
            (TraceFormat::Perfetto | TraceFormat::PerfettoPlain, true) => 96,
            (TraceFormat::ChromeJson, false) => 110,
            (TraceFormat::ChromeJson, true) => 280,
        }
    }

    /// Returns the approximate size of a track description in a file without its name, bytes.
    pub(super) fn track_bytes(self) -> usize {
        match self {
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => 40,
            TraceFormat::ChromeJson => 250,
        }
    }
}

/// Draws the items of a unit.
pub(super) fn draw(
    format: TraceFormat,
    unit: EncodedUnit<'_>,
    (windows, t0): (&TimeSlices, i64),
    items: ItemSorter<'_>,
    out: impl SlicePieces,
) -> Result<WrittenChanges, Failure> {
    match format {
        TraceFormat::Perfetto => {
            draw_with(PerfettoWriter::new(unit, TrackForm::Processes), unit.layout, (windows, t0), items, out)
        }
        TraceFormat::PerfettoPlain => {
            draw_with(PerfettoWriter::new(unit, TrackForm::Plain), unit.layout, (windows, t0), items, out)
        }
        TraceFormat::ChromeJson => draw_with(ChromeWriter::new(unit), unit.layout, (windows, t0), items, out),
    }
}

fn draw_with(
    writer: impl SliceWriter,
    layout: &UnitLayout,
    (windows, t0): (&TimeSlices, i64),
    items: ItemSorter<'_>,
    out: impl SlicePieces,
) -> Result<WrittenChanges, Failure> {
    let mut canvas = FileCanvas::new(layout, windows, t0, writer, out)?;
    items.sorted(&mut |item| canvas.draw(item))?;
    let (_, changes) = canvas.finish()?;
    Ok(changes)
}
