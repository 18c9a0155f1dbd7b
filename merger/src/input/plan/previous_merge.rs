//! Clock metadata of previous merges among the inputs. Their clocks are not aligned again, so this metadata remains
//! valid.

use rpd_rocpd::read::StoredTableSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Metadata tags about clocks, about collectives that were compared with these clocks, about processes, whose ids stay the
/// same, and about ranks whose last rows are missing.
const TAGS: [&str; 14] = [
    "rpd.clock",
    "rpd.clock.reference",
    "rpd.clock.realtime_minus_boottime_ns",
    "rpd.clock.align",
    "rpd.clock.domains",
    "rpd.clock.error_bounds",
    "rpd.clock.repair",
    "rpd.collectives",
    "rpd.collective_faults",
    "rpd.communicators",
    "rpd.late_ranks",
    "rpd.lateness",
    "rpd.former_merges",
    "rpd.unfinished_ranks",
];
/// Maximum size of an adopted value in bytes; enough for the clocks of 10,000 nodes.
const MAX_VALUE_BYTES: usize = 8 << 20;

/// An input that is the output of a previous merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PreviousMerge {
    /// Path of the input.
    pub path: PathBuf,
    /// Guid of its rows; of the first table set if it is partitioned.
    pub guid: String,
    /// Values of [`TAGS`] in its metadata, by tag.
    pub tags: BTreeMap<String, String>,
}

impl PreviousMerge {
    /// Reads the metadata of the first table set with clock metadata; all sets have the same.
    pub(super) fn of(path: PathBuf, table_sets: &[&StoredTableSet]) -> Option<PreviousMerge> {
        let with_clocks = |set: &&&StoredTableSet| set.tags.contains_key("rpd.clock.domains");
        let set = table_sets.iter().find(with_clocks).or(table_sets.first())?;
        let tag = |tag: &str| {
            let value = set.tags.get(tag).filter(|value| value.len() <= MAX_VALUE_BYTES)?;
            Some((tag.to_owned(), value.clone()))
        };
        let tags = TAGS.iter().filter_map(|name| tag(name)).collect();
        Some(PreviousMerge { path, guid: set.guid.clone(), tags })
    }
}
