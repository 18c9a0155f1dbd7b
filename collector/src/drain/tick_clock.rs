//! Converts ticks of the processor's counter to `CLOCK_BOOTTIME`.
//!
//! The collector reads both clocks together ([`ClockReading`]) whenever it looks at rings, at most every 10 ms, and places what
//! was recorded in between on the straight line through the readings around it. If the kernel changes the rate of its clock
//! by d between two readings that are T apart, a time is wrong by at most d T / 4: 1 ppm and 350 ms, the longest pause of the
//! collector ([`MAX_PAUSE`](super::pause)), are 88 ns. A collector that gets no CPU for longer has no readings for that long.
//! Readings alone are wrong by about 10 ns.
//!
//! Where the line through the last readings misses the next one by far, the clocks have jumped against each other: a virtual
//! machine was moved, or a counter stopped while the machine was suspended. No line goes over a jump.

use crate::host::machine;
use crate::log::warn;
use rpd_ring::ticks;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum age of the last reading when rings are read, ns. Events after it are placed on the line through the last second.
const MAX_AGE_NS: i64 = 10_000_000;
/// Attempts to read both clocks together, of which the fastest counts.
const ATTEMPTS: usize = 7;
/// Maximum number of readings that are kept: more than forty seconds of them. Older events are placed by the oldest.
const MAX_READINGS: usize = 4096;
/// Distance of the two readings through which a line into the future goes, ns.
const BASELINE_NS: i64 = 1_000_000_000;
/// A jump: the clock is further from the line than this, ns.
const JUMP_NS: i64 = 10_000;
/// A jump: also further than 1/n of the time since the last reading. The kernel may slew its clock by as much as a tenth; then
/// the first reading counts as a jump and the next ones give the new rate.
const MAX_SLEW: i64 = 1_000;
/// Time between two readings from which on their rate is as good as that of the last second, ns.
const MIN_BASELINE_NS: i64 = 100_000_000;
/// Pause between the two readings before the first use.
const SETTLE_PAUSE: Duration = Duration::from_millis(1);

/// Both clocks at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClockReading {
    pub(super) ticks: i64,
    /// ns of `CLOCK_BOOTTIME`.
    pub(super) boottime: i64,
}

impl ClockReading {
    /// Reads both clocks now.
    fn now() -> ClockReading {
        let read = || {
            let before = ticks::now_in_order();
            let boottime = machine::boottime();
            let after = ticks::now_in_order();
            let width = after.wrapping_sub(before);
            (width, ClockReading { ticks: before.wrapping_add(width / 2), boottime })
        };
        let (_, best) = (1..ATTEMPTS)
            .map(|_| read())
            .fold(read(), |best, next| if next.0 < best.0 { next } else { best });
        best
    }
}

/// A straight line from a reading on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClockLine {
    from: ClockReading,
    /// ns per tick, in units of 2^-40.
    rate: i64,
}

/// Bits behind the point of a rate.
const RATE_BITS: u32 = 40;

impl ClockLine {
    fn through(from: ClockReading, to: ClockReading) -> Option<ClockLine> {
        let ticks = i128::from(to.ticks) - i128::from(from.ticks);
        let ns = i128::from(to.boottime) - i128::from(from.boottime);
        if ticks <= 0 || ns < 0 {
            return None;
        }
        let rate = i64::try_from((ns << RATE_BITS) / ticks).ok()?;
        Some(ClockLine { from, rate })
    }

    /// Returns the ns of `CLOCK_BOOTTIME` at a time in ticks. Any value of a program gives some time.
    #[inline]
    fn boottime(&self, ticks: i64) -> i64 {
        let passed = i128::from(ticks.wrapping_sub(self.from.ticks)) * i128::from(self.rate);
        self.from.boottime.wrapping_add((passed >> RATE_BITS) as i64)
    }
}

/// A part of the counter's time with one line.
#[derive(Clone, Copy, Debug)]
struct ClockPart {
    /// From this tick on.
    start: i64,
    line: ClockLine,
}

