//! By what a domain is aligned, and its best clock set.

use rpd_shard::record::{ClockDomain, ClockSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a domain was joined to the reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlignMethod {
    /// The domain of the reference node: no time was changed.
    Reference,
    /// By probes and collectives together.
    Fusion,
    /// By probes between nodes.
    Probes,
    /// By the exits of collectives.
    Collectives,
    /// By what a site measured itself, see `--clock-file`.
    ClockFile,
    /// By the offset of REALTIME against BOOTTIME on both nodes.
    RealtimeAnchors,
    /// No clock set was found: times are as they were recorded.
    None,
}

impl AlignMethod {
    /// Name in reports and metadata.
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

/// The best clock set of each domain that a rank has seen.
pub type BestSets = BTreeMap<ClockDomain, ClockSet>;

/// Keeps the tightest set of each domain; of equal ones the first.
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
