//! Measures the exit spread of collectives. All ranks are able to leave at about the same time, so the spread is
//! caused by the network, the machine or clock errors.

use super::late_ranks::is_comparable;
use super::matching::MatchedCollectives;
use rpd_clocks::DomainFit;
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time between the first and the last exit from a collective, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExitSpread {
    /// Number of collectives that were measured.
    pub collectives: u64,
    /// Median spread.
    pub median_ns: i64,
    /// Largest spread.
    pub most_ns: i64,
}

/// Returns the exit spread of the timed collectives, the same on all merge ranks. `fits` are by clock domain.
pub fn exit_spread(
    comm: &impl Comm,
    matched: &MatchedCollectives,
    fits: &BTreeMap<ClockDomain, DomainFit>,
) -> Result<Option<ExitSpread>, Failure> {
    let fit_of: Vec<Option<&DomainFit>> =
        matched.members.all.iter().map(|participant| fits.get(&participant.domain)).collect();
    let comparable = matched
        .kept
        .iter()
        .filter(|kept| kept.guests.len() > 1 && is_comparable(kept, &matched.members.all, &fit_of));
    let distance = |kept: &super::matched_call::MatchedCollective| {
        let ends =
            kept.guests.iter().map(|guest| match fit_of.get(guest.participant as usize).copied().flatten() {
                Some(fit) => fit.map.map(LocalNs(guest.exit)).ns(),
                None => guest.exit,
            });
        let (first, last) = ends.fold((i64::MAX, i64::MIN), |(a, b), end| (a.min(end), b.max(end)));
        last.saturating_sub(first)
    };
    let mine: Vec<i64> = comparable.map(distance).collect();
    let mut outgoing = vec![Vec::new(); comm.size()];
    if let Some(to_first) = outgoing.first_mut() {
        *to_first = wire::encode(&mine);
    }
    drop(mine);
    let incoming = comm.all_to_all(outgoing);
    let mut all: Vec<i64> = Vec::new();
    for message in incoming.iter().filter(|_| comm.rank() == 0) {
        let theirs: Vec<i64> = wire::decode_message(message).map_err(Failure::message)?;
        all.extend(theirs);
    }
    let told = ExitSpread::of(all);
    let messages = comm.all_gather(if comm.rank() == 0 { wire::encode(&told) } else { Vec::new() });
    match messages.first() {
        Some(message) => wire::decode_message(message).map_err(Failure::message),
        None => Ok(None),
    }
}

impl ExitSpread {
    fn of(mut distances: Vec<i64>) -> Option<ExitSpread> {
        distances.sort_unstable();
        let most_ns = *distances.last()?;
        let median_ns = *distances.get(distances.len() / 2)?;
        Some(ExitSpread { collectives: distances.len() as u64, median_ns, most_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_the_middle_and_the_greatest_distance() {
        assert_eq!(ExitSpread::of(Vec::new()), None);
        let spread = ExitSpread { collectives: 3, median_ns: 5, most_ns: 90 };
        assert_eq!(ExitSpread::of(vec![90, 1, 5]), Some(spread));
    }
}
