//! What former merges among the inputs say of their clocks: they are not aligned again, so it stays true.

use rpd_rocpd::read::Space;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Tags of the metadata that tell of clocks and of what was compared by them.
const TAGS: [&str; 10] = [
    "rpd.clock",
    "rpd.clock.reference",
    "rpd.clock.realtime_minus_boottime_ns",
    "rpd.clock.align",
    "rpd.clock.domains",
    "rpd.clock.repair",
    "rpd.collectives",
    "rpd.late_ranks",
    "rpd.lateness",
    "rpd.former_merges",
];
/// Longest value that is taken over, bytes: clocks of 10,000 nodes.
const MAX_VALUE: usize = 8 << 20;

/// A merge of ours among the inputs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FormerMerge {
    /// Where it is.
    pub path: PathBuf,
    /// The guid of its rows, in a partitioned one of its first set.
    pub guid: String,
    /// What its metadata says, by tag.
    pub tags: BTreeMap<String, String>,
}

impl FormerMerge {
    /// That of the first set, which speaks for all.
    pub(super) fn of(path: PathBuf, spaces: &[&Space]) -> Option<FormerMerge> {
        let told = |space: &&&Space| space.tags.contains_key("rpd.clock.domains");
        let space = spaces.iter().find(told).or(spaces.first())?;
        let tag = |tag: &str| {
            let value = space.tags.get(tag).filter(|value| value.len() <= MAX_VALUE)?;
            Some((tag.to_owned(), value.clone()))
        };
        let tags = TAGS.iter().filter_map(|name| tag(name)).collect();
        Some(FormerMerge { path, guid: space.guid.clone(), tags })
    }
}
