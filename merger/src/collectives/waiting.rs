//! What the ranks of one collective wait for each other, and which rank's own time explains it.

use super::agree::Participant;
use super::judge::{Guest, Kept};
use super::late::is_comparable;
use super::own_time::SINCE_INIT;
use crate::clock::DomainFit;
use rpd_shard::model::LocalNs;

/// What is known of the clocks of a participant; `None` if they are not aligned.
pub(super) type FitOf<'a> = [Option<&'a DomainFit>];

/// One rank in a collective, in job time.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    guest: &'a Guest,
    enter: i64,
    exit: i64,
    /// When it left the synchronisation since which its own time is counted.
    left: Option<i64>,
}

/// Why ranks waited in a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// This participant spent so much more own time than the lower median of the others, ns.
    Participant(u32, i64),
    /// No rank's own time explains it: messages held up those that came late, or several ranks at a time were slow.
    HeldUp,
    /// The clocks of the ranks may be off by more than they entered apart, ns; `None` if their error is not known.
    Clocks(Option<i64>),
    /// The own time of this participant is not known for certain.
    NotRecorded(u32),
}

/// The waiting in one collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    /// What all of its ranks together waited for the last one to enter, ns.
    pub(super) waited_ns: i64,
    /// When the first one entered, ns of the job.
    pub(super) first_enter: i64,
    /// When the last one left, ns of the job.
    pub(super) last_exit: i64,
    /// The last one to enter.
    pub(super) last: u32,
    /// How long after the first one that was, ns.
    pub(super) apart_ns: i64,
    /// By how much the clocks of these two may be off, ns; `None` if that is not known.
    pub(super) bound_ns: Option<i64>,
    pub(super) cause: Cause,
}

/// What ranks waited in a collective in which all wait for all; `None` if their times cannot be compared.
pub(super) fn waiting(kept: &Kept, all: &[Participant], fit_of: &FitOf<'_>) -> Option<Waiting> {
    if !is_comparable(kept, all, fit_of) {
        return None;
    }
    let fit = |guest: &Guest| fit_of.get(guest.participant as usize).copied().flatten();
    let entry = |guest| {
        let map = |time: i64| fit(guest).map_or(time, |fit| fit.map.map(LocalNs(time)).ns());
        let left = guest.own_time.filter(|own| own.since != SINCE_INIT).map(|own| map(own.left));
        Entry { guest, enter: map(guest.enter), exit: map(guest.exit), left }
    };
    let entries: Vec<Entry<'_>> = kept.guests.iter().map(entry).collect();
    let by_enter = |entry: &&Entry<'_>| (entry.enter, entry.guest.participant);
    let (first, last) = (entries.iter().min_by_key(by_enter)?, entries.iter().max_by_key(by_enter)?);
    let apart_ns = last.enter.saturating_sub(first.enter);
    let waits = entries.iter().map(|other| last.enter.min(other.exit).saturating_sub(other.enter).max(0));
    let domain = |entry: &Entry<'_>| all.get(entry.guest.participant as usize).map(|p| &p.domain);
    let bound_of = |entry: &Entry<'_>| fit(entry.guest)?.bar_at(LocalNs(entry.guest.enter));
    let bound_ns = match domain(first) == domain(last) {
        true => Some(0),
        false => bound_of(first).zip(bound_of(last)).map(|(a, b)| a.saturating_add(b)),
    };
    let lacks_calls = |participant: u32| all.get(participant as usize).is_some_and(|p| p.lacks_calls);
    let cause = match bound_ns {
        Some(bound) if apart_ns > bound => cause(&entries, first.enter, last, &lacks_calls),
        bound => Cause::Clocks(bound),
    };
    Some(Waiting {
        waited_ns: waits.fold(0, i64::saturating_add),
        first_enter: first.enter,
        last_exit: entries.iter().map(|entry| entry.exit).max()?,
        last: last.guest.participant,
        apart_ns,
        bound_ns,
        cause,
    })
}

/// The only rank whose own time explains how late it entered and how late the last one did. The last one itself comes
/// first: what its own time explains needs no other.
fn cause(entries: &[Entry<'_>], first: i64, last: &Entry<'_>, lacks_calls: &dyn Fn(u32) -> bool) -> Cause {
    let since = last.guest.own_time.map(|own| own.since);
    let first_left = entries.iter().filter_map(|entry| entry.left).min();
    // A rank that leaves a synchronisation after others waits for none of them: its node or the network holds it up.
    let left_late = |entry: &Entry<'_>| match (entry.left, first_left) {
        (Some(left), Some(first)) => left.saturating_sub(first),
        _ => 0,
    };
    let own_times: Option<Vec<i64>> = entries
        .iter()
        .map(|entry| {
            let own = entry.guest.own_time.filter(|own| Some(own.since) == since)?;
            Some(own.ns.saturating_add(left_late(entry)))
        })
        .collect();
    let Some(own_times) = own_times else { return Cause::NotRecorded(last.guest.participant) };
    let apart = last.enter.saturating_sub(first);
    let mut explaining = (0..).zip(entries).zip(&own_times).filter_map(|((place, entry), own)| {
        let excess = own.saturating_sub(lower_median_without(&own_times, place));
        let is_enough = |late: i64| excess > 0 && excess.saturating_mul(2) >= late;
        let explains = is_enough(entry.enter.saturating_sub(first)) && is_enough(apart);
        explains.then_some((entry.guest.participant, excess))
    });
    let found: Vec<(u32, i64)> = explaining.by_ref().collect();
    let of_last = found.iter().find(|(participant, _)| *participant == last.guest.participant);
    match (of_last, found.as_slice()) {
        (Some((participant, _)), _) | (None, [(participant, _)]) if lacks_calls(*participant) => {
            Cause::NotRecorded(*participant)
        }
        (Some((participant, excess)), _) | (None, [(participant, excess)]) => {
            Cause::Participant(*participant, *excess)
        }
        (None, _) => Cause::HeldUp,
    }
}