/// The counter against `CLOCK_BOOTTIME`, as far as it is known.
pub(super) struct TickClock {
    /// At least one; none is older than the last jump.
    readings: VecDeque<ClockReading>,
    /// By their starts, at least one. The last one goes into the future.
    parts: VecDeque<ClockPart>,
    /// Rate through the readings; `None` before there are two.
    rate: Option<i64>,
    /// The part of the last conversion: its line, its start and its end.
    current: (ClockLine, i64, i64),
    /// Largest jump that has not been printed, ns.
    jump: Option<i64>,
    /// The first readings were checked.
    is_settled: bool,
}

impl TickClock {
    /// Reads the clocks for the first time.
    pub(super) fn start() -> TickClock {
        TickClock::new(ClockReading::now())
    }

    fn new(first: ClockReading) -> TickClock {
        // One tick per ns, until there is a second reading.
        let line = ClockLine { from: first, rate: 1 << RATE_BITS };
        TickClock {
            readings: VecDeque::from([first]),
            parts: VecDeque::from([ClockPart { start: i64::MIN, line }]),
            rate: None,
            current: (line, 0, 0),
            jump: None,
            is_settled: false,
        }
    }

    /// Checks before the first use that the clocks have not jumped since the start.
    fn settle_by(&mut self, reading: ClockReading, next: ClockReading) {
        let before = self.readings.back().and_then(|first| ClockLine::through(*first, reading));
        let goes_on = |line: ClockLine| jump(&ClockLine { from: reading, ..line }, next).is_none();
        if before.is_some_and(goes_on) {
            self.add(reading);
        } else {
            *self = TickClock { is_settled: true, ..TickClock::new(reading) };
        }
        self.add(next);
    }

    /// Reads the clocks again, unless that was done just now. Called at each look at the rings, and again once it is known how
    /// much of a ring will be read: no event is much younger than the last reading.
    pub(super) fn refresh(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            let reading = ClockReading::now();
            std::thread::sleep(SETTLE_PAUSE);
            return self.settle_by(reading, ClockReading::now());
        }
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else { return };
        let age = match self.rate {
            Some(rate) if last.boottime - first.boottime >= MIN_BASELINE_NS => {
                ClockLine { from: *last, rate }.boottime(ticks::now()) - last.boottime
            }
            _ => MAX_AGE_NS,
        };
        if !(0..MAX_AGE_NS).contains(&age) {
            self.add(ClockReading::now());
        }
    }

    /// Takes in a reading: the last part ends with it, and the next one begins.
    fn add(&mut self, reading: ClockReading) {
        let Some(last) = self.readings.back().copied() else { return };
        let Some(open) = self.parts.pop_back() else { return };
        let between = ClockLine::through(last, reading);
        let off = self.rate.and_then(|rate| jump(&ClockLine { from: last, rate }, reading));
        match between {
            Some(between) if off.is_none() => {
                self.parts.push_back(ClockPart { start: open.start, line: between });
                self.readings.push_back(reading);
                self.rate = self.rate_until(reading).or(Some(between.rate));
                self.begin_part(reading, reading.ticks, between.rate);
            }
            // No time has passed on either clock.
            _ if reading == last => self.parts.push_back(open),
            _ => {
                let off =
                    off.unwrap_or_else(|| reading.boottime.saturating_sub(last.boottime).saturating_abs());
                self.jump = self.jump.max(Some(off));
                self.readings = VecDeque::from([reading]);
                if reading.ticks > open.start {
                    // Each time is placed by the nearer reading.
                    self.parts.push_back(open);
                    self.begin_part(
                        reading,
                        last.ticks.midpoint(reading.ticks).max(open.start),
                        open.line.rate,
                    );
                } else {
                    // The counter restarted: its earlier values may occur again.
                    self.parts.clear();
                    self.begin_part(reading, i64::MIN, open.line.rate);
                }
                // The next reading gives a new rate, and may be anywhere.
                self.rate = None;
            }
        }
    }

    /// Begins the part of a new reading, which goes into the future.
    fn begin_part(&mut self, reading: ClockReading, start: i64, rate: i64) {
        let line = ClockLine { from: reading, rate: self.rate.unwrap_or(rate) };
        self.parts.push_back(ClockPart { start, line });
        // The part before has another end now.
        self.current = (line, 0, 0);
        self.readings.drain(..self.readings.len().saturating_sub(MAX_READINGS));
        self.parts.drain(..self.parts.len().saturating_sub(MAX_READINGS));
    }

    /// Returns the rate over about the last second.
    fn rate_until(&self, reading: ClockReading) -> Option<i64> {
        let is_far = |from: &&ClockReading| reading.boottime.saturating_sub(from.boottime) >= BASELINE_NS;
        let from = self.readings.iter().rev().find(is_far).or(self.readings.front())?;
        ClockLine::through(*from, reading).map(|line| line.rate)
    }

    /// Returns the ns of `CLOCK_BOOTTIME` at a time in ticks.
    #[inline]
    pub(super) fn boottime(&mut self, ticks: i64) -> i64 {
        let (line, start, end) = self.current;
        if ticks >= start && ticks < end {
            return line.boottime(ticks);
        }
        self.find(ticks)
    }

    #[cold]
    fn find(&mut self, ticks: i64) -> i64 {
        let next = self.parts.partition_point(|part| part.start <= ticks).max(1);
        if let Some(part) = self.parts.get(next - 1) {
            let end = self.parts.get(next).map_or(i64::MAX, |next| next.start);
            self.current = (part.line, part.start, end);
        }
        self.current.0.boottime(ticks)
    }

    /// Prints the largest jump of `CLOCK_BOOTTIME` against the counter since the last call.
    pub(super) fn warn_of_jump(&mut self) {
        if let Some(jump) = self.jump.take() {
            warn(format_args!(
                "warning: CLOCK_BOOTTIME of this node jumped by {:.3} ms against the counter of its processors, as after a \
                 migration of a virtual machine; events around the jump are uncertain by that; --clock boottime records the \
                 clock itself",
                jump as f64 / 1e6
            ));
        }
    }
}

