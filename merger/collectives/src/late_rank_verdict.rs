//! Decides which rank the others wait for in collectives, or why no rank is named.

use super::absence::RankAbsence;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Wait time below this share of the run is ignored.
const MIN_SHARE_OF_RUN: f64 = 0.01;
/// Minimum ratio of the wait time that a rank or node explains to the average of the others. Of two or three
/// ranks or nodes, one explains half of the wait time by chance.
const MIN_RATIO_TO_OTHERS: i64 = 3;
/// Minimum ratio of the wait time that a rank or node explains to that of the second one. Two that explain about
/// as much are both left unnamed.
const MIN_RATIO_TO_SECOND: i64 = 2;

/// The verdict on late ranks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum LatenessVerdict {
    /// Ranks waited for less than 1 % of the run.
    Nobody,
    /// This rank alone explains at least half of the wait time. It is the first one in `late_ranks`.
    Rank {
        /// The rank; absent if the process has none.
        rank: Option<u32>,
    },
    /// The ranks of this node together explain at least half of the wait time, and none of them alone does.
    Node {
        /// Host name of the node.
        host: String,
        /// Ranks on the node.
        ranks: Vec<u32>,
        /// Time that other ranks waited for them, ns.
        node_waited_ns: i64,
    },
    /// Some ranks never entered a collective, and the wait time in it is at least half of the total.
    NeverEntered {
        /// The missing ranks and the collective.
        #[serde(flatten)]
        absence: RankAbsence,
    },
    /// Own times explain at least half of the wait time, but no single rank or node does: ranks take turns, or
    /// several are late together.
    NoSingleRank {
        /// The ranks that were late together in most of the shared wait time; empty if these ranks change.
        #[serde(default, rename = "together")]
        late_together: Vec<u32>,
        /// Wait time for several ranks at a time, ns.
        #[serde(default, rename = "together_ns")]
        shared_ns: i64,
    },
    /// No verdict: start-up takes most of the run, and ranks waited longer during start-up than after it.
    StartUp,
    /// No verdict: ranks spent more time in calls that are not compared than they waited in compared ones.
    CallsNotCompared,
    /// No verdict: messages delayed the ranks that entered late.
    HeldUpByMessages,
    /// No verdict: collectives on other communicators delayed the ranks that entered late.
    HeldUpByCollectives,
    /// No verdict: the error bounds of the nodes' clocks are too large.
    ClockErrors {
        /// Median error bound between two clocks, ns; `None` if it is not known.
        bound_ns: Option<i64>,
    },
    /// No verdict: the time that ranks spent outside of calls is not known.
    CallsMissing {
        /// The reason.
        cause: MissingCause,
    },
    /// No verdict: several of the causes above explain part of the wait time, and none explains half.
    Mixed,
    /// No verdict: no collective shows when ranks waited.
    NoCollectives {
        /// The reason.
        reason: String,
    },
}

/// Why the time that ranks spent outside of calls is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingCause {
    /// Calls were lost.
    Lost,
    /// Messages are recorded in profilers' files, where their times are not compared.
    Messages,
    /// Calls overlap, or ranks had not synchronised before them.
    Unordered,
    /// Ranks call MPI in several threads.
    Threads,
    /// Ranks polled for messages before they entered. Between two polls they worked or waited.
    Polls,
}

impl MissingCause {
    /// All causes, in the order of their numbers.
    pub(super) const ALL: [MissingCause; 5] = [
        MissingCause::Lost,
        MissingCause::Messages,
        MissingCause::Unordered,
        MissingCause::Threads,
        MissingCause::Polls,
    ];
}

/// Wait time in collectives after start-up, by cause, ns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LateCauses {
    /// Total wait time.
    pub(super) waited_ns: i64,
    /// Recorded time of all ranks, summed up.
    pub(super) recorded_ns: i64,
    /// Number of ranks and number of nodes of the job.
    pub(super) sizes: (usize, usize),
    /// Wait time of the others for each participant, longest first.
    pub(super) ranks: Vec<(Option<u32>, i64)>,
    /// Wait time of other ranks for the ranks of a node, by host.
    pub(super) nodes: BTreeMap<String, i64>,
    /// Wait time for several ranks at a time.
    pub(super) shared_ns: i64,
    /// Ranks that were late together in most of `shared_ns`.
    pub(super) late_together: Vec<u32>,
    pub(super) held_up_ns: i64,
    /// Wait time that follows from the waiting in other collectives.
    pub(super) passed_on_ns: i64,
    pub(super) clocks_ns: i64,
    /// By [`MissingCause`].
    pub(super) not_recorded_ns: [i64; MissingCause::ALL.len()],
    /// Median error bound between two clocks.
    pub(super) bound_ns: Option<i64>,
    /// Time in calls that are not compared: total, and the part in collectives.
    pub(super) not_compared_ns: (i64, i64),
    /// Time between polls for messages: work, or waiting that no collective shows.
    pub(super) poll_gaps_ns: i64,
    /// The collective that some ranks never entered.
    pub(super) absence: Option<RankAbsence>,
    /// Whether start-up takes more than half of the run, and ranks waited longer during start-up than after it.
    pub(super) is_start_up: bool,
    /// Ranks of each host.
    pub(super) ranks_of: BTreeMap<String, Vec<u32>>,
}