/// The lower median of all but one.
fn lower_median_without(values: &[i64], place: usize) -> i64 {
    let mut others: Vec<i64> =
        values.iter().enumerate().filter(|(i, _)| *i != place).map(|(_, value)| *value).collect();
    others.sort_unstable();
    others.get(others.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::own_time::OwnTime;
    use super::*;

    /// The cause among ranks that enter at these times with these own times.
    fn cause_of(ranks: &[(i64, i64)]) -> Cause {
        cause_of_ranks_that_left(ranks, &vec![0; ranks.len()])
    }

    /// The same of ranks that left the synchronisation before at these times.
    fn cause_of_ranks_that_left(ranks: &[(i64, i64)], left: &[i64]) -> Cause {
        let guest = |(participant, (enter, own)): (u32, &(i64, i64))| Guest {
            participant,
            rank: None,
            enter: *enter,
            exit: 1_000,
            own_time: (*own >= 0).then_some(OwnTime { since: 1, ns: *own, left: 0 }),
        };
        let guests: Vec<Guest> = (0..).zip(ranks).map(guest).collect();
        let entry = |(guest, left): (_, &i64)| {
            let guest: &Guest = guest;
            Entry { guest, enter: guest.enter, exit: guest.exit, left: Some(*left) }
        };
        let entries: Vec<Entry<'_>> = guests.iter().zip(left).map(entry).collect();
        let first = entries.iter().map(|entry| entry.enter).min().unwrap();
        let last = entries.iter().max_by_key(|entry| entry.enter).unwrap();
        cause(&entries, first, last, &|participant| participant == 9)
    }

    #[test]
    fn the_rank_that_spent_more_own_time_is_the_cause_though_it_is_not_the_last() {
        assert_eq!(cause_of(&[(10, 10), (10, 10), (110, 110)]), Cause::Participant(2, 100));
        // 1 sleeps and sends to 2, which sends to 3: they enter one after another.
        let chain = [(10, 10), (110, 110), (112, 11), (114, 12)];
        assert_eq!(cause_of(&chain), Cause::Participant(1, 99));
        // Of two ranks the other one is the median.
        assert_eq!(cause_of(&[(10, 10), (40, 40)]), Cause::Participant(1, 30));
    }

    #[test]
    fn a_rank_that_messages_held_up_is_no_cause() {
        // Each works as long as the others, after a message of the one before.
        assert_eq!(cause_of(&[(10, 10), (20, 10), (30, 10), (40, 10)]), Cause::HeldUp);
        // Its own time explains less than half of it.
        assert_eq!(cause_of(&[(10, 10), (10, 10), (10, 10), (110, 59)]), Cause::HeldUp);
        // Two that may be the cause: nobody can say which.
        assert_eq!(cause_of(&[(10, 10), (10, 10), (80, 80), (80, 80), (10, 10), (90, 12)]), Cause::HeldUp);
    }

    #[test]
    fn a_rank_that_leaves_the_synchronisation_before_late_is_held_up_by_itself() {
        let ranks = [(10, 10), (10, 10), (12, 10), (95, 10)];
        assert_eq!(cause_of(&ranks), Cause::HeldUp);
        assert_eq!(cause_of_ranks_that_left(&ranks, &[0, 0, 2, 85]), Cause::Participant(3, 85));
    }

    #[test]
    fn without_all_own_times_nothing_is_known() {
        assert_eq!(cause_of(&[(10, 10), (10, -1), (110, 110)]), Cause::NotRecorded(2));
        let mut ranks = [(10, 10); 10];
        ranks[9] = (110, 110);
        assert_eq!(cause_of(&ranks), Cause::NotRecorded(9), "calls of rank 9 are missing");
    }

    #[test]
    fn the_median_is_the_lower_one() {
        assert_eq!(lower_median_without(&[5, 1, 9, 7, 100], 4), 5);
        assert_eq!(lower_median_without(&[5, 100], 1), 5);
        assert_eq!(lower_median_without(&[5], 0), 0);
    }
}
