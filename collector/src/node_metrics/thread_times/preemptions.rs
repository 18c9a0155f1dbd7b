//! When a thread lost its core to others, from its switch records.
//!
//! `schedstat` says how long a thread has waited for a core: exactly, but only as a sum at each tick. The records say when, as far
//! as they are there, and the interval between two ticks is parted there.

use super::shares::{IntervalShares, ThreadShares};
use super::switch_records::{IntervalWaits, SwitchRecords, WaitEpisode};
use super::thread_sums::ThreadSums;
use std::io;

/// A thread that gets a core more often than this per second is not followed: records make each time 1.7 us longer, and the waits
/// of such a thread are short.
const MAX_SLICES_PER_S: f64 = 1000.0;
/// A thread is followed after this many ticks below the limit. Whenever it exceeds the limit while it is followed, the number grows
/// fourfold, up to a maximum; it shrinks by half in each [`TICKS_TO_FORGET`] below the limit.
const CALM_TICKS: u32 = 2;
const MAX_CALM_TICKS: u32 = 128;
const TICKS_TO_FORGET: u32 = 100;
/// The kernel counts the run time of a thread on a core at its own ticks only, at least a hundred times a second: this much may be
/// missing from a sum and appear in the next one, ns.
const COUNTED_LATE_NS: u64 = 10_000_000;
/// A tick whose sums were read later than this after its time says too little of what happened up to that time, ns.
const MAX_DELAY_NS: i64 = 1_000_000;

/// A thread whose preemptions are followed while it switches rarely.
pub(super) struct FollowedThread {
    tid: i32,
    records: Option<SwitchRecords>,
    /// Ticks in a row below [`MAX_SLICES_PER_S`], and how many it needs.
    calm_ticks: u32,
    needed_ticks: u32,
    /// The kernel has refused.
    is_refused: bool,
    /// The sums of the last tick were read in time.
    was_in_time: bool,
}

/// Adds a tick to the shares of a thread, which is parted where episodes of waiting begin and end. Returns the intervals that it
/// completes. `read` are the times just before and after the sums were read.
pub(super) fn add_tick(
    shares: &mut ThreadShares,
    tick: (i64, ThreadSums),
    read: (i64, i64),
    followed: Option<&mut FollowedThread>,
) -> Vec<IntervalShares> {
    let waits = followed.and_then(|followed| followed.waits(shares.last(), tick, read));
    add_waits(shares, tick, &waits.unwrap_or_default())
}

/// Adds a tick with known waits. The kernel counts a wait when it ends, and when the thread changes its queue; here it counts when
/// it was. As these are sums, what is too much or too little at one tick is corrected at the next ones.
fn add_waits(
    shares: &mut ThreadShares,
    (time, mut sums): (i64, ThreadSums),
    waits: &IntervalWaits,
) -> Vec<IntervalShares> {
    let from = shares.last();
    let length_ns = time.saturating_sub(from.0).max(0) as u64;
    let run_ns = sums.run_ns.saturating_sub(from.1.run_ns);
    let most = from.1.wait_ns + length_ns.saturating_sub(run_ns);
    if waits.lasting_ns > 0 || sums.wait_ns < from.1.wait_ns {
        sums.wait_ns = (sums.wait_ns + waits.lasting_ns).min(most).max(from.1.wait_ns);
    }
    let (points, sums) = sums_at_episodes(from, (time, sums), &waits.episodes);
    shares.add_parts(time, sums, &points)
}

impl FollowedThread {
    pub(super) fn new(tid: i32) -> FollowedThread {
        FollowedThread {
            tid,
            records: None,
            calm_ticks: 0,
            needed_ticks: CALM_TICKS,
            is_refused: false,
            was_in_time: false,
        }
    }