/// Returns the verdict for the given causes.
pub(super) fn decide(causes: &LateCauses) -> LatenessVerdict {
    let matters = |ns: i64| ns as f64 >= MIN_SHARE_OF_RUN * causes.recorded_ns.max(1) as f64;
    let (not_compared_ns, in_collectives_ns) = causes.not_compared_ns;
    // Time that ranks may have waited for a rank. Time in messages is excluded: messages depend on what ranks
    // do, and their waiting is included in the wait time of others.
    let whole = causes.waited_ns.saturating_add(in_collectives_ns);
    let is_half = |waited: i64| waited > 0 && waited.saturating_mul(2) >= whole;
    // Wait time that collectives pass on is caused by the waiting in other collectives. A rank must explain half
    // of the remaining wait time, or four fifths of it if most wait time is passed on.
    let not_passed_on_ns = whole.saturating_sub(causes.passed_on_ns);
    let passed_on_is_most = is_half(causes.passed_on_ns);
    let is_charged = |waited: i64| {
        let (part, of) = if passed_on_is_most { (4, 5) } else { (1, 2) };
        waited > 0 && waited.saturating_mul(of) >= not_passed_on_ns.saturating_mul(part)
    };
    if let Some(absence) = causes.absence.as_ref().filter(|one| matters(one.all_ns) && is_half(one.all_ns)) {
        return LatenessVerdict::NeverEntered { absence: absence.clone() };
    }
    if causes.is_start_up {
        return LatenessVerdict::StartUp;
    }
    if !matters(causes.waited_ns) {
        return match matters(not_compared_ns) {
            true => LatenessVerdict::CallsNotCompared,
            false if matters(causes.poll_gaps_ns) => {
                LatenessVerdict::CallsMissing { cause: MissingCause::Polls }
            }
            false => LatenessVerdict::Nobody,
        };
    }
    if let Some(named) = causes.named(&is_charged) {
        return named;
    }
    if !is_half(causes.waited_ns) {
        return LatenessVerdict::CallsNotCompared;
    }
    let own = causes.ranks.iter().map(|(_, waited)| *waited).fold(causes.shared_ns, i64::saturating_add);
    if is_half(own) {
        let (late_together, shared_ns) = (causes.late_together.clone(), causes.shared_ns);
        return LatenessVerdict::NoSingleRank { late_together, shared_ns };
    }
    if is_half(causes.held_up_ns) {
        return LatenessVerdict::HeldUpByMessages;
    }
    if passed_on_is_most {
        return LatenessVerdict::HeldUpByCollectives;
    }
    if is_half(causes.clocks_ns) {
        return LatenessVerdict::ClockErrors { bound_ns: causes.bound_ns };
    }
    let not_recorded = causes.not_recorded_ns.iter().fold(0, |sum: i64, ns| sum.saturating_add(*ns));
    if is_half(not_recorded)
        && let Some((cause, _)) =
            MissingCause::ALL.into_iter().zip(causes.not_recorded_ns).max_by_key(|(_, ns)| *ns)
    {
        return LatenessVerdict::CallsMissing { cause };
    }
    LatenessVerdict::Mixed
}

