//! The switch records of the kernel (perf): when a thread left a core and got one.
//!
//! The kernel writes a record into a buffer that it shares with the collector whenever the thread leaves a core or gets one; from
//! Linux 4.17 on the former says whether the thread could have continued. No signal and no code runs in the thread, but each of its
//! switches takes a little longer. A wait that follows a wake-up has no such record, as only privileged users see wake-ups.
//!
//! The kernel refuses this where `kernel.perf_event_paranoid` is above 2, and in many containers.

use crate::host::machine;
use perf_event::events::Software;
use perf_event::{Builder, Clock, Record, SampleFlag, Sampler};
use std::cmp::Reverse;
use std::io;
use std::ops::Range;

/// Shortest wait that counts, ns. Shorter ones are in the sums alone.
const MIN_WAIT_NS: i64 = 100_000;
/// Waits that follow each other in this time, ns, are one episode: a core that others use as well goes from hand to hand.
const MAX_PAUSE_NS: i64 = 10_000_000;
/// An episode with less waiting than this within a tick is not placed, ns.
const MIN_EPISODE_NS: u64 = 5_000_000;
/// Maximum number of episodes whose times are kept: per second on average, and at once.
const EPISODES_PER_S: f64 = 4.0;
const MAX_EPISODES: f64 = 40.0;
/// Bytes of the buffer, or those of a page where that has more.
const BUFFER_BYTES: usize = 8 << 10;
/// Bytes of a record with its time.
const RECORD_BYTES: usize = 16;
/// First Linux whose records say that a thread could have continued.
const FIRST_RELEASE: (u32, u32) = (4, 17);

