//! Computes how long the ranks of one collective wait for each other, and which rank's own time explains it.

use super::late_rank_verdict::MissingCause;
use super::matched_call::{MatchedCollective, RankCall};
use super::own_time::SINCE_INIT;
use super::participant_clocks::ParticipantClocks;
use rpd_shard::model::LocalNs;

/// The call of one rank in a collective, in job time.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    call: &'a RankCall,
    host: &'a str,
    enter: i64,
    exit: i64,
    /// Time at which the rank left the synchronisation from which its own time counts.
    left: Option<i64>,
}

/// Wait time that would not have occurred without one participant, or without one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WaitCharge {
    /// The participant; for a node, its participant with the most own time.
    pub(super) participant: u32,
    /// How much more own time it spent than each other rank, or each rank of another node, ns.
    pub(super) margin_ns: i64,
    /// Time that all others together waited because of that, ns.
    pub(super) waited_ns: i64,
}

/// Wait time in one collective by cause, ns. All parts except `node` add up to the total; `node` overlaps the
/// others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct WaitParts {
    /// Wait time that one rank's own time explains.
    pub(super) rank: Option<WaitCharge>,
    /// Wait time that the own time of the ranks of one node explains.
    pub(super) node: Option<WaitCharge>,
    /// Wait time that the own times of several ranks explain, but not that of a single one.
    pub(super) shared_ns: i64,
    /// Ranks that are late by their own times and together cause `shared_ns`; empty for a single rank.
    pub(super) late_together: Vec<u32>,
    /// Wait time that no rank's own time explains, because messages delayed the ranks that entered late.
    pub(super) held_up_ns: i64,
    /// Wait time that no rank's own time explains, because other collectives delayed the ranks that entered
    /// late.
    pub(super) passed_on_ns: i64,
    /// Wait time for a rank that worked or waited between two polls.
    pub(super) between_polls_ns: i64,
    /// Wait time in collectives that all ranks entered within the error bound of the clocks.
    pub(super) clocks_ns: i64,
    /// Wait time in collectives for which an own time is not known with certainty.
    pub(super) not_recorded: Option<(MissingCause, i64)>,
}

/// The wait time in one collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CollectiveWait {
    /// Time that all its ranks together waited for the last one to enter, ns.
    pub(super) waited_ns: i64,
    /// Time at which the first rank entered, ns of the job.
    pub(super) first_enter: i64,
    /// Time at which the last rank left, ns of the job.
    pub(super) last_exit: i64,
    /// The last rank to enter.
    pub(super) last: u32,
    /// Time between the first and the last entry, ns.
    pub(super) apart_ns: i64,
    /// Error bound between the clocks of these two ranks, ns; `None` if it is not known.
    pub(super) bound_ns: Option<i64>,
    /// Whether these ranks had synchronised before; `None` if that is not known.
    pub(super) had_synchronised: Option<bool>,
    pub(super) parts: WaitParts,
}

