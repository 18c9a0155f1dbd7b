//! The source of a domain's alignment, and its best clock set.

use rpd_shard::record::{ClockDomain, ClockSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a domain was connected to the reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlignMethod {
    /// The domain of the reference node; its times are unchanged.
    Reference,
    /// Probes and collectives together.
    Fusion,
    /// Probes between nodes.
    Probes,
    /// Exits of collectives.
    Collectives,
    /// Offsets that a site measured itself, see `--clock-file`.
    ClockFile,
    /// Offset between REALTIME and BOOTTIME on both nodes.
    RealtimeAnchors,
    /// No clock set was found; times are unchanged.
    None,
}

impl AlignMethod {
    /// Returns the name in reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            AlignMethod::Reference => "reference",
            AlignMethod::Fusion => "fusion",
            AlignMethod::Probes => "probes",
            AlignMethod::Collectives => "collectives",
            AlignMethod::ClockFile => "clock_file",
            AlignMethod::RealtimeAnchors => "realtime_anchors",
            AlignMethod::None => "none",
        }
    }
}

/// The best clock set of each domain in the inputs of a merge rank.
pub type BestSets = BTreeMap<ClockDomain, ClockSet>;

/// Keeps the set with the smallest bracket for each domain; among equal ones, the first.
pub fn keep_best(best: &mut BestSets, sets: impl IntoIterator<Item = ClockSet>) {
    for set in sets {
        match best.get_mut(&set.domain) {
            Some(known) if known.bracket <= set.bracket => {}
            Some(known) => *known = set,
            None => {
                best.insert(set.domain.clone(), set);
            }
        }
    }
}