    /// Returns the waits between two ticks, if they are known.
    fn waits(
        &mut self,
        from: (i64, ThreadSums),
        to: (i64, ThreadSums),
        read: (i64, i64),
    ) -> Option<IntervalWaits> {
        let is_in_time = read.1.saturating_sub(to.0) <= MAX_DELAY_NS;
        let was_in_time = std::mem::replace(&mut self.was_in_time, is_in_time);
        let seconds = to.0.saturating_sub(from.0).max(1) as f64 / 1e9;
        if to.1.slices.saturating_sub(from.1.slices) as f64 > MAX_SLICES_PER_S * seconds {
            if self.records.take().is_some() {
                self.wait_longer();
            }
            self.calm_ticks = 0;
            return None;
        }
        self.calm_ticks = self.calm_ticks.saturating_add(1);
        if self.calm_ticks.is_multiple_of(TICKS_TO_FORGET) {
            self.needed_ticks = (self.needed_ticks / 2).max(CALM_TICKS);
        }
        if self.records.is_none() && !self.is_refused && self.calm_ticks >= self.needed_ticks {
            self.open();
            return None;
        }
        let mut waits = self.records.as_mut()?.of_interval(from.0..to.0, read.0);
        if !is_in_time || !was_in_time {
            waits.episodes.clear();
        }
        Some(waits)
    }

    fn open(&mut self) {
        match SwitchRecords::open(self.tid) {
            Ok(records) => self.records = Some(records),
            Err(error) if is_temporary(&error) => self.wait_longer(),
            Err(_) => self.is_refused = true,
        }
    }

    fn wait_longer(&mut self) {
        self.needed_ticks = self.needed_ticks.saturating_mul(4).min(MAX_CALM_TICKS);
        self.calm_ticks = 0;
    }
}

/// Whether the same call may succeed later: there are no descriptors or no memory now.
fn is_temporary(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let temporary = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| temporary.iter().any(|errno| errno.raw_os_error() == code))
}

