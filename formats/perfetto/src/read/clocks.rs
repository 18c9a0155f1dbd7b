//! Converts the times of packets to ns of one clock.
//!
//! A packet states the clock of its time: a system clock (1 to 6), or a clock that a snapshot defines for one
//! sequence (64 to 127) or for all. Clocks of snapshots may count in units and by differences. All times of a file
//! are converted to one clock. This is BOOTTIME if the file relates its clock to BOOTTIME, as Perfetto does;
//! otherwise the first clock of the file.

use super::wire::{Fields, MalformedField};
use rpd_shard::record::Clock;
use std::collections::HashMap;

const REALTIME: u32 = 1;
const REALTIME_COARSE: u32 = 2;
const MONOTONIC: u32 = 3;
const MONOTONIC_COARSE: u32 = 4;
const MONOTONIC_RAW: u32 = 5;
const BOOTTIME: u32 = 6;
/// System clocks to which other clocks are related, in order of preference.
const TIED_TO: [u32; 4] = [BOOTTIME, MONOTONIC, REALTIME, MONOTONIC_RAW];
/// Ids of clocks that belong to one sequence.
const OF_SEQUENCE: std::ops::Range<u32> = 64..128;
/// Maximum number of clocks that snapshots define; the second constant limits the clocks of one snapshot.
const MAX_DEFINED: usize = 1 << 16;
const MAX_CLOCKS: usize = 64;
/// Maximum number of kept readings of all clocks.
const MAX_READINGS: usize = 4096;

/// The system clocks at one moment, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockReading {
    pub(super) boottime: i64,
    pub(super) monotonic: i64,
    pub(super) monotonic_raw: i64,
    pub(super) realtime: i64,
}

/// A clock that a snapshot defines.
#[derive(Clone, Copy, Debug)]
struct DefinedClock {
    unit: i64,
    is_incremental: bool,
    /// Time of this clock in ns at the last packet, or at the snapshot.
    last: i64,
    /// Time of this clock at the snapshot; `tied` is the time of a system clock at the same moment.
    at: i64,
    tied: Option<(u32, i64)>,
}

/// The clocks of a file.
#[derive(Debug, Default)]
pub(super) struct TraceClocks {
    defined: HashMap<(u32, u32), DefinedClock>,
    /// Offsets that convert times of the first clock to times of the second one, in ns.
    offsets: HashMap<(u32, u32), i64>,
    /// The clock of packets that do not state one.
    primary: Option<u32>,
    /// The clock to which all times are converted.
    target: Option<u32>,
    pub(super) readings: Vec<ClockReading>,
}

/// The time of one clock in a snapshot.
struct ClockStamp {
    id: u32,
    /// Time in units of the clock.
    time: i64,
    is_incremental: bool,
    unit: i64,
}

impl TraceClocks {
    /// Returns the clock of all converted times.
    pub(super) fn target(&self) -> Clock {
        match self.target {
            Some(MONOTONIC) => Clock::Monotonic,
            Some(REALTIME) => Clock::Realtime,
            _ => Clock::Boottime,
        }
    }

    /// Records the offsets between clocks. Must be called for all snapshots before the first time is converted.
    pub(super) fn survey(&mut self, snapshot: Fields<'_>) -> Result<(), MalformedField> {
        let stamps = self.stamps(snapshot)?;
        for (from, to, offset) in offsets(&stamps) {
            self.offsets.entry((from, to)).or_insert(offset);
        }
        let of = |id| stamps.iter().find(|stamp| stamp.id == id).map(|stamp| stamp.time);
        if let (Some(boottime), Some(monotonic), Some(monotonic_raw), Some(realtime)) =
            (of(BOOTTIME), of(MONOTONIC), of(MONOTONIC_RAW), of(REALTIME))
            && self.readings.len() < MAX_READINGS
        {
            self.readings.push(ClockReading { boottime, monotonic, monotonic_raw, realtime });
        }
        Ok(())
    }

    /// Reads a snapshot of a sequence.
    pub(super) fn snapshot(&mut self, sequence: u32, snapshot: Fields<'_>) -> Result<(), MalformedField> {
        let stamps = self.stamps(snapshot)?;
        self.offsets.extend(offsets(&stamps).map(|(from, to, offset)| ((from, to), offset)));
        let find = |id: &u32| Some((*id, stamps.iter().find(|stamp| stamp.id == *id)?.time));
        let tied = TIED_TO.iter().find_map(find);
        for stamp in stamps.iter().filter(|stamp| stamp.id > BOOTTIME) {
            let key = (if OF_SEQUENCE.contains(&stamp.id) { sequence } else { 0 }, stamp.id);
            let at = stamp.time.saturating_mul(stamp.unit);
            let defined =
                DefinedClock { unit: stamp.unit, is_incremental: stamp.is_incremental, last: at, at, tied };
            if self.defined.len() < MAX_DEFINED || self.defined.contains_key(&key) {
                self.defined.insert(key, defined);
            }
        }
        Ok(())
    }