/// The times of a ring's records.
pub(super) struct RecordTimes {
    has_ticks: bool,
    /// The last one, ns of `CLOCK_BOOTTIME`.
    last: i64,
}

impl RecordTimes {
    pub(super) fn new(has_ticks: bool) -> RecordTimes {
        RecordTimes { has_ticks, last: i64::MIN }
    }

    /// Whether they are ticks.
    pub(super) fn has_ticks(&self) -> bool {
        self.has_ticks
    }

    /// Returns the ns of `CLOCK_BOOTTIME` of the next record.
    #[inline]
    pub(super) fn boottime(&mut self, time: i64, clock: &mut TickClock) -> i64 {
        if !self.has_ticks {
            return time;
        }
        // Two lines meet in a reading, but for the ns by which the older one went past it.
        self.last = self.last.max(clock.boottime(time));
        self.last
    }
}

/// Returns by how much the clocks moved against each other, ns, if that is more than any rate of the kernel explains.
fn jump(line: &ClockLine, reading: ClockReading) -> Option<i64> {
    let passed = reading.boottime.saturating_sub(line.from.boottime).saturating_abs();
    let off = line.boottime(reading.ticks).saturating_sub(reading.boottime).saturating_abs();
    (off > JUMP_NS.max(passed / MAX_SLEW)).then_some(off)
}

#[cfg(test)]
mod tests {
    use super::super::pause::MAX_PAUSE;
    use super::*;
    use proptest::prelude::*;

    /// A counter of 2.4 GHz and a clock whose rate changes: since which tick, ns there, and its ns per tick.
    struct ModelClock(Vec<(i64, f64, f64)>);

    impl ModelClock {
        /// `changes`: ticks, and parts per million from there on.
        fn new(changes: &[(i64, f64)]) -> ModelClock {
            let mut rows = vec![(0, 5e12, 1.0 / 2.4)];
            for (at, ppm) in changes {
                let (from, ns, rate) = rows[rows.len() - 1];
                rows.push((*at, ns + (at - from) as f64 * rate, (1.0 + ppm * 1e-6) / 2.4));
            }
            ModelClock(rows)
        }