/// `PERF_RECORD_SWITCH`.
const SWITCH: u32 = 14;
/// `PERF_RECORD_MISC_SWITCH_OUT`: the thread leaves the core.
const OUT: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT`: it could have continued.
const PREEMPTED: u16 = 1 << 14;

/// The switch records of a thread.
pub(super) struct SwitchRecords {
    sampler: Sampler,
    waits: CoreWaits,
    /// Number of records for which the buffer has room.
    room: usize,
    /// Episodes of which the times may be kept now.
    allowance: f64,
}

/// A change of the core of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CoreSwitch {
    /// It got a core.
    In,
    /// It lost its core although it could have continued.
    Lost,
    /// It left its core to wait for something else.
    Left,
}

/// Waits for a core, as far as they are known.
#[derive(Debug, Default)]
struct CoreWaits {
    /// Start of the wait that lasts, ns of `CLOCK_BOOTTIME`.
    since: Option<i64>,
    /// Waits that have ended, in their order.
    ended: Vec<Range<i64>>,
}

/// A time in which a thread waited for a core again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WaitEpisode {
    /// From the start of the first wait to the end of the last one, ns of `CLOCK_BOOTTIME`.
    pub(super) time: Range<i64>,
    /// Length of the waits, ns.
    pub(super) waited_ns: u64,
}

/// The waits of an interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct IntervalWaits {
    /// Episodes in their order, cut to the interval.
    pub(super) episodes: Vec<WaitEpisode>,
    /// Length of the wait that lasts at its end, since it began, ns. Mostly `schedstat` has it only when it has ended.
    pub(super) lasting_ns: u64,
}

/// Says why the kernel does not let the collector follow threads, if so.
pub(crate) fn why_not_followed() -> Option<String> {
    if machine::has_shifted_boottime() {
        return Some("CLOCK_BOOTTIME is shifted in this time namespace".to_owned());
    }
    if machine::linux_release() < FIRST_RELEASE {
        return Some("they need Linux 4.17".to_owned());
    }
    let error = SwitchRecords::open(rustix::thread::gettid().as_raw_nonzero().get()).err()?;
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    Some(match (error.kind(), level.trim().parse::<i32>()) {
        (io::ErrorKind::PermissionDenied, Ok(level @ 3..)) => {
            format!("kernel.perf_event_paranoid is {level}, and 2 allows it ({error})")
        }
        _ => format!("perf_event_open: {error}"),
    })
}

impl SwitchRecords {
    /// Begins to follow a thread. An error if the kernel refuses.
    pub(super) fn open(tid: i32) -> io::Result<SwitchRecords> {
        // The times of records are those outside of the time namespace.
        if machine::has_shifted_boottime() || machine::linux_release() < FIRST_RELEASE {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut builder = Builder::new(Software::DUMMY);
        builder.observe_pid(tid).any_cpu().context_switch(true);
        builder.clockid(Clock::BOOTTIME).sample_id_all(true).sample(SampleFlag::TIME).enabled(true);
        let sampler = builder.build()?.sampled(BUFFER_BYTES)?;
        let room = BUFFER_BYTES.max(rustix::param::page_size()) / RECORD_BYTES;
        Ok(SwitchRecords { sampler, waits: CoreWaits::default(), room, allowance: MAX_EPISODES })
    }

    /// Returns the waits of an interval, which begins where the one before ended.
    pub(super) fn of_interval(&mut self, interval: Range<i64>, read_at: i64) -> IntervalWaits {
        let (mut records, mut is_lossy) = (0, false);
        // The kernel may write as fast as this reads.
        while records < 2 * self.room
            && let Some(record) = self.sampler.next_record()
        {
            records += 1;
            match read_switch(&record) {
                Some((time, change)) => self.waits.add(time, change),
                None => is_lossy = true,
            }
        }
        // The kernel reports lost records only when it writes the next one.
        if is_lossy || records >= self.room * 3 / 4 {
            self.waits = CoreWaits::default();
            return IntervalWaits::default();
        }
        let seconds = (interval.end - interval.start) as f64 / 1e9;
        self.allowance = (self.allowance + EPISODES_PER_S * seconds).min(MAX_EPISODES);
        let mut waits = self.waits.take(interval.clone(), read_at);
        waits.keep_longest(self.allowance as usize, &interval);
        self.allowance -= waits.episodes.len() as f64;
        waits
    }
}

/// Returns the time of a switch and what it is; `None` for any other record: some are lost.
fn read_switch(record: &Record<'_>) -> Option<(i64, CoreSwitch)> {
    let bytes = record.to_contiguous();
    let time = i64::from_ne_bytes(*bytes.last_chunk::<8>()?);
    let change = match record.misc() {
        misc if misc & OUT == 0 => CoreSwitch::In,
        misc if misc & PREEMPTED != 0 => CoreSwitch::Lost,
        _ => CoreSwitch::Left,
    };
    (record.ty() == SWITCH).then_some((time, change))
}

impl CoreWaits {
    fn add(&mut self, time: i64, change: CoreSwitch) {
        match (change, self.since.take()) {
            (CoreSwitch::Lost, _) => self.since = Some(time),
            (CoreSwitch::In, Some(since)) if time - since >= MIN_WAIT_NS => self.ended.push(since..time),
            (CoreSwitch::In | CoreSwitch::Left, _) => {}
        }
    }

    /// Takes the waits up to the end of an interval, after which the sums were read. What lasts longer is left for the next one.
    fn take(&mut self, interval: Range<i64>, read_at: i64) -> IntervalWaits {
        // One that ended after the sums were read is not in them.
        let unread = self.ended.iter().find(|wait| wait.start < interval.end && wait.end > read_at);
        let since = unread.map(|wait| wait.start).or(self.since).filter(|since| *since < interval.end);
        let all = self.ended.iter().cloned().chain(self.since.map(|since| since..interval.end));
        let cut = all.map(|wait| wait.start.max(interval.start)..wait.end.min(interval.end));
        let mut episodes: Vec<WaitEpisode> = Vec::new();
        for wait in cut.filter(|wait| wait.start < wait.end) {
            let waited_ns = (wait.end - wait.start) as u64;
            match episodes.last_mut().filter(|last| wait.start - last.time.end <= MAX_PAUSE_NS) {
                Some(last) => (last.time.end, last.waited_ns) = (wait.end, last.waited_ns + waited_ns),
                None => episodes.push(WaitEpisode { time: wait, waited_ns }),
            }
        }
        self.ended.retain(|wait| wait.end > interval.end);
        IntervalWaits { episodes, lasting_ns: since.map_or(0, |since| (interval.end - since) as u64) }
    }
}

impl IntervalWaits {
    /// Keeps the longest episodes that leave a part of an interval free.
    fn keep_longest(&mut self, most: usize, interval: &Range<i64>) {
        self.episodes.retain(|WaitEpisode { time, waited_ns }| {
            let outside = (time.start - interval.start) + (interval.end - time.end);
            *waited_ns >= MIN_EPISODE_NS && outside > MAX_PAUSE_NS
        });
        self.episodes.sort_by_key(|episode| Reverse(episode.waited_ns));
        self.episodes.truncate(most);
        self.episodes.sort_by_key(|episode| episode.time.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn episode(from: i64, to: i64, waited: i64) -> WaitEpisode {
        WaitEpisode { time: from * MS..to * MS, waited_ns: (waited * MS) as u64 }
    }

    fn waits(episodes: &[WaitEpisode], lasting_ms: i64) -> IntervalWaits {
        IntervalWaits { episodes: episodes.to_vec(), lasting_ns: (lasting_ms * MS) as u64 }
    }

    #[test]
    fn waits_are_cut_to_intervals_and_go_on_in_the_next_one() {
        let mut known = CoreWaits::default();
        for (time, change) in [
            (10, CoreSwitch::Lost),
            (15, CoreSwitch::In),
            (20, CoreSwitch::Left),
            (40, CoreSwitch::In),
            (50, CoreSwitch::Lost),
            (51, CoreSwitch::In),
            (90, CoreSwitch::Lost),
            (110, CoreSwitch::In),
            (112, CoreSwitch::Lost),
        ] {
            known.add(time * MS, change);
        }
        let mut take = |from: i64, to: i64| known.take(from * MS..to * MS, to * MS);
        assert_eq!(take(0, 100), waits(&[episode(10, 15, 5), episode(50, 51, 1), episode(90, 100, 10)], 10));
        assert_eq!(take(100, 200), waits(&[episode(100, 200, 98)], 88));
        known.add(230 * MS, CoreSwitch::In);
        // The sums were read before the thread got its core.
        assert_eq!(known.take(200 * MS..229 * MS, 229 * MS), waits(&[episode(200, 229, 29)], 117));
        assert_eq!(known.take(229 * MS..300 * MS, 300 * MS), waits(&[episode(229, 230, 1)], 0));
        assert_eq!(known.take(300 * MS..400 * MS, 400 * MS), IntervalWaits::default());
    }

    #[test]
    fn a_core_that_goes_from_hand_to_hand_is_one_episode() {
        let mut known = CoreWaits::default();
        for slice in 0..10 {
            known.add((30 + 6 * slice) * MS, CoreSwitch::Lost);
            known.add((33 + 6 * slice) * MS, CoreSwitch::In);
        }
        known.add(99 * MS, CoreSwitch::Lost);
        let mut found = known.take(0..100 * MS, 100 * MS);
        let mut shorter = found.clone();
        found.keep_longest(4, &(0..100 * MS));
        assert_eq!(found, waits(&[episode(30, 87, 30)], 1), "short ones are in the sums alone");
        shorter.keep_longest(4, &(25 * MS..90 * MS));
        assert_eq!(shorter, waits(&[], 1), "it lasts all the time");
    }
}
