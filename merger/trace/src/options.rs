//! Options of a trace: its content, and how it is divided into files.

use crate::item::{ItemExclusion, TraceSelection};
use rpd_console::TimeWindow;
use std::num::NonZeroU64;
use std::str::FromStr;

/// How a run is divided into files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TraceSplit {
    /// One file.
    #[default]
    Whole,
    /// This number of files with equal durations, at most [`TraceSplit::MAX_FILES`].
    ByTime(u32),
    /// About this number of events in each file.
    ByEvents(NonZeroU64),
    /// About this number of bytes in each file, before compression.
    BySize(u64),
    /// As many files as needed for a browser to open each.
    Auto,
}

impl TraceSplit {
    /// Maximum number of files of one trace. Their numbers have five digits.
    pub const MAX_FILES: u32 = 99_999;
}

/// A text that names no kind of item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no part of a trace; write regions, kernels, copies, allocations, counters, samples, markers, args, \
     flows, or category=NAME"
)]
pub struct ExcludeError(String);

/// Names of the kinds of items on the command line.
const EXCLUSIONS: [(&str, ItemExclusion); 9] = [
    ("regions", ItemExclusion::Regions),
    ("kernels", ItemExclusion::Kernels),
    ("copies", ItemExclusion::Copies),
    ("allocations", ItemExclusion::Allocations),
    ("counters", ItemExclusion::Counters),
    ("samples", ItemExclusion::Samples),
    ("markers", ItemExclusion::Markers),
    ("args", ItemExclusion::Args),
    ("flows", ItemExclusion::Flows),
];

impl FromStr for ItemExclusion {
    type Err = ExcludeError;

    fn from_str(text: &str) -> Result<ItemExclusion, ExcludeError> {
        let named = EXCLUSIONS.into_iter().find(|(name, _)| *name == text.trim());
        match (named, text.trim().split_once('=')) {
            (Some((_, exclusion)), _) => Ok(exclusion),
            (None, Some(("category", name))) if !name.is_empty() => {
                Ok(ItemExclusion::Category(name.to_owned()))
            }
            _ => Err(ExcludeError(text.to_owned())),
        }
    }
}

impl std::fmt::Display for ItemExclusion {
    /// Writes the text of the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let ItemExclusion::Category(name) = self {
            return write!(f, "category={name}");
        }
        let name = EXCLUSIONS.iter().find(|(_, exclusion)| exclusion == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// Perfetto packets, with processes and threads.
    Perfetto,
    /// Perfetto packets with plain tracks, which all readers show in the order of the ranks and with their names alone.
    PerfettoPlain,
    /// Chrome JSON.
    ChromeJson,
}

/// A requested trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// Format.
    pub format: TraceFormat,
    /// How the run is divided into files.
    pub split: TraceSplit,
    /// Part of the run that is drawn.
    pub window: TimeWindow,
    /// Content that is drawn.
    pub selection: TraceSelection,
    /// Maximum size of a file before compression, bytes.
    pub max_file_size: u64,
}

impl TraceRequest {
    /// Default for the maximum size of a file before compression, bytes.
    pub const DEFAULT_MAX_FILE_BYTES: u64 = 1 << 30;
}
