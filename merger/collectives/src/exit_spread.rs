//! Measures the exit spread of collectives. All ranks are able to leave at about the same time, so the spread is
//! caused by the network, the machine or clock errors.

use super::matched_call::MatchedCollective;
use super::matching::MatchedCollectives;
use super::participant_clocks::ParticipantClocks;
use rpd_clocks::DomainFit;
use rpd_comm::{Comm, broadcast_result, gather_values};
use rpd_console::Failure;
use rpd_shard::record::ClockDomain;
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

impl MatchedCollectives {
    /// Returns the exit spread of the timed collectives, the same on all merge ranks. `fits` are by clock
    /// domain.
    pub fn exit_spread(
        &self,
        comm: &impl Comm,
        fits: &BTreeMap<ClockDomain, DomainFit>,
    ) -> Result<Option<ExitSpread>, Failure> {
        let clocks = ParticipantClocks::new(&self.members, fits);
        let comparable = self.timed.iter().filter(|one| one.calls.len() > 1 && clocks.can_compare(one));
        let distance = |one: &MatchedCollective| {
            let exits = one.calls.iter().map(|call| clocks.job_time(call.participant, call.exit));
            let (first, last) = exits.fold((i64::MAX, i64::MIN), |(a, b), exit| (a.min(exit), b.max(exit)));
            last.saturating_sub(first)
        };
        let mine: Vec<i64> = comparable.map(distance).collect();
        let all = gather_values(comm, mine)?.concat();
        broadcast_result(comm, || Ok(ExitSpread::of(all)))
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