/// Computes the wait times in a collective in which every rank waits for all ranks. Returns `None` if the times
/// cannot be compared.
pub(super) fn waiting(
    collective: &MatchedCollective,
    clocks: &ParticipantClocks<'_>,
) -> Option<CollectiveWait> {
    if !clocks.can_compare(collective) {
        return None;
    }
    let entries = collective.calls.iter().map(|call| {
        let map = |time: i64| clocks.job_time(call.participant, time);
        let left = call.own_time.filter(|own| own.since != SINCE_INIT).map(|own| map(own.left));
        let host = clocks.members.get(call.participant).map_or("", |participant| &participant.host);
        Entry { call, host, enter: map(call.enter), exit: map(call.exit), left }
    });
    let entries: Vec<Entry<'_>> = entries.collect();
    let by_enter = |entry: &&Entry<'_>| (entry.enter, entry.call.participant);
    let (first, last) = (entries.iter().min_by_key(by_enter)?, entries.iter().max_by_key(by_enter)?);
    let apart_ns = last.enter.saturating_sub(first.enter);
    let domain = |entry: &Entry<'_>| clocks.domain(entry.call.participant);
    let bound_of = |entry: &Entry<'_>| clocks.fit(entry.call.participant)?.bar_at(LocalNs(entry.call.enter));
    let bound_ns = match domain(first) == domain(last) {
        true => Some(0),
        false => bound_of(first).zip(bound_of(last)).map(|(a, b)| a.saturating_add(b)),
    };
    let waits = waits(&entries, last.enter);
    let waited_ns = waits.iter().copied().fold(0, i64::saturating_add);
    let why_not_known = |participant: u32| {
        let participant = clocks.members.get(participant)?;
        let messages = participant.hides_messages.then_some(MissingCause::Messages);
        let threads = participant.is_in_threads.then_some(MissingCause::Threads);
        participant.lacks_calls.then_some(MissingCause::Lost).or(messages).or(threads)
    };
    let parts = match bound_ns {
        Some(bound) if apart_ns > bound => parts(&entries, (first, last), &waits, &why_not_known),
        _ => WaitParts { clocks_ns: waited_ns, ..WaitParts::default() },
    };
    let since = entries.iter().map(|entry| Some(entry.call.own_time?.since != SINCE_INIT));
    Some(CollectiveWait {
        waited_ns,
        first_enter: first.enter,
        last_exit: entries.iter().map(|entry| entry.exit).max()?,
        last: last.call.participant,
        apart_ns,
        bound_ns,
        had_synchronised: since.collect::<Option<Vec<bool>>>().map(|all| all.into_iter().all(|is| is)),
        parts,
    })
}

/// Returns how long each rank waits until the last one enters, ns.
fn waits(entries: &[Entry<'_>], last_enter: i64) -> Vec<i64> {
    let wait = |entry: &Entry<'_>| last_enter.min(entry.exit).saturating_sub(entry.enter).max(0);
    entries.iter().map(wait).collect()
}

/// Own times since one synchronisation, ns, by entry: the certain part, and the sum including gaps between
/// polls.
///
/// A rank that leaves the synchronisation after others waits for none of them: its node or the network delays
/// it. The delay counts as its own time.
struct OwnTimes {
    certain: Vec<i64>,
    at_most: Vec<i64>,
}

impl OwnTimes {
    /// Returns `None` if an own time is not known or counts from another synchronisation.
    fn new(entries: &[Entry<'_>], since: Option<u64>) -> Option<OwnTimes> {
        let first_left = entries.iter().filter_map(|entry| entry.left).min();
        let left_late = |entry: &Entry<'_>| match (entry.left, first_left) {
            (Some(left), Some(first)) => left.saturating_sub(first),
            _ => 0,
        };
        let own = |entry: &Entry<'_>| {
            let own = entry.call.own_time.filter(|own| Some(own.since) == since)?;
            let certain = own.ns.saturating_add(left_late(entry));
            Some((certain, certain.saturating_add(own.poll_gaps_ns)))
        };
        let (certain, at_most) = entries.iter().map(own).collect::<Option<Vec<_>>>()?.into_iter().unzip();
        Some(OwnTimes { certain, at_most })
    }

    /// Returns by how much the certain own time of the rank at `place` exceeds the others that `counts` accepts.
    ///
    /// The median (the lower one) and `over_all` include the others' gaps between polls, `over_all_certain` does
    /// not. Returns `None` if `counts` accepts no rank.
    fn margins(&self, place: usize, counts: impl Fn(usize) -> bool) -> Option<Margins> {
        let own = *self.certain.get(place)?;
        let others = |times: &[i64]| {
            let mut others: Vec<i64> =
                times.iter().enumerate().filter(|(i, _)| counts(*i)).map(|(_, time)| *time).collect();
            others.sort_unstable();
            others
        };
        let (certain, at_most) = (others(&self.certain), others(&self.at_most));
        let median = *at_most.get(at_most.len().checked_sub(1)? / 2)?;
        let over = |most: Option<&i64>| own.saturating_sub(*most.unwrap_or(&0)).max(0);
        Some(Margins {
            over_median: own.saturating_sub(median),
            over_all: over(at_most.last()),
            over_all_certain: over(certain.last()),
        })
    }
}

