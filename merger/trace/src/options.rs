//! What a trace shows, and into which files it is cut.

use crate::item::{ItemExclusion, TraceSelection};
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
pub enum TraceSplit {
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

impl FromStr for ItemExclusion {
    type Err = ExcludeError;

    fn from_str(text: &str) -> Result<ItemExclusion, ExcludeError> {
        Ok(match text.trim() {
            "regions" => ItemExclusion::Regions,
            "kernels" => ItemExclusion::Kernels,
            "copies" => ItemExclusion::Copies,
            "allocations" => ItemExclusion::Allocations,
            "counters" => ItemExclusion::Counters,
            "samples" => ItemExclusion::Samples,
            "markers" => ItemExclusion::Markers,
            "args" => ItemExclusion::Args,
            "flows" => ItemExclusion::Flows,
            other => match other.split_once('=') {
                Some(("category", name)) if !name.is_empty() => ItemExclusion::Category(name.to_owned()),
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
pub struct TraceRequest {
    /// How it is written.
    pub format: TraceFormat,
    /// Into which files.
    pub split: TraceSplit,
    /// The part of the run that is drawn.
    pub window: TimeWindow,
    /// What else of the run is drawn.
    pub selection: TraceSelection,
    /// Most bytes of a file before compression.
    pub max_file_size: u64,
}