/// Returns the sums of a thread at the ends of its episodes, between its sums at the ends of an interval, in the order of time:
/// in an episode it ran when it did not wait, and in the rest it ran and waited at one rate. There are none if the sums do not
/// allow that, as those of a thread that also sleeps in an episode. Returns also the sums at the end of the interval, without what
/// the kernel counted late.
fn sums_at_episodes(
    from: (i64, ThreadSums),
    mut to: (i64, ThreadSums),
    episodes: &[WaitEpisode],
) -> (Vec<(i64, ThreadSums)>, ThreadSums) {
    let length = |episode: &WaitEpisode| (episode.time.end - episode.time.start) as u64;
    let all_ns: u64 = episodes.iter().map(length).sum();
    let waits_ns: u64 = episodes.iter().map(|episode| episode.waited_ns).sum();
    let other_ns = (to.0.saturating_sub(from.0).max(0) as u64).saturating_sub(all_ns);
    let rest = |from: u64, to: u64, inside: u64| {
        let counted = to.saturating_sub(from);
        (counted + COUNTED_LATE_NS >= inside).then(|| counted.saturating_sub(inside))
    };
    let rests = (
        rest(from.1.run_ns, to.1.run_ns, all_ns.saturating_sub(waits_ns)),
        rest(from.1.wait_ns, to.1.wait_ns, waits_ns),
    );
    let (Some(mut run_ns), Some(mut wait_ns)) = rests else { return (Vec::new(), to.1) };
    if episodes.is_empty() || run_ns + wait_ns > other_ns + COUNTED_LATE_NS {
        return (Vec::new(), to.1);
    }
    let mut excess_ns = (run_ns + wait_ns).saturating_sub(other_ns);
    for (rest, sum) in [(&mut run_ns, &mut to.1.run_ns), (&mut wait_ns, &mut to.1.wait_ns)] {
        let late = (*rest).min(excess_ns);
        *rest -= late;
        *sum -= late;
        excess_ns -= late;
    }
    let rate = |rest: u64| rest as f64 / other_ns.max(1) as f64;
    let mut points = Vec::with_capacity(2 * episodes.len());
    let (mut at, mut sums) = from;
    let mut add = |time: i64, run_ns: u64, wait_ns: u64| {
        sums.run_ns = (sums.run_ns + run_ns).min(to.1.run_ns);
        sums.wait_ns = (sums.wait_ns + wait_ns).min(to.1.wait_ns);
        if time > from.0 && time < to.0 {
            points.push((time, sums));
        }
    };
    for episode in episodes {
        let before = (episode.time.start - at) as f64;
        add(episode.time.start, (rate(run_ns) * before) as u64, (rate(wait_ns) * before) as u64);
        add(episode.time.end, length(episode).saturating_sub(episode.waited_ns), episode.waited_ns);
        at = episode.time.end;
    }
    (points, to.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn episode(from: i64, to: i64, waited: i64) -> WaitEpisode {
        WaitEpisode { time: from * MS..to * MS, waited_ns: (waited * MS) as u64 }
    }

    fn sums(run: i64, wait: i64) -> ThreadSums {
        ThreadSums { run_ns: (run * MS) as u64, wait_ns: (wait * MS) as u64, ..ThreadSums::default() }
    }

    fn waits(episodes: &[WaitEpisode], lasting_ms: i64) -> IntervalWaits {
        IntervalWaits { episodes: episodes.to_vec(), lasting_ns: (lasting_ms * MS) as u64 }
    }

    fn points(
        from: (i64, ThreadSums),
        to: (i64, ThreadSums),
        episodes: &[WaitEpisode],
    ) -> Vec<(i64, ThreadSums)> {
        sums_at_episodes(from, to, episodes).0
    }

    #[test]
    fn waiting_is_placed_where_it_was() {
        let (from, to) = ((0, sums(5, 7)), (100 * MS, sums(65, 47)));
        // It ran for 60 of the other 60 ms.
        let placed = points(from, to, &[episode(20, 60, 40)]);
        assert_eq!(placed, [(20 * MS, sums(25, 7)), (60 * MS, sums(25, 47))]);
        let placed = points(from, to, &[episode(0, 50, 25), episode(80, 100, 10)]);
        assert_eq!(placed, [(50 * MS, sums(30, 32)), (80 * MS, sums(55, 37))]);
        assert_eq!(points(from, to, &[episode(20, 80, 51)]), [], "more than the kernel has counted");
        assert_eq!(points(from, to, &[episode(0, 100, 40)]), [], "all the time, as the sums say");
        let busy = (to.0, sums(85, 47));
        assert_eq!(points(from, busy, &[episode(20, 60, 40)]), [], "more than time has passed");
        assert_eq!(points(from, to, &[]), []);
        // The wait ended 3 us after the kernel had counted it.
        let late = WaitEpisode { time: 20 * MS..60 * MS + 3000, waited_ns: 40_003_000 };
        assert_eq!(points(from, to, &[late]).last().unwrap().1.wait_ns, sums(0, 47).wait_ns);
    }

    #[test]
    fn a_wait_counts_when_it_was_and_not_when_it_ends() {
        let mut shares = ThreadShares::new(0, sums(0, 0));
        let mut found = Vec::new();
        // It runs for 50 ms, waits for 150 ms, and runs again; the kernel counts the wait at 200 ms.
        for (tick, run, wait, known) in [
            (100, 50, 0, waits(&[episode(50, 100, 50)], 50)),
            (200, 50, 150, waits(&[episode(100, 200, 100)], 0)),
            (300, 150, 150, IntervalWaits::default()),
        ] {
            found.extend(add_waits(&mut shares, (tick * MS, sums(run, wait)), &known));
        }
        found.extend(shares.end().into_iter().flatten());
        let found: Vec<_> = found.iter().map(|at| (at.start / MS, at.run, at.wait)).collect();
        let expected =
            [(0, 100.0, 0.0), (50, 0.0, 100.0), (100, 0.0, 100.0), (200, 100.0, 0.0), (300, 0.0, 0.0)];
        assert_eq!(found, expected);
    }

    /// This thread, which is one that the kernel lets a user follow, if any.
    #[test]
    fn a_thread_is_followed_while_it_switches_rarely() {
        if let Some(reason) = super::super::switch_records::why_not_followed() {
            return eprintln!("SKIPPED: {reason}");
        }
        let mut followed = FollowedThread::new(rustix::thread::gettid().as_raw_nonzero().get());
        let (mut tick, mut slices) = (0, 0);
        let mut next = |followed: &mut FollowedThread, switches: u64| {
            let from = (100 * MS * tick, ThreadSums { slices, ..ThreadSums::default() });
            (tick, slices) = (tick + 1, slices + switches);
            let to = (100 * MS * tick, ThreadSums { slices, ..ThreadSums::default() });
            followed.waits(from, to, (to.0, to.0)).is_some()
        };
        let known: Vec<bool> =
            [500, 5, 5, 5, 5, 500, 5].iter().map(|switches| next(&mut followed, *switches)).collect();
        assert_eq!(known, [false, false, false, true, true, false, false]);
        let calm = (0..20).take_while(|_| !next(&mut followed, 5)).count();
        assert_eq!(calm, 7, "it needs eight calm ticks now");
    }

    proptest! {
        /// Whatever the kernel says, sums between two ticks grow from one to the other.
        #[test]
        fn sums_between_two_ticks_never_decrease(
            run in 0..200 * MS,
            wait in 0..200 * MS,
            share in 0..=100u64,
            ends in prop::collection::btree_set(0..100 * MS, 0..8)
        ) {
            let ends: Vec<i64> = ends.into_iter().collect();
            let episodes: Vec<WaitEpisode> = ends
                .chunks_exact(2)
                .map(|pair| WaitEpisode { time: pair[0]..pair[1], waited_ns: (pair[1] - pair[0]) as u64 * share / 100 })
                .collect();
            let to = ThreadSums { run_ns: run as u64, wait_ns: wait as u64, ..ThreadSums::default() };
            let mut all = vec![(0, ThreadSums::default())];
            let (found, end) = sums_at_episodes(all[0], (100 * MS, to), &episodes);
            let is_parted = !found.is_empty();
            all.extend(found);
            all.push((100 * MS, end));
            prop_assert!(end.run_ns <= to.run_ns && end.wait_ns <= to.wait_ns);
            prop_assert!(to.run_ns + to.wait_ns <= end.run_ns + end.wait_ns + COUNTED_LATE_NS);
            let is_whole = all.windows(2).all(|pair| {
                let taken = pair[1].1.run_ns + pair[1].1.wait_ns - pair[0].1.run_ns - pair[0].1.wait_ns;
                taken <= (pair[1].0 - pair[0].0) as u64 + 20
            });
            prop_assert!(!is_parted || is_whole);
            prop_assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0
                && pair[0].1.run_ns <= pair[1].1.run_ns && pair[0].1.wait_ns <= pair[1].1.wait_ns));
        }

        /// Whatever is known of waits that last, no share is above the whole, and all of what the kernel counted is there in the end.
        #[test]
        fn nothing_that_the_kernel_counted_is_missing(
            ticks in prop::collection::vec((1..200 * MS, 0..=100i64, 0..=100i64, 0..300 * MS), 1..50)
        ) {
            let (mut time, mut run, mut wait) = (0, 0, 0);
            let mut shares = ThreadShares::new(0, ThreadSums::default());
            let mut found = Vec::new();
            let mut add = |shares: &mut ThreadShares, time, run, wait, lasting_ns| {
                let sums = ThreadSums { run_ns: run, wait_ns: wait, ..ThreadSums::default() };
                let known = IntervalWaits { episodes: Vec::new(), lasting_ns };
                found.extend(add_waits(shares, (time, sums), &known));
            };
            for (length, ran, waited, lasting) in ticks {
                time += length;
                run += (length * ran / 100) as u64;
                wait += (length * (100 - ran) / 100 * waited / 100) as u64;
                add(&mut shares, time, run, wait, lasting as u64);
            }
            // It sleeps until nothing lasts.
            for _ in 0..2 {
                time += 1000 * MS;
                add(&mut shares, time, run, wait, 0);
            }
            found.extend(shares.end().into_iter().flatten());
            let sum = |of: fn(&IntervalShares) -> f64| -> f64 {
                found.windows(2).map(|pair| of(&pair[0]) / 100.0 * (pair[1].start - pair[0].start) as f64).sum()
            };
            let error = 1.0 + time as f64 * 0.5e-4;
            prop_assert!((sum(|at| at.run) - run as f64).abs() <= error);
            prop_assert!(sum(|at| at.wait) >= wait as f64 - error);
            prop_assert!(found.iter().all(|at| at.run + at.wait <= 100.01));
        }
    }
}