        fn at(&self, ticks: i64) -> i64 {
            let (from, ns, rate) = self.0.iter().rev().find(|row| row.0 <= ticks).unwrap();
            // Differences are small, so that no digits are lost.
            *ns as i64 + ((ticks - from) as f64 * rate) as i64
        }

        fn reading(&self, ticks: i64) -> ClockReading {
            ClockReading { ticks, boottime: self.at(ticks) }
        }
    }

    const SECOND: i64 = 2_400_000_000;
    /// Ticks in the longest pause of the collector.
    const LONGEST: i64 = SECOND / 1_000 * MAX_PAUSE.as_millis() as i64;

    /// Readings every so many ticks, and the worst error of the times between them, each of which is asked for after the next
    /// reading.
    fn worst_error(model: &ModelClock, distance: i64, until: i64) -> i64 {
        let mut clock = TickClock::new(model.reading(0));
        let mut worst = 0;
        for at in (distance..until).step_by(distance as usize) {
            clock.add(model.reading(at));
            for part in 0..20 {
                let ticks = at - distance + part * distance / 20;
                worst = worst.max((clock.boottime(ticks) - model.at(ticks)).abs());
            }
        }
        worst
    }

    #[test]
    fn a_time_is_within_100_ns_of_a_clock_that_is_slewed() {
        // A constant rate costs nothing, whatever it is.
        for ppm in [0.0, 1.0, -500.0] {
            let worst = worst_error(&ModelClock::new(&[(1, ppm)]), SECOND / 2, 20 * SECOND);
            assert!(worst <= 3, "{worst} ns at {ppm} ppm");
        }
        // A change of 1 ppm in the middle of readings that are 10 ms, 100 ms and the longest pause apart.
        for (distance, most) in [(SECOND / 100, 6), (SECOND / 10, 28), (LONGEST, 100)] {
            let worst = worst_error(&ModelClock::new(&[(distance * 7 / 2, 1.0)]), distance, 5 * SECOND);
            assert!(worst <= most, "{worst} ns, readings every {distance} ticks");
        }
    }

    #[test]
    fn the_youngest_events_are_placed_on_the_line_of_the_last_second() {
        let model = ModelClock::new(&[]);
        let mut clock = TickClock::new(model.reading(0));
        // Readings are wrong by up to 11 ns.
        for i in 1..200 {
            let error = i * 7 % 23 - 11;
            let reading = model.reading(i * SECOND / 100);
            clock.add(ClockReading { boottime: reading.boottime + error, ..reading });
            let ticks = (i + 1) * SECOND / 100;
            assert!(i < 3 || (clock.boottime(ticks) - model.at(ticks)).abs() < 60, "{i}");
        }
    }

    #[test]
    fn a_jump_is_reported_and_each_event_is_placed_by_the_nearer_reading() {
        let model = ModelClock::new(&[]);
        let jumped = |ticks: i64| ClockReading { boottime: model.at(ticks) + 5_000_000, ticks };
        let mut clock = TickClock::new(model.reading(0));
        (1..50).for_each(|i| clock.add(model.reading(i * SECOND / 10)));
        assert_eq!(clock.jump.take(), None);
        (50..60).for_each(|i| clock.add(jumped(i * SECOND / 10)));
        let jump = clock.jump.take().unwrap();
        assert!((4_999_900..=5_000_100).contains(&jump), "{jump}");
        let off = |clock: &mut TickClock, tenths: f64| {
            let ticks = (tenths * SECOND as f64 / 10.0) as i64;
            (clock.boottime(ticks) - model.at(ticks) + 500).div_euclid(1_000)
        };
        let all = [48.5, 49.4, 49.6, 50.1, 58.5, 59.9].map(|tenths| off(&mut clock, tenths));
        assert_eq!(all, [0, 0, 5_000, 5_000, 5_000, 5_000]);
    }

