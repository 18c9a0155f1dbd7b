//! What the metadata of a merge say about clocks and communicators.

use rpd_run::RunDatabase;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of moments of a clock domain.
const MAX_MOMENTS: usize = 1 << 16;
/// Maximum number of members that are read of all communicators.
const MAX_MEMBERS: usize = 1 << 26;

/// Job times with the error bound at each, ns.
type ErrorBounds = Arc<[(i64, Option<u64>)]>;

/// The error bounds of clocks and the members of communicators in the metadata of a merge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MergedMetadata {
    /// Error bounds of the clock of each rank, as they change in the run.
    error_bounds: HashMap<u32, ErrorBounds>,
    pub(crate) communicators: Vec<MergedMembers>,
}

impl MergedMetadata {
    /// Reads the metadata. What is missing or damaged is not known.
    pub(crate) fn read(run: &RunDatabase) -> MergedMetadata {
        MergedMetadata { error_bounds: read_error_bounds(run), communicators: read_communicators(run) }
    }

    /// Returns the error bounds of a rank; empty if they are not known.
    pub(crate) fn error_bounds_of(&self, rank: Option<u32>) -> ErrorBounds {
        rank.and_then(|rank| self.error_bounds.get(&rank)).cloned().unwrap_or_default()
    }
}

fn read_error_bounds(run: &RunDatabase) -> HashMap<u32, ErrorBounds> {
    let key = |domain: &Json| {
        let boot = domain["boot_id"].as_str()?.to_owned();
        Some((boot, domain["time_namespace"].as_u64()?))
    };
    let mut of_domain: HashMap<(String, u64), ErrorBounds> = HashMap::new();
    for bounds in list(run, "rpd.clock.error_bounds") {
        if let Some((key, bounds)) = key(&bounds).zip(moments(&bounds)) {
            of_domain.insert(key, bounds);
        }
    }
    let mut of_rank = HashMap::new();
    for domain in list(run, "rpd.clock.domains") {
        let Some(bounds) = key(&domain).and_then(|key| of_domain.get(&key)) else { continue };
        let ranks = domain["ranks"].as_array().into_iter().flatten().filter_map(Json::as_u64);
        for rank in ranks.filter_map(|rank| u32::try_from(rank).ok()) {
            of_rank.entry(rank).or_insert_with(|| bounds.clone());
        }
    }
    of_rank
}

/// Returns the moments of a domain, which are at equal distances.
fn moments(bounds: &Json) -> Option<ErrorBounds> {
    let known = bounds["error_bound_ns"].as_array()?;
    let (from, to) = (bounds["from_ns"].as_i64()?, bounds["to_ns"].as_i64()?);
    if known.is_empty() || known.len() > MAX_MOMENTS || from > to {
        return None;
    }
    let parts = (known.len() - 1).max(1) as u128;
    let at = |place: usize| {
        from.saturating_add_unsigned((u128::from(to.abs_diff(from)) * place as u128 / parts) as u64)
    };
    Some(known.iter().enumerate().map(|(place, bound)| (at(place), bound.as_u64())).collect())
}

/// Members of a communicator, or of a side of an intercommunicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MergedMembers {
    pub(crate) name: String,
    pub(crate) size: u32,
    pub(crate) side: Option<u8>,
    /// Rank and key of the process of each member.
    pub(crate) members: Vec<(u32, i64)>,
}

/// Reads the communicators of all shards.
fn read_communicators(run: &RunDatabase) -> Vec<MergedMembers> {
    let mut left = MAX_MEMBERS;
    let mut read = |one: &Json| -> Option<MergedMembers> {
        let side = match &one["side"] {
            Json::Null => None,
            side => Some(side.as_u64().and_then(|side| u8::try_from(side).ok()).filter(|side| *side < 2)?),
        };
        let size = u32::try_from(one["size"].as_u64()?).ok()?;
        let mut members = Vec::new();
        for run in one["ranks"].as_array()? {
            let number = |place: usize| run.get(place).and_then(Json::as_i64);
            let (first, count) = (u32::try_from(number(0)?).ok()?, usize::try_from(number(1)?).ok()?);
            left = left.checked_sub(count)?;
            for (place, rank) in (0i64..count as i64).zip(first..) {
                let process = number(3)?.checked_mul(place)?.checked_add(number(2)?)?;
                members.push((rank, process));
            }
        }
        Some(MergedMembers { name: one["name"].as_str()?.to_owned(), size, side, members })
    };
    list(run, "rpd.communicators").iter().filter_map(&mut read).collect()
}

fn list(run: &RunDatabase, tag: &str) -> Vec<Json> {
    serde_json::from_str(run.tables.tag(tag)).unwrap_or_default()
}
