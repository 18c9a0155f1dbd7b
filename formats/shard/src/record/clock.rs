use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Smallest wall clock time of a current job, ns since 1970: in the year 2001. A smaller value is not a wall clock
/// time, or has another unit.
const FIRST_WALL_TIME: i64 = 1_000_000_000_000_000_000;
/// Maximum error of the wall clock of a node.
const MAX_CLOCK_ERROR: Duration = Duration::from_secs(86_400);

/// A Linux clock that timestamps can come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Clock {
    /// `CLOCK_BOOTTIME`: RocPD, rocprofiler-sdk, rpd.
    Boottime,
    /// `CLOCK_MONOTONIC`: legacy `.rpd`.
    Monotonic,
    /// `CLOCK_REALTIME`: Kineto.
    Realtime,
}

impl Clock {
    /// Name as in `clock_gettime(2)`.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Boottime => "CLOCK_BOOTTIME",
            Clock::Monotonic => "CLOCK_MONOTONIC",
            Clock::Realtime => "CLOCK_REALTIME",
        }
    }
}

/// Returns whether a time, ns since 1970, is plausible as wall clock time, judged by the clock of this machine.
pub fn is_wall_time(ns: i64) -> bool {
    let latest = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + MAX_CLOCK_ERROR;
    ns >= FIRST_WALL_TIME && i128::from(ns) <= latest.as_nanos() as i128
}

/// Identifies processes that read the same clocks: one boot of one node and one time namespace. Never uses the host
/// name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClockDomain {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/time`, 0 if the kernel has no time namespaces.
    pub time_namespace: u64,
}

/// All clocks of one domain at one moment, ns. They are read in the order BOOTTIME, MONOTONIC_RAW, MONOTONIC,
/// REALTIME, BOOTTIME. The three in between count as read at the middle of the two BOOTTIME readings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockSet {
    /// Domain of the clocks.
    pub domain: ClockDomain,
    /// Middle of the two readings of `CLOCK_BOOTTIME`.
    pub boottime: i64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw: i64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// `CLOCK_REALTIME`.
    pub realtime: i64,
    /// Time between the two readings of `CLOCK_BOOTTIME`; the error of the set is at most half of it.
    pub bracket: i64,
}

/// One exchange of two packets between two clock domains, ns of each side's `CLOCK_MONOTONIC_RAW`.
///
/// The clock of the answerer is ahead of that of the prober by `((t2 - t1) + (t3 - t4)) / 2`. The error is at most
/// half of the round trip, whatever the network did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// Time when the prober sends.
    pub t1: i64,
    /// Time when the answerer has received.
    pub t2: i64,
    /// Time when the answerer sends.
    pub t3: i64,
    /// Time when the prober has received.
    pub t4: i64,
}

impl Probe {
    /// Returns the transit time of both directions together, ns. `None` if it is negative or exceeds 64 bits.
    pub fn round_trip(&self) -> Option<i64> {
        let away = self.t4.checked_sub(self.t1).filter(|ns| *ns >= 0)?;
        let there = self.t3.checked_sub(self.t2).filter(|ns| *ns >= 0)?;
        away.checked_sub(there).filter(|ns| *ns >= 0)
    }

    /// Returns how far the clock of the answerer is ahead, ns, rounded down and clamped to 64 bits.
    pub fn offset(&self) -> i64 {
        let (there, back) =
            (i128::from(self.t2) - i128::from(self.t1), i128::from(self.t3) - i128::from(self.t4));
        ((there + back) >> 1).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// The best probes of one probe burst between two clock domains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeBurst {
    /// The prober, which read t1 and t4.
    pub from: ClockDomain,
    /// The answering agent, which read t2 and t3.
    pub to: ClockDomain,
    /// Number of probes that were sent.
    pub sent: u32,
    /// Number of probes that were answered in time.
    pub answered: u32,
    /// Median absolute deviation of the offsets of all answered probes, ns.
    pub spread: i64,
    /// The probes with the shortest round trips, shortest first: 1 to [`ProbeBurst::MOST_KEPT`].
    pub best: Vec<Probe>,
    /// Whether the kernels of both nodes recorded t2 and t4 when the packets arrived. Otherwise the programs read
    /// the clock after they woke up. The kind of the record distinguishes the two.
    #[serde(skip)]
    pub kernel_times: bool,
}

impl ProbeBurst {
    /// Maximum number of probes that are kept of a burst.
    pub const MOST_KEPT: usize = 8;
    /// Maximum bytes of a boot id; those of the kernel have 36.
    const MAX_BOOT_ID: usize = 256;

    /// Returns whether the burst satisfies the documented bounds. Readers accept no other burst.
    pub fn is_sound(&self) -> bool {
        let trips: Option<Vec<i64>> = self.best.iter().map(Probe::round_trip).collect();
        (1..=ProbeBurst::MOST_KEPT).contains(&self.best.len())
            && trips.is_some_and(|trips| trips.is_sorted())
            && self.best.len() <= self.answered as usize
            && self.answered <= self.sent
            && self.spread >= 0
            && self.from != self.to
            && [&self.from, &self.to].iter().all(|domain| domain.boot_id.len() <= ProbeBurst::MAX_BOOT_ID)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(best: Vec<Probe>) -> ProbeBurst {
        let domain = |time_namespace| ClockDomain { boot_id: "b".into(), time_namespace };
        ProbeBurst {
            from: domain(1),
            to: domain(2),
            sent: 20,
            answered: 9,
            spread: 3,
            best,
            kernel_times: false,
        }
    }

    fn probe(round_trip: i64) -> Probe {
        Probe { t1: 0, t2: 700, t3: 710, t4: round_trip + 10 }
    }

    #[test]
    fn offset_and_round_trip_are_those_of_the_four_times() {
        // The answerer is 1000 ns ahead; the packets take 40 and 20 ns, the answerer 7 ns.
        let ahead = Probe { t1: 100, t2: 1140, t3: 1147, t4: 167 };
        assert_eq!((ahead.offset(), ahead.round_trip()), (1010, Some(60)));
        let far = Probe { t1: i64::MIN, t2: i64::MAX, t3: i64::MAX, t4: i64::MIN };
        assert_eq!((far.offset(), far.round_trip()), (i64::MAX, Some(0)));
        assert_eq!(Probe { t1: i64::MIN, t2: 0, t3: 0, t4: 1 }.round_trip(), None);
        assert_eq!(Probe { t1: 5, t2: 0, t3: 0, t4: 4 }.round_trip(), None);
    }

    #[test]
    fn a_burst_that_contradicts_itself_is_not_sound() {
        assert!(burst(vec![probe(5), probe(5), probe(9)]).is_sound());
        assert!(!burst(Vec::new()).is_sound());
        assert!(!burst(vec![probe(5); 9]).is_sound());
        assert!(!burst(vec![probe(6), probe(5)]).is_sound());
        assert!(!burst(vec![probe(-1)]).is_sound());
        let good = burst(vec![probe(5); 3]);
        assert!(!ProbeBurst { answered: 2, ..good.clone() }.is_sound());
        assert!(!ProbeBurst { sent: 8, ..good.clone() }.is_sound());
        assert!(!ProbeBurst { spread: -1, ..good.clone() }.is_sound());
        assert!(!ProbeBurst { to: good.from.clone(), ..good.clone() }.is_sound());
        let long = ClockDomain { boot_id: "b".repeat(300), time_namespace: 0 };
        assert!(!ProbeBurst { to: long, ..good }.is_sound());
    }
}