    /// A rate change beyond the threshold counts as one jump, and the next readings give the new rate.
    #[test]
    fn a_lasting_rate_is_one_jump_at_most() {
        for ppm in [2_000.0, 10_000.0, -80_000.0] {
            let model = ModelClock::new(&[(5 * SECOND, ppm)]);
            let mut clock = TickClock::new(model.reading(0));
            let mut jumps = 0;
            for i in 1..300 {
                clock.add(model.reading(i * SECOND / 10));
                jumps += usize::from(clock.jump.take().is_some());
                let ticks = i * SECOND / 10 - SECOND / 20;
                assert!(i < 53 || (clock.boottime(ticks) - model.at(ticks)).abs() < 10, "{ppm}, {i}");
            }
            assert!(jumps <= 1, "{jumps} jumps at {ppm} ppm");
        }
    }

    /// On a suspended machine the counter restarts or stops while `CLOCK_BOOTTIME` continues.
    #[test]
    fn after_a_suspension_times_are_right_again() {
        const HOUR: i64 = 3_600_000_000_000;
        let model = ModelClock::new(&[]);
        for (ticks_lost, is_first) in [(20 * SECOND, false), (0, false), (0, true)] {
            let later =
                |ticks: i64| ClockReading { ticks: ticks - ticks_lost, boottime: model.at(ticks) + HOUR };
            let mut clock = TickClock::new(model.reading(0));
            if is_first {
                clock.settle_by(later(20 * SECOND), later(20 * SECOND + SECOND / 1_000));
            } else {
                (1..200).for_each(|i| clock.add(model.reading(i * SECOND / 10)));
            }
            (201..300).for_each(|i| clock.add(later(i * SECOND / 10)));
            assert_eq!(clock.jump.take().is_some(), !is_first);
            for i in 202..299 {
                let ticks = i * SECOND / 10 + SECOND / 20;
                let off = clock.boottime(ticks - ticks_lost) - later(ticks).boottime;
                assert!(off.abs() < 10, "{off} ns at {i}, {ticks_lost} ticks lost");
            }
        }
    }

    /// Between the readings of an idle collector.
    #[test]
    fn the_first_events_after_hours_are_within_100_ns() {
        let change = 3_600 * SECOND / LONGEST * LONGEST + LONGEST / 2;
        let model = ModelClock::new(&[(change, 1.0)]);
        let mut clock = TickClock::new(model.reading(0));
        (1..change / LONGEST + 20).for_each(|i| clock.add(model.reading(i * LONGEST)));
        let all = (0..2_000).map(|i| change - 2 * SECOND + i * SECOND / 400);
        let worst = all.map(|ticks| (clock.boottime(ticks) - model.at(ticks)).abs()).max();
        assert!(worst.is_some_and(|worst| (50..=100).contains(&worst)), "{worst:?}");
    }

    proptest! {
        /// Any readings and any ticks give some time; later ticks of a sound clock are no earlier times.
        #[test]
        fn nonsense_is_survived(readings in proptest::collection::vec(any::<(i64, i64)>(), 1..40),
                                ticks in proptest::collection::vec(any::<i64>(), 1..40)) {
            let mut clock = TickClock::new(ClockReading { ticks: 0, boottime: 0 });
            for (ticks, boottime) in readings {
                clock.add(ClockReading { ticks, boottime });
            }
            ticks.into_iter().for_each(|ticks| { clock.boottime(ticks); });
        }

        #[test]
        fn later_ticks_are_later_times(steps in proptest::collection::vec((1_000i64..SECOND, -11i64..11), 2..60),
                                       mut asked in proptest::collection::vec(0i64..30 * SECOND, 2..60)) {
            let model = ModelClock::new(&[(SECOND, 3.0), (5 * SECOND, -4.0)]);
            let mut clock = TickClock::new(model.reading(0));
            let mut at = 0;
            for (step, error) in steps {
                at += step;
                let reading = model.reading(at);
                clock.add(ClockReading { boottime: reading.boottime + error, ..reading });
            }
            asked.sort_unstable();
            let times: Vec<i64> = asked.iter().map(|ticks| clock.boottime(*ticks)).collect();
            prop_assert!(times.is_sorted());
        }
    }
}