impl LateCauses {
    /// Returns the rank or node that explains half of the wait time, and clearly more than the others.
    fn named(&self, is_half: &dyn Fn(i64) -> bool) -> Option<LatenessVerdict> {
        let stands_out = |waited: &[i64], of: usize| {
            let Some((first, others)) = waited.split_first() else { return false };
            let rest = others.iter().fold(0, |sum: i64, waited| sum.saturating_add(*waited));
            let others_count = i64::try_from(of.saturating_sub(1)).unwrap_or(i64::MAX);
            let second = others.first().copied().unwrap_or(0);
            is_half(*first)
                && first.saturating_mul(others_count) >= rest.saturating_mul(MIN_RATIO_TO_OTHERS)
                && *first >= second.saturating_mul(MIN_RATIO_TO_SECOND)
        };
        let of_ranks: Vec<i64> = self.ranks.iter().map(|(_, waited)| *waited).collect();
        if let (true, Some((rank, _))) = (stands_out(&of_ranks, self.sizes.0), self.ranks.first()) {
            return Some(LatenessVerdict::Rank { rank: *rank });
        }
        let mut nodes: Vec<(&String, i64)> =
            self.nodes.iter().map(|(host, waited)| (host, *waited)).collect();
        nodes.sort_by_key(|(_, waited)| std::cmp::Reverse(*waited));
        let of_nodes: Vec<i64> = nodes.iter().map(|(_, waited)| *waited).collect();
        let (host, node_waited_ns) = *nodes.first()?;
        (self.sizes.1 > 1 && stands_out(&of_nodes, self.sizes.1)).then(|| LatenessVerdict::Node {
            host: host.clone(),
            ranks: self.ranks_of.get(host).cloned().unwrap_or_default(),
            node_waited_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(ranks: &[(u32, &str, i64)], held_up_ns: i64, clocks_ns: i64, lost_ns: i64) -> LateCauses {
        let ranks: Vec<_> = ranks.iter().map(|(rank, _, waited)| (Some(*rank), *waited)).collect();
        let own: i64 = ranks.iter().map(|(_, waited)| waited).sum();
        let waited_ns = own + held_up_ns + clocks_ns + lost_ns;
        let not_recorded_ns = [lost_ns, 0, 0, 0, 0];
        let bound_ns = Some(7);
        let recorded_ns = 5 * waited_ns;
        LateCauses {
            waited_ns,
            recorded_ns,
            sizes: (8, 2),
            ranks,
            held_up_ns,
            clocks_ns,
            not_recorded_ns,
            bound_ns,
            ..LateCauses::default()
        }
    }

    fn no_single_rank() -> LatenessVerdict {
        LatenessVerdict::NoSingleRank { late_together: Vec::new(), shared_ns: 0 }
    }

    #[test]
    fn a_rank_is_named_that_explains_half_of_the_waiting() {
        let of = |ranks: &[_], held_up| decide(&causes(ranks, held_up, 0, 0));
        assert_eq!(of(&[(3, "a", 60), (1, "a", 30)], 10), LatenessVerdict::Rank { rank: Some(3) });
        assert_eq!(of(&[(3, "a", 49), (1, "b", 31)], 20), no_single_rank());
        assert_eq!(of(&[(3, "a", 40)], 60), LatenessVerdict::HeldUpByMessages);
        assert_eq!(of(&[(3, "a", 40), (1, "b", 9)], 51), LatenessVerdict::HeldUpByMessages);
    }

    #[test]
    fn of_two_ranks_that_explain_about_as_much_none_is_named() {
        let of = |a, b| decide(&causes(&[(1, "a", a), (2, "a", b)], 0, 0, 0));
        assert_eq!(of(50, 50), no_single_rank());
        assert_eq!(of(60, 40), no_single_rank());
        assert_eq!(of(67, 33), LatenessVerdict::Rank { rank: Some(1) });
    }

    #[test]
    fn a_node_is_named_where_none_of_its_ranks_explains_half() {
        let ranks = [(3, "a", 30), (2, "a", 22), (1, "b", 18)];
        let nodes = BTreeMap::from([("a".to_owned(), 72), ("b".to_owned(), 18)]);
        let ranks_of = BTreeMap::from([("a".to_owned(), vec![2, 3])]);
        let verdict = decide(&LateCauses { nodes, ranks_of, waited_ns: 100, ..causes(&ranks, 10, 0, 0) });
        assert_eq!(
            verdict,
            LatenessVerdict::Node { host: "a".to_owned(), ranks: vec![2, 3], node_waited_ns: 72 }
        );
    }

    #[test]
    fn one_of_two_is_not_named_by_chance() {
        let of = |a, b, sizes| decide(&LateCauses { sizes, ..causes(&[(0, "a", a), (1, "b", b)], 0, 0, 0) });
        assert_eq!(of(60, 40, (2, 2)), no_single_rank());
        assert_eq!(of(70, 30, (2, 2)), no_single_rank());
        assert_eq!(of(80, 20, (2, 2)), LatenessVerdict::Rank { rank: Some(0) });
        assert_eq!(of(70, 30, (4, 1)), LatenessVerdict::Rank { rank: Some(0) });
    }

    #[test]
    fn ranks_that_are_late_together_are_named_together() {
        let alone = causes(&[(1, "a", 10)], 0, 0, 0);
        let verdict =
            decide(&LateCauses { waited_ns: 100, shared_ns: 90, late_together: vec![1, 2], ..alone });
        assert_eq!(verdict, LatenessVerdict::NoSingleRank { late_together: vec![1, 2], shared_ns: 90 });
    }

    #[test]
    fn nobody_is_late_only_if_what_is_not_compared_cannot_matter() {
        let of = |all: i64, in_collectives: i64, waited_ns: i64| {
            let named = causes(&[(3, "a", waited_ns)], 0, 0, 0);
            decide(&LateCauses { recorded_ns: 1_000, not_compared_ns: (all, in_collectives), ..named })
        };
        assert_eq!(of(9, 9, 9), LatenessVerdict::Nobody);
        assert_eq!(of(10, 0, 9), LatenessVerdict::CallsNotCompared);
        let polling = LateCauses { recorded_ns: 1_000, poll_gaps_ns: 10, ..causes(&[(3, "a", 9)], 0, 0, 0) };
        assert_eq!(decide(&polling), LatenessVerdict::CallsMissing { cause: MissingCause::Polls });
        assert_eq!(of(500, 0, 20), LatenessVerdict::Rank { rank: Some(3) });
        assert_eq!(of(500, 21, 20), LatenessVerdict::CallsNotCompared);
    }

    #[test]
    fn what_collectives_pass_on_has_its_cause_in_the_waiting_of_others() {
        let of = |waited: &[i64], held_up: i64, passed_on_ns: i64| {
            let ranks: Vec<_> = (0..).zip(waited).map(|(rank, waited)| (rank, "a", *waited)).collect();
            let all = causes(&ranks, held_up, 0, 0);
            decide(&LateCauses { passed_on_ns, waited_ns: all.waited_ns + passed_on_ns, ..all })
        };
        let first = LatenessVerdict::Rank { rank: Some(0) };
        assert_eq!(of(&[20], 0, 80), first);
        assert_eq!(of(&[20, 4], 0, 80), first);
        assert_eq!(of(&[20], 10, 80), LatenessVerdict::HeldUpByCollectives);
        assert_eq!(of(&[20, 6], 0, 80), LatenessVerdict::HeldUpByCollectives);
        assert_eq!(of(&[60], 0, 40), first);
    }

    #[test]
    fn a_rank_that_never_entered_a_collective_comes_first() {
        let of = |all_ns: i64| {
            let absence = RankAbsence {
                rank: Some(1),
                ranks: vec![1],
                name: "rank 1".to_owned(),
                call: "MPI_Barrier".to_owned(),
                number: 2,
                communicator: "MPI_COMM_WORLD".to_owned(),
                each_ns: all_ns / 3,
                all_ns,
            };
            let waited = causes(&[(3, "a", 100)], 0, 0, 0);
            decide(&LateCauses { not_compared_ns: (all_ns, all_ns), absence: Some(absence), ..waited })
        };
        assert!(matches!(of(180), LatenessVerdict::NeverEntered { .. }));
        assert_eq!(of(90), LatenessVerdict::Rank { rank: Some(3) });
    }

    #[test]
    fn what_cannot_be_told_has_its_reason() {
        let of = |held_up, clocks, missing, run| {
            let causes = causes(&[], held_up, clocks, missing);
            decide(&LateCauses { recorded_ns: run, ..causes })
        };
        assert_eq!(of(1, 8, 1, 20), LatenessVerdict::ClockErrors { bound_ns: Some(7) });
        assert_eq!(of(1, 1, 8, 20), LatenessVerdict::CallsMissing { cause: MissingCause::Lost });
        assert_eq!(of(4, 4, 4, 20), LatenessVerdict::Mixed);
        assert_eq!(of(4, 4, 4, 1_201), LatenessVerdict::Nobody);
        assert_eq!(of(0, 0, 0, 1), LatenessVerdict::Nobody);
        let messages = LateCauses { not_recorded_ns: [1, 8, 0, 0, 0], ..causes(&[], 0, 0, 9) };
        assert_eq!(decide(&messages), LatenessVerdict::CallsMissing { cause: MissingCause::Messages });
        let start_up = LateCauses { is_start_up: true, ..causes(&[(3, "a", 9)], 0, 0, 0) };
        assert_eq!(decide(&start_up), LatenessVerdict::StartUp);
    }
}
