//! What a trace shows, and into which files it is cut.

use crate::item::{Selection, What};
use rpd_console::TimeWindow;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Files of one trace: their numbers have five digits.
pub const MAX_FILES: u32 = 99_999;
/// Most bytes of a file before compression, unless it is said.
pub const DEFAULT_MAX_FILE_BYTES: u64 = 1 << 30;
/// The only port that the content security policy of ui.perfetto.dev lets it fetch from.
pub const PERFETTO_PORT: u16 = 9001;

/// How a run is cut into files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Split {
    /// One file.
    #[default]
    Whole,
    /// So many files of equal time, at most [`MAX_FILES`].
    ByTime(u32),
    /// About so many events in each file.
    ByEvents(NonZeroU64),
    /// About so many bytes in each file, before compression.
    BySize(u64),
    /// As many files as it takes for a browser to open each.
    Auto,
}

/// A text that names nothing that is drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is nothing that is drawn: write regions, kernels, copies, allocations, counters, samples, markers, args, \
     flows, or category=NAME"
)]
pub struct ExcludeError(String);

impl FromStr for What {
    type Err = ExcludeError;

    fn from_str(text: &str) -> Result<What, ExcludeError> {
        Ok(match text.trim() {
            "regions" => What::Regions,
            "kernels" => What::Kernels,
            "copies" => What::Copies,
            "allocations" => What::Allocations,
            "counters" => What::Counters,
            "samples" => What::Samples,
            "markers" => What::Markers,
            "args" => What::Args,
            "flows" => What::Flows,
            other => match other.split_once('=') {
                Some(("category", name)) if !name.is_empty() => What::Category(name.to_owned()),
                _ => return Err(ExcludeError(text.to_owned())),
            },
        })
    }
}

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// Packets of Perfetto.
    Perfetto,
    /// JSON of Chrome.
    ChromeJson,
}

/// The trace that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceOrder {
    /// How it is written.
    pub format: TraceFormat,
    /// Into which files.
    pub split: Split,
    /// The part of the run that is drawn.
    pub window: TimeWindow,
    /// What else of the run is drawn.
    pub selection: Selection,
    /// Most bytes of a file before compression.
    pub max_file_size: u64,
}
