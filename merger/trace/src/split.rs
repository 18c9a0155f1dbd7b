//! Divides the run into files, and divides it again when the sizes of the files are known.

use super::files::FilePart;
use super::time_slices::{TimeHistogram, TimeSlices};
use crate::options::{TraceRequest, TraceSplit};
use rpd_console::Failure;

/// Maximum number of events of a file that opens in a browser, which needs 170 to 310 bytes for each.
const MAX_BROWSER_EVENTS: u64 = 2_000_000;
/// Maximum number of times that a run is drawn until its files have the requested size.
const MAX_TRIES: usize = 6;
/// Maximum factor by which files get smaller from one try to the next. The size of track descriptions is not
/// known in advance, and with very many files they would fill the disk.
const MAX_REFINEMENT: u64 = 16;

/// Divides a run, in several tries if sizes matter. All ranks compute the same result.
pub(super) struct SliceCutter<'a> {
    request: &'a TraceRequest,
    whole: TimeSlices,
    histogram: TimeHistogram,
    /// Approximate size of an event in a file, bytes.
    event_bytes: u64,
    /// Intended size of the files, if there is one.
    aim: Option<Aim>,
    tries: Vec<Try>,
}

/// A size of files before compression, bytes.
#[derive(Clone, Copy)]
struct Aim {
    /// Requested size.
    size: u64,
    /// Intended size of this try, which is larger while little is known.
    now: u64,
    /// Size by which the next try is divided, which is smaller if files were too large.
    cut: u64,
}

/// Result of a try.
struct Try {
    files: usize,
    /// Size of all files, bytes.
    bytes: u64,
}