    fn stamps(&mut self, snapshot: Fields<'_>) -> Result<Vec<ClockStamp>, MalformedField> {
        let mut stamps = Vec::new();
        for field in snapshot {
            match field? {
                (1, clock) if stamps.len() < MAX_CLOCKS => {
                    let mut stamp = ClockStamp { id: 0, time: 0, is_incremental: false, unit: 1 };
                    for field in clock.message()? {
                        match field? {
                            (1, id) => stamp.id = id.uint32()?,
                            (2, time) => {
                                stamp.time = i64::try_from(time.uint()?).map_err(|_| MalformedField)?
                            }
                            (3, is) => stamp.is_incremental = is.uint()? != 0,
                            (4, unit) => stamp.unit = unit.int()?.max(1),
                            _ => {}
                        }
                    }
                    stamps.push(stamp);
                }
                (2, primary) => self.primary = Some(primary.uint32()?),
                _ => {}
            }
        }
        Ok(stamps)
    }

    /// Converts the time of a packet to ns of [`TraceClocks::target`]; returns `None` if no snapshot relates the
    /// two clocks.
    pub(super) fn time(&mut self, sequence: u32, clock: Option<u32>, timestamp: u64) -> Option<i64> {
        let clock = clock.or(self.primary).unwrap_or(BOOTTIME);
        let timestamp = i64::try_from(timestamp).ok()?;
        let (clock, time) = match clock {
            REALTIME_COARSE => (REALTIME, timestamp),
            MONOTONIC_COARSE => (MONOTONIC, timestamp),
            1..=BOOTTIME => (clock, timestamp),
            _ => {
                let key = (if OF_SEQUENCE.contains(&clock) { sequence } else { 0 }, clock);
                let defined = self.defined.get_mut(&key)?;
                let mut time = timestamp.checked_mul(defined.unit)?;
                if defined.is_incremental {
                    time = time.checked_add(defined.last)?;
                    defined.last = time;
                }
                let (tied, then) = defined.tied?;
                (tied, then.checked_add(time.checked_sub(defined.at)?)?)
            }
        };
        let target = match self.target {
            Some(target) => target,
            None => {
                let to_boottime = clock == BOOTTIME || self.offsets.contains_key(&(clock, BOOTTIME));
                let target = if to_boottime { BOOTTIME } else { clock };
                if target == MONOTONIC_RAW {
                    return None;
                }
                *self.target.insert(target)
            }
        };
        if clock == target {
            return Some(time);
        }
        time.checked_add(*self.offsets.get(&(clock, target))?)
    }
}

/// Returns the offsets between the system clocks in a snapshot.
fn offsets(stamps: &[ClockStamp]) -> impl Iterator<Item = (u32, u32, i64)> {
    let system = || stamps.iter().filter(|stamp| TIED_TO.contains(&stamp.id));
    system().flat_map(move |from| system().map(move |to| (from.id, to.id, to.time.saturating_sub(from.time))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{message, uint};

    fn snapshot(clocks: &[(u64, u64, bool, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, time, is_incremental, unit) in clocks {
            message(&mut out, 1, |out| {
                uint(out, 1, *id);
                uint(out, 2, *time);
                uint(out, 3, (*is_incremental).into());
                uint(out, 4, *unit);
            });
        }
        out
    }

    #[test]
    fn clocks_of_a_sequence_count_by_differences_and_in_units() {
        let mut clocks = TraceClocks::default();
        let bytes = snapshot(&[(6, 1_000_000, false, 1), (64, 5, true, 1000), (65, 7, false, 1000)]);
        clocks.snapshot(3, Fields(&bytes)).unwrap();
        assert_eq!(clocks.time(3, Some(64), 2), Some(1_002_000));
        assert_eq!(clocks.time(3, Some(64), 1), Some(1_003_000));
        assert_eq!(clocks.time(3, Some(65), 9), Some(1_002_000));
        assert_eq!(clocks.time(3, None, 55), Some(55));
        assert_eq!(clocks.time(4, Some(64), 2), None, "another sequence");
        assert_eq!(clocks.target(), Clock::Boottime);
    }

    #[test]
    fn all_times_become_those_of_one_clock() {
        let mut clocks = TraceClocks::default();
        assert_eq!(clocks.time(1, Some(3), 10), Some(10));
        assert_eq!((clocks.target(), clocks.time(1, Some(6), 10)), (Clock::Monotonic, None));
        let mut clocks = TraceClocks::default();
        let bytes =
            snapshot(&[(6, 100, false, 1), (3, 70, false, 1), (1, 5_000, false, 1), (5, 60, false, 1)]);
        clocks.survey(Fields(&bytes)).unwrap();
        assert_eq!(
            [3, 4, 1, 5, 6].map(|id| clocks.time(1, Some(id), 80)),
            [Some(110), Some(110), Some(-4820), Some(120), Some(80)]
        );
        let reading = ClockReading { boottime: 100, monotonic: 70, monotonic_raw: 60, realtime: 5_000 };
        assert_eq!((clocks.target(), clocks.readings.as_slice()), (Clock::Boottime, &[reading][..]));
        assert_eq!(clocks.time(1, Some(6), u64::MAX), None);
    }
}
