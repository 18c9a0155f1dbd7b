//! Which rank the others wait for in collectives, or why none is named.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Waiting of less than this part of the run does not matter.
const MIN_SHARE_OF_RUN: f64 = 0.01;
/// Of two or three ranks or nodes one explains half by chance: it has to explain as many times what each other one does.
const MIN_RATIO_TO_OTHERS: i64 = 3;

/// The verdict on late ranks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum LatenessVerdict {
    /// Ranks waited for less than 1 % of the run.
    Nobody,
    /// This rank alone explains at least half of all waiting: the first one in `late_ranks`.
    Rank {
        /// Its rank; absent where the process has none.
        rank: Option<u32>,
    },
    /// The ranks of this node together explain at least half of it, and none of them alone.
    Node {
        /// Its host name.
        host: String,
        /// Its ranks that others waited for.
        ranks: Vec<u32>,
        /// What others waited for them, ns.
        node_waited_ns: i64,
    },
    /// Own times explain at least half of it, and no rank or node as much: ranks take turns.
    NoSingleRank,
    /// Cannot tell: messages held up the ranks that came late.
    HeldUpByMessages,
    /// Cannot tell: the clocks of the nodes are not good enough.
    ClockErrors {
        /// By how much two clocks may be off, ns: the median; `None` where it is not known.
        bound_ns: Option<i64>,
    },
    /// Cannot tell: calls in which ranks may have waited are missing, or are not looked at.
    CallsMissing,
    /// Cannot tell: each of the causes above explains some, and none of them half.
    Mixed,
    /// Cannot tell: no collective says when ranks waited.
    NoCollectives {
        /// Why.
        reason: String,
    },
}

/// All waiting in collectives after start-up, by its cause, ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Causes {
    /// All of it.
    pub(super) waited_ns: i64,
    /// Ranks of the job, and its nodes.
    pub(super) sizes: (usize, usize),
    /// By participant, the greatest first: rank, host, what others waited for it.
    pub(super) ranks: Vec<(Option<u32>, String, i64)>,
    pub(super) held_up_ns: i64,
    pub(super) clocks_ns: i64,
    pub(super) not_recorded_ns: i64,
    /// The median error bound of two clocks.
    pub(super) bound_ns: Option<i64>,
}

/// Decides. `share` is the waiting of a rank in the middle, as a part of the run, from 0 to 1.
pub(super) fn decide(causes: &Causes, share: f64) -> LatenessVerdict {
    if share < MIN_SHARE_OF_RUN {
        return LatenessVerdict::Nobody;
    }
    let is_half = |ns: i64| ns > 0 && ns.saturating_mul(2) >= causes.waited_ns;
    let own = causes.ranks.iter().map(|(_, _, waited)| *waited).fold(0, i64::saturating_add);
    let stands_out = |waited: i64, of: usize| {
        let others = i64::try_from(of.saturating_sub(1)).unwrap_or(i64::MAX);
        let rest = own.saturating_sub(waited).saturating_mul(MIN_RATIO_TO_OTHERS);
        is_half(waited) && waited.saturating_mul(others) >= rest
    };
    if let Some((rank, _, waited)) = causes.ranks.first()
        && stands_out(*waited, causes.sizes.0)
    {
        return LatenessVerdict::Rank { rank: *rank };
    }
    if let Some((host, ranks, node_waited_ns)) = causes.node()
        && causes.sizes.1 > 1
        && stands_out(node_waited_ns, causes.sizes.1)
    {
        return LatenessVerdict::Node { host, ranks, node_waited_ns };
    }
    if is_half(own) {
        return LatenessVerdict::NoSingleRank;
    }
    if is_half(causes.held_up_ns) {
        return LatenessVerdict::HeldUpByMessages;
    }
    if is_half(causes.clocks_ns) {
        return LatenessVerdict::ClockErrors { bound_ns: causes.bound_ns };
    }
    if is_half(causes.not_recorded_ns) {
        return LatenessVerdict::CallsMissing;
    }
    LatenessVerdict::Mixed
}