impl<'a> SliceCutter<'a> {
    /// `described` is the approximate maximum size of the track descriptions in a file, bytes.
    pub(super) fn new(
        request: &'a TraceRequest,
        whole: &TimeSlices,
        histogram: TimeHistogram,
        event_bytes: u64,
        described: u64,
    ) -> SliceCutter<'a> {
        let size = match request.split {
            TraceSplit::BySize(size) => Some(size.min(request.max_file_size)),
            TraceSplit::Auto => Some(request.max_file_size),
            TraceSplit::Whole | TraceSplit::ByTime(_) | TraceSplit::ByEvents(_) => None,
        };
        let aim = size.map(|size| {
            let now = size.max(described.saturating_mul(4));
            Aim { size, now, cut: now }
        });
        SliceCutter {
            request,
            whole: whole.clone(),
            histogram,
            event_bytes: event_bytes.max(1),
            aim,
            tries: Vec::new(),
        }
    }

    /// Returns the time slices of the first try.
    pub(super) fn first_slices(&self) -> TimeSlices {
        let by_events = |max_events: u64| self.histogram.cut(&self.whole, max_events, |_, events| events);
        match self.request.split {
            TraceSplit::Whole => self.whole.clone(),
            TraceSplit::ByTime(count) => TimeSlices::equal(self.whole.first(), self.whole.end(), count),
            TraceSplit::ByEvents(events) => by_events(events.get()),
            TraceSplit::BySize(size) => {
                by_events(self.aim.map_or(size, |aim| aim.now).div_ceil(self.event_bytes))
            }
            TraceSplit::Auto => by_events(MAX_BROWSER_EVENTS),
        }
    }

    /// Returns the time slices of the next try if files were too large, using the measured sizes of events.
    pub(super) fn divide_again(&mut self, windows: &TimeSlices, parts: &[FilePart]) -> Option<TimeSlices> {
        let bytes = parts.iter().map(FilePart::raw_bytes).fold(0, u64::saturating_add);
        let largest = parts.iter().map(FilePart::raw_bytes).max().unwrap_or(0);
        self.tries.push(Try { files: parts.len(), bytes });
        let aim = self.aim?;
        if largest <= self.accepted_size(aim.size) || self.tries.len() >= MAX_TRIES {
            return None;
        }
        let overhead = self.overhead().unwrap_or(0);
        let now = aim.size.max(aim.now / MAX_REFINEMENT);
        let cut = match now < aim.now || self.tries.len() <= 2 {
            true => now - now / 16,
            // The division used measured sizes and still missed the target by this factor.
            false => scale(aim.cut, aim.size, largest.max(1)),
        };
        self.aim = Some(Aim { now, cut, ..aim });
        // If most of a file is not events, further division only adds overhead.
        if cut <= overhead.saturating_add(overhead / 4) {
            return None;
        }
        // Beginning of each file, its size without overhead in bytes, and its number of events.
        let measured = windows.iter().zip(parts).map(|((from, _), part)| {
            (from, part.raw_bytes().saturating_sub(overhead), part.tally.items().max(1))
        });
        let measured: Vec<(i64, u64, u64)> = measured.collect();
        let size = cut - overhead;
        let weight = |start: i64, events: u64| {
            let file = measured.partition_point(|(from, ..)| *from <= start).saturating_sub(1);
            let (_, file_bytes, file_events) = measured.get(file).copied().unwrap_or((0, 1, 1));
            let bytes = scale(events, file_bytes, file_events);
            match self.request.split {
                TraceSplit::Auto => bytes.max(scale(events, size, MAX_BROWSER_EVENTS)),
                _ => bytes,
            }
        };
        let finer = self.histogram.cut(&self.whole, size, weight);
        (finer != *windows).then_some(finer)
    }

    /// Rejects files that are too large, with a suggestion that fits.
    pub(super) fn check_sizes(&self, parts: &[FilePart]) -> Result<(), Failure> {
        let Some((number, largest)) =
            parts.iter().map(FilePart::raw_bytes).enumerate().max_by_key(|(_, raw)| *raw)
        else {
            return Ok(());
        };
        let max_size = self.request.max_file_size;
        let overhead =
            self.overhead().filter(|overhead| self.aim.is_some_and(|aim| *overhead >= aim.size / 4));
        let fits = overhead.map_or(largest, |overhead| overhead.saturating_mul(4).max(largest));
        let fits = size_option(fits.saturating_add(fits / 4));
        let why = match overhead {
            Some(overhead) => format!("what a file says of its tracks alone takes {}", size_option(overhead)),
            None => "so much happens at one time that no cut helps".to_owned(),
        };
        match self.request.split {
            TraceSplit::BySize(size) if size <= max_size && largest > size.saturating_add(size / 2) => {
                return Err(Failure::usage(format!(
                    "files of {} cannot be made: {why}; use --split-by-size {fits}",
                    size_option(size)
                )));
            }
            _ if largest <= max_size => return Ok(()),
            _ => {}
        }
        let which = match parts.len() {
            1 => "the trace".to_owned(),
            count => format!("file {} of {count}", number + 1),
        };
        let advice = match self.request.split {
            TraceSplit::Whole | TraceSplit::ByTime(_) | TraceSplit::ByEvents(_) => {
                format!("; use --split-by-size {}", size_option_below(max_size / 2))
            }
            TraceSplit::BySize(_) | TraceSplit::Auto => format!(
                ": {why}; leave something out with --exclude, --no-annotations, --ranks or --window, or give it \
                 --max-file-size {fits}"
            ),
        };
        let (largest, max_size) = (size_option(largest), size_option_below(max_size));
        Err(Failure::output(format!(
            "{which} has {largest} before compression, and --max-file-size is {max_size}{advice}"
        )))
    }

    /// Returns the accepted size: a division by estimates is never exact.
    fn accepted_size(&self, size: u64) -> u64 {
        size.saturating_add(size / 10).min(self.request.max_file_size)
    }

    /// Returns the cost of an additional file, bytes: it repeats the tracks, the names and the open slices.
    fn overhead(&self) -> Option<u64> {
        let (first, last) = (self.tries.first()?, self.tries.last()?);
        let files = last.files.checked_sub(first.files).filter(|files| *files > 0)?;
        Some(last.bytes.saturating_sub(first.bytes) / files as u64)
    }
}

/// Returns `value * numerator / denominator`.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(value) * u128::from(numerator) / u128::from(denominator)) as u64
}

/// Formats a size for an option, rounded up, in finer steps below 16M.
fn size_option(bytes: u64) -> String {
    match bytes {
        0..0x100_0000 => format!("{}K", bytes.div_ceil(1 << 10)),
        _ => format!("{}M", bytes.div_ceil(1 << 20)),
    }
}

/// Formats a size for an option, rounded down.
fn size_option_below(bytes: u64) -> String {
    match bytes {
        0..0x400 => bytes.max(1).to_string(),
        0x400..0x100_0000 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}