/// Excess of one rank's own time over that of others, ns.
struct Margins {
    over_median: i64,
    over_all: i64,
    over_all_certain: i64,
}

/// Divides the wait time in a collective by cause. The rank with the most own time is charged if its excess
/// explains how late it and the last rank entered. It is charged with the wait time that would not have occurred
/// without it.
fn parts(
    entries: &[Entry<'_>],
    (first, last): (&Entry<'_>, &Entry<'_>),
    waits: &[i64],
    why_not_known: &dyn Fn(u32) -> Option<MissingCause>,
) -> WaitParts {
    let all_waits = waits.iter().copied().fold(0, i64::saturating_add);
    let not_recorded = |why| WaitParts { not_recorded: Some((why, all_waits)), ..WaitParts::default() };
    let since = last.call.own_time.map(|own| own.since);
    let Some(own_times) = OwnTimes::new(entries, since) else {
        let why = entries.iter().find_map(|entry| why_not_known(entry.call.participant));
        return not_recorded(why.unwrap_or(MissingCause::Unordered));
    };
    let apart = last.enter.saturating_sub(first.enter);
    let most = entries.iter().zip(&own_times.certain).enumerate();
    let Some((place, (slowest, _))) = most.max_by_key(|(_, (entry, own))| (**own, entry.enter)) else {
        return WaitParts::default();
    };
    let participant = slowest.call.participant;
    // The part of the others' wait time that the margin explains.
    let explained = |margin: i64| waits.iter().map(|wait| margin.min(*wait)).fold(0, i64::saturating_add);
    let charge = |counts: &dyn Fn(usize) -> bool| {
        let margins = own_times.margins(place, counts)?;
        let is_enough = |late: i64| margins.over_median > 0 && margins.over_median.saturating_mul(2) >= late;
        let explains = is_enough(slowest.enter.saturating_sub(first.enter)) && is_enough(apart);
        let margin_ns = margins.over_all;
        let charge = WaitCharge { participant, margin_ns, waited_ns: explained(margin_ns) };
        explains.then(|| (charge, explained(margins.over_all_certain).saturating_sub(charge.waited_ns)))
    };
    let of_rank = charge(&|other| other != place);
    if let (Some(_), Some(why)) = (&of_rank, why_not_known(participant)) {
        return not_recorded(why);
    }
    let is_elsewhere = |other: usize| entries.get(other).is_some_and(|entry| entry.host != slowest.host);
    let is_charged = |charge: &WaitCharge| charge.waited_ns > 0;
    let node = charge(&is_elsewhere).map(|(charge, _)| charge).filter(is_charged);
    let (rank, between_polls) = of_rank.unzip();
    let rank = rank.filter(is_charged);
    let mut parts =
        WaitParts { rank, node, between_polls_ns: between_polls.unwrap_or(0), ..WaitParts::default() };
    let charged = rank.map_or(0, |rank| rank.waited_ns);
    let rest = all_waits.saturating_sub(parts.between_polls_ns).saturating_sub(charged);
    // Ranks with an own time that explains how late the last one entered.
    let at = |entry: &Entry<'_>| entries.iter().position(|other| std::ptr::eq(other, entry));
    let of_first = at(first).and_then(|place| own_times.at_most.get(place)).copied().unwrap_or(0);
    let is_late = |own: i64| own.saturating_sub(of_first).saturating_mul(2) >= apart;
    let late = entries.iter().zip(&own_times.certain).filter(|(_, own)| is_late(**own));
    let late: Vec<u32> = late.map(|(entry, _)| entry.call.participant).collect();
    if late.contains(&last.call.participant) {
        parts.shared_ns = rest;
        parts.late_together = if late.len() > 1 { late } else { Vec::new() };
        return parts;
    }
    let may_explain = |ns: i64| ns.saturating_mul(2) >= apart;
    let of_last = at(last).and_then(|place| own_times.at_most.get(place)).copied().unwrap_or(0);
    let in_collectives = |entry: &Entry<'_>| entry.call.own_time.map_or(0, |own| own.collectives_ns);
    *(if may_explain(of_last.saturating_sub(of_first)) {
        &mut parts.between_polls_ns
    } else if may_explain(in_collectives(last).saturating_sub(in_collectives(first))) {
        &mut parts.passed_on_ns
    } else {
        &mut parts.held_up_ns
    }) += rest;
    parts
}

#[cfg(test)]
mod tests {
    use super::super::own_time::OwnTime;
    use super::*;

    /// Times of one rank before a collective.
    #[derive(Clone, Copy)]
    struct TestRank {
        enter: i64,
        /// -1 if it is not known.
        own: i64,
        poll_gaps: i64,
        in_collectives: i64,
        left_synchronisation: i64,
        host: &'static str,
    }

    fn rank(enter: i64, own: i64) -> TestRank {
        TestRank { enter, own, poll_gaps: 0, in_collectives: 0, left_synchronisation: 0, host: "a" }
    }

    fn ranks(ranks: &[(i64, i64)]) -> Vec<TestRank> {
        ranks.iter().map(|(enter, own)| rank(*enter, *own)).collect()
    }

    /// Returns the causes of the wait time among these ranks.
    fn parts_of(ranks: &[TestRank]) -> WaitParts {
        let call = |(participant, rank): (u32, &TestRank)| RankCall {
            participant,
            rank: None,
            enter: rank.enter,
            exit: 1_000,
            own_time: (rank.own >= 0).then_some(OwnTime {
                since: 1,
                ns: rank.own,
                poll_gaps_ns: rank.poll_gaps,
                collectives_ns: rank.in_collectives,
                left: 0,
            }),
        };
        let calls: Vec<RankCall> = (0..).zip(ranks).map(call).collect();
        let entry = |(call, rank): (_, &TestRank)| {
            let call: &RankCall = call;
            let left = Some(rank.left_synchronisation);
            Entry { call, host: rank.host, enter: call.enter, exit: call.exit, left }
        };
        let entries: Vec<Entry<'_>> = calls.iter().zip(ranks).map(entry).collect();
        let first = entries.iter().min_by_key(|entry| entry.enter).unwrap();
        let last = entries.iter().max_by_key(|entry| entry.enter).unwrap();
        let waits = waits(&entries, last.enter);
        parts(&entries, (first, last), &waits, &|participant| {
            (participant == 9).then_some(MissingCause::Lost)
        })
    }

    fn charge_of(of: &[(i64, i64)]) -> Option<(u32, i64, i64)> {
        parts_of(&ranks(of)).rank.map(|charge| (charge.participant, charge.margin_ns, charge.waited_ns))
    }

    #[test]
    fn the_rank_that_spent_more_own_time_is_charged_though_it_is_not_the_last() {
        assert_eq!(charge_of(&[(10, 10), (10, 10), (110, 110)]), Some((2, 100, 200)));
        // Rank 1 sleeps and sends to rank 2, which sends to rank 3: they enter one after another.
        let chain = [(10, 10), (110, 110), (112, 11), (114, 12)];
        assert_eq!(charge_of(&chain), Some((1, 98, 98 + 4 + 2)));
        // With two ranks, the median is the other rank.
        assert_eq!(charge_of(&[(10, 10), (40, 40)]), Some((1, 30, 30)));
    }

    #[test]
    fn a_rank_is_charged_what_would_not_have_been_waited_without_it() {
        let all = parts_of(&ranks(&[(20, 20), (50, 50), (50, 50), (20, 20)]));
        assert_eq!((all.rank, all.shared_ns, all.held_up_ns), (None, 60, 0), "two are as slow");
        assert_eq!(all.late_together, [1, 2]);
        let all = parts_of(&ranks(&[(20, 20), (50, 50), (54, 54), (20, 20)]));
        assert_eq!(all.rank.map(|charge| charge.waited_ns), Some(3 * 4));
        assert_eq!((all.shared_ns, all.late_together), (60, vec![1, 2]));
    }

    #[test]
    fn a_rank_that_messages_held_up_is_no_cause() {
        // Each rank works as long as the others, but only after a message from the previous rank.
        let all = parts_of(&ranks(&[(10, 10), (20, 10), (30, 10), (40, 10)]));
        assert_eq!((all.rank, all.shared_ns, all.held_up_ns), (None, 0, 60));
        // The own time explains less than half of the delay.
        let all = parts_of(&ranks(&[(10, 10), (10, 10), (10, 10), (110, 59)]));
        assert_eq!((all.rank, all.shared_ns, all.held_up_ns), (None, 0, 300));
        // Two ranks may be the cause, and nothing shows which.
        let two = [(10, 10), (10, 10), (80, 80), (80, 80), (10, 10), (90, 12)];
        assert_eq!(parts_of(&ranks(&two)).rank, None);
    }

    #[test]
    fn a_rank_that_another_collective_held_up_is_no_cause_and_no_message_is() {
        let meeting = |enter, own, in_collectives| TestRank { in_collectives, ..rank(enter, own) };
        let all = parts_of(&[meeting(10, 10, 5), meeting(10, 10, 4), meeting(90, 10, 85)]);
        assert_eq!((all.rank, all.shared_ns, all.held_up_ns, all.passed_on_ns), (None, 0, 0, 160));
        let all = parts_of(&[meeting(10, 10, 5), meeting(10, 10, 4), meeting(90, 10, 20)]);
        assert_eq!((all.held_up_ns, all.passed_on_ns), (160, 0), "most of it is messages");
    }

    #[test]
    fn several_slow_ranks_without_messages_are_late_together() {
        let all = parts_of(&ranks(&[(20, 20), (50, 50), (50, 50), (51, 51)]));
        assert_eq!((all.rank, all.shared_ns, all.held_up_ns), (None, 33, 0));
        assert_eq!(all.late_together, [1, 2, 3]);
    }

    #[test]
    fn time_between_polls_counts_for_no_rank_and_against_each() {
        // Rank 1 computes and sends to rank 0, which polls.
        let polling = |enter, own, poll_gaps| TestRank { poll_gaps, ..rank(enter, own) };
        let all = parts_of(&[polling(42, 1, 40), rank(40, 40), rank(1, 1)]);
        assert_eq!(all.rank, None);
        assert_eq!((all.shared_ns, all.held_up_ns, all.between_polls_ns), (0, 0, 43));
        // The certain part of the own time is sufficient.
        let all = parts_of(&[polling(142, 101, 40), rank(2, 2), rank(1, 1)]);
        assert_eq!(all.rank.map(|charge| (charge.participant, charge.waited_ns)), Some((0, 198)));
    }

    #[test]
    fn a_node_is_charged_against_the_ranks_of_the_others() {
        let on = |own, host| TestRank { host, ..rank(own, own) };
        let all = parts_of(&[on(10, "a"), on(20, "a"), on(50, "b"), on(52, "b")]);
        let (rank, node) = (all.rank.unwrap(), all.node.unwrap());
        assert_eq!((rank.participant, rank.waited_ns), (3, 6));
        assert_eq!((node.participant, node.margin_ns, node.waited_ns), (3, 32, 32 + 32 + 2));
        let all = parts_of(&ranks(&[(10, 10), (50, 50)]));
        assert_eq!(all.node, None, "there is one node");
    }

    #[test]
    fn a_rank_that_leaves_the_synchronisation_before_late_is_held_up_by_itself() {
        let mut all = ranks(&[(10, 10), (10, 10), (12, 10), (95, 10)]);
        assert_eq!(parts_of(&all).rank, None);
        (all[2].left_synchronisation, all[3].left_synchronisation) = (2, 85);
        assert_eq!(parts_of(&all).rank.map(|charge| (charge.participant, charge.margin_ns)), Some((3, 83)));
    }

    #[test]
    fn without_all_own_times_nothing_is_known() {
        let why = |of: &[(i64, i64)]| parts_of(&ranks(of)).not_recorded;
        assert_eq!(why(&[(10, 10), (10, -1), (110, 110)]), Some((MissingCause::Unordered, 200)));
        let mut ranks = [(10, 10); 10];
        ranks[9] = (110, 110);
        assert_eq!(why(&ranks), Some((MissingCause::Lost, 900)), "calls of rank 9 are missing");
    }
}
