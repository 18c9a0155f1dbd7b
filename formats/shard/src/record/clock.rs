use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Of a job of today no wall clock shows less, ns: in the year 2001. Less is no time of day, or one in other units.
const FIRST_WALL_TIME: i64 = 1_000_000_000_000_000_000;
/// Wall clocks of nodes are wrong by less than that.
const WRONG_BY: Duration = Duration::from_secs(86_400);

/// A Linux clock that times can be stamped with.
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

/// Whether a wall clock can have shown a time, ns since 1970, by the clock of this machine.
pub fn is_wall_time(ns: i64) -> bool {
    let latest = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + WRONG_BY;
    ns >= FIRST_WALL_TIME && i128::from(ns) <= latest.as_nanos() as i128
}

/// Processes that read the same clocks: one boot of one node, one time namespace. Never the host name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClockDomain {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/time`, 0 where the kernel has none.
    pub time_namespace: u64,
}

/// The clocks of one domain at one moment, all in ns. Read as BOOTTIME, MONOTONIC_RAW, MONOTONIC,
/// REALTIME, BOOTTIME; the others are taken to be at the middle of the two BOOTTIME readings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockSet {
    /// Whose clocks.
    pub domain: ClockDomain,
    /// Middle of the two readings of `CLOCK_BOOTTIME`.
    pub boottime: i64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw: i64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// `CLOCK_REALTIME`.
    pub realtime: i64,
    /// Distance of the two readings of `CLOCK_BOOTTIME`: the set is exact to half of it.
    pub bracket: i64,
}

/// One exchange of two packets between two clock domains, ns of each side's `CLOCK_MONOTONIC_RAW`.
///
/// The clock of the answerer is ahead of that of the prober by `((t2 - t1) + (t3 - t4)) / 2`, and no more
/// than half of the round trip off from that, whatever the network did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// The prober sends.
    pub t1: i64,
    /// The answerer has received.
    pub t2: i64,
    /// The answerer sends.
    pub t3: i64,
    /// The prober has received.
    pub t4: i64,
}

impl Probe {
    /// Time on the way, both ways together, ns. `None` where it is negative or no number of 64 bits.
    pub fn round_trip(&self) -> Option<i64> {
        let away = self.t4.checked_sub(self.t1).filter(|ns| *ns >= 0)?;
        let there = self.t3.checked_sub(self.t2).filter(|ns| *ns >= 0)?;
        away.checked_sub(there).filter(|ns| *ns >= 0)
    }

    /// By how much the clock of the answerer is ahead, ns, rounded down, within 64 bits.
    pub fn offset(&self) -> i64 {
        let (there, back) =
            (i128::from(self.t2) - i128::from(self.t1), i128::from(self.t3) - i128::from(self.t4));
        ((there + back) >> 1).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// The best probes of one burst between two clock domains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeBurst {
    /// The prober, which read t1 and t4.
    pub from: ClockDomain,
    /// The answering agent, which read t2 and t3.
    pub to: ClockDomain,
    /// Probes that were sent.
    pub sent: u32,
    /// Probes that were answered in time.
    pub answered: u32,
    /// Median absolute deviation of the offsets of all that were answered, ns.
    pub spread: i64,
    /// Those with the shortest round trips, shortest first: 1 to [`ProbeBurst::MOST_KEPT`].
    pub best: Vec<Probe>,
    /// Whether the kernels of both nodes noted t2 and t4 as the packets arrived; else the programs read them as they
    /// woke up. The kind of the record distinguishes them.
    #[serde(skip)]
    pub kernel_times: bool,
}

impl ProbeBurst {
    /// Probes that are kept of a burst.
    pub const MOST_KEPT: usize = 8;
    /// Longest boot id; the kernel's have 36 bytes.
    const MAX_BOOT_ID: usize = 256;

    /// Whether it is as described: a reader takes no other.
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
        // The answerer is 1000 ahead; 40 there, 20 back, 7 in between.
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