impl Causes {
    /// The node that others waited for most.
    fn node(&self) -> Option<(String, Vec<u32>, i64)> {
        let mut nodes: BTreeMap<&str, (Vec<u32>, i64)> = BTreeMap::new();
        for (rank, host, waited) in &self.ranks {
            let (ranks, sum) = nodes.entry(host).or_default();
            ranks.extend(rank);
            *sum = sum.saturating_add(*waited);
        }
        let (host, (mut ranks, waited)) = nodes.into_iter().max_by_key(|(_, (_, waited))| *waited)?;
        ranks.sort_unstable();
        Some((host.to_owned(), ranks, waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(ranks: &[(u32, &str, i64)], held_up_ns: i64, clocks_ns: i64, not_recorded_ns: i64) -> Causes {
        let ranks: Vec<_> =
            ranks.iter().map(|(rank, host, waited)| (Some(*rank), (*host).to_owned(), *waited)).collect();
        let own: i64 = ranks.iter().map(|(_, _, waited)| waited).sum();
        let waited_ns = own + held_up_ns + clocks_ns + not_recorded_ns;
        Causes { waited_ns, sizes: (8, 2), ranks, held_up_ns, clocks_ns, not_recorded_ns, bound_ns: Some(7) }
    }

    #[test]
    fn a_rank_is_named_that_explains_half_of_the_waiting() {
        let of = |ranks: &[_], held_up| decide(&causes(ranks, held_up, 0, 0), 0.2);
        assert_eq!(of(&[(3, "a", 50), (1, "a", 30)], 20), LatenessVerdict::Rank { rank: Some(3) });
        assert_eq!(of(&[(3, "a", 49), (1, "b", 31)], 20), LatenessVerdict::NoSingleRank);
        assert_eq!(of(&[(3, "a", 40)], 60), LatenessVerdict::HeldUpByMessages);
        assert_eq!(of(&[(3, "a", 40), (1, "b", 9)], 51), LatenessVerdict::HeldUpByMessages);
    }

    #[test]
    fn a_node_is_named_where_none_of_its_ranks_explains_half() {
        let ranks = [(3, "a", 40), (2, "a", 32), (1, "b", 18)];
        let verdict = decide(&causes(&ranks, 10, 0, 0), 0.2);
        assert_eq!(
            verdict,
            LatenessVerdict::Node { host: "a".to_owned(), ranks: vec![2, 3], node_waited_ns: 72 }
        );
    }

    #[test]
    fn one_of_two_is_not_named_by_chance() {
        let of = |a, b, sizes| decide(&Causes { sizes, ..causes(&[(0, "a", a), (1, "b", b)], 0, 0, 0) }, 0.2);
        assert_eq!(of(60, 40, (2, 2)), LatenessVerdict::NoSingleRank);
        assert_eq!(of(80, 20, (2, 2)), LatenessVerdict::Rank { rank: Some(0) });
        assert_eq!(of(60, 40, (4, 1)), LatenessVerdict::Rank { rank: Some(0) });
    }

    #[test]
    fn what_cannot_be_told_has_its_reason() {
        let of = |held_up, clocks, missing, share| decide(&causes(&[], held_up, clocks, missing), share);
        assert_eq!(of(1, 8, 1, 0.5), LatenessVerdict::ClockErrors { bound_ns: Some(7) });
        assert_eq!(of(1, 1, 8, 0.5), LatenessVerdict::CallsMissing);
        assert_eq!(of(4, 4, 4, 0.5), LatenessVerdict::Mixed);
        assert_eq!(of(4, 4, 4, 0.009), LatenessVerdict::Nobody);
        assert_eq!(of(0, 0, 0, 0.0), LatenessVerdict::Nobody);
    }
}
