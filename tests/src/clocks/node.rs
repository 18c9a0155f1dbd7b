use crate::synthetic::RandomSource;
use rpd_shard::record::{ClockDomain, ClockSet};
use std::f64::consts::TAU;

/// Nanoseconds of a second.
pub(super) const SECOND: i64 = 1_000_000_000;
/// Seconds before and after the run that clocks are known for.
const MARGIN: i64 = 4;
/// `CLOCK_REALTIME` at true time 0.
const WALL: i64 = 1_760_000_000 * SECOND;

/// The clocks of one node.
#[derive(Clone, Debug)]
pub struct NodeClock {
    /// Its name.
    pub domain: ClockDomain,
    /// RAW and BOOTTIME at true time 0, ns.
    raw: i64,
    boot: i64,
    /// What RAW has gained since, and what BOOTTIME has gained on RAW, ns; at each second from -MARGIN on.
    gained: Vec<f64>,
    steered: Vec<f64>,
    /// REALTIME minus BOOTTIME, ns.
    anchor: i64,
    /// A jump of all clocks: when, ns of true time, and by how much, ns.
    jump: Option<(i64, i64)>,
}

/// What a node's clocks are made of.
pub(super) struct ClockCrystal {
    /// Seconds of the run.
    pub(super) seconds: i64,
    /// ppb in a second's square root.
    pub(super) walk: f64,
    /// Swing of its rate, ppb.
    pub(super) swing: f64,
    /// Whether NTP keeps BOOTTIME near the truth.
    pub(super) steered: bool,
    /// Whether it changes its mind.
    pub(super) ntp_steps: bool,
    /// A jump at this time.
    pub(super) jump_at: Option<i64>,
}

impl NodeClock {
    pub(super) fn new(number: usize, crystal: &ClockCrystal, random: &mut RandomSource) -> NodeClock {
        let ticks = (crystal.seconds + 2 * MARGIN + 1) as usize;
        let fixed = uniform(random) * 40e3 - 20e3;
        let mut rate = fixed;
        let mut gained = vec![0.0; ticks];
        // Not a walk, which is what the merge takes it for: one swing takes two to fifteen minutes.
        let (period, phase) = (120.0 + 780.0 * uniform(random), uniform(random));
        let swung = |tick: usize| crystal.swing * (TAU * (tick as f64 / period + phase)).sin();
        for i in 1..ticks {
            gained[i] = gained[i - 1] + rate + swung(i);
            rate += crystal.walk * normal(random);
        }
        let mut steered = vec![0.0; ticks];
        if crystal.steered {
            let mut rate = 50.0 * normal(random) - fixed;
            let mut next_change = MARGIN as f64 + exponential(random) * 40.0;
            for i in 1..ticks {
                let until = next_change - (i - 1) as f64;
                steered[i] = steered[i - 1] + rate;
                if crystal.ntp_steps && until < 1.0 {
                    let new = rate.clamp(-fixed - 500.0, -fixed + 500.0) + 500.0 * normal(random);
                    steered[i] += (new - rate) * (1.0 - until);
                    rate = new;
                    next_change += exponential(random) * 40.0 + 1.0;
                }
            }
        }
        let jump = crystal.jump_at.map(|at| {
            let size = (10f64.powf(4.5 + 2.0 * uniform(random))) as i64;
            (at, if random.chance(50) { size } else { -size })
        });
        let boot = random.between(0, 90 * 86_400) * SECOND + random.between(0, SECOND);
        let wrong = 1.5e6 * normal(random);
        NodeClock {
            domain: ClockDomain { boot_id: format!("node-{number:04}"), time_namespace: 0 },
            raw: boot - random.between(0, 86_400) * SECOND,
            boot,
            gained,
            steered,
            anchor: WALL - boot + wrong as i64,
            jump,
        }
    }

    /// `CLOCK_MONOTONIC_RAW` at a true time, ns.
    pub fn raw(&self, at: i64) -> i64 {
        self.raw + self.jumped(at) + at + between(&self.gained, at).round() as i64
    }

    /// `CLOCK_BOOTTIME` at a true time, ns.
    pub fn boottime(&self, at: i64) -> i64 {
        let gained = between(&self.gained, at) + between(&self.steered, at);
        self.boot + self.jumped(at) + at + gained.round() as i64
    }

    /// The jump of this clock: true time and size, ns.
    pub fn jump(&self) -> Option<(i64, i64)> {
        self.jump
    }

    fn jumped(&self, at: i64) -> i64 {
        self.jump.map_or(0, |(when, by)| if at >= when { by } else { 0 })
    }

    /// A clock set, as the collector reads it.
    pub(super) fn set(&self, at: i64, random: &mut RandomSource) -> ClockSet {
        let bracket = if random.chance(2) { random.between(1_000, 20_000) } else { random.between(60, 160) };
        let early = |random: &mut RandomSource| at + ((uniform(random) * 0.4 - 0.35) * bracket as f64) as i64;
        let (raw, wall) = (early(random), early(random));
        ClockSet {
            domain: self.domain.clone(),
            boottime: self.boottime(at),
            monotonic_raw: self.raw(raw),
            monotonic: self.boottime(at) - self.boot / 2,
            realtime: self.boottime(wall) + self.anchor,
            bracket,
        }
    }
}

/// The value at a true time, straight between seconds.
fn between(ticks: &[f64], at: i64) -> f64 {
    let at = (at + MARGIN * SECOND).max(0);
    let i = ((at / SECOND) as usize).min(ticks.len() - 2);
    let share = (at - i as i64 * SECOND) as f64 / SECOND as f64;
    ticks[i] + (ticks[i + 1] - ticks[i]) * share
}

/// From 0 to 1, never 0.
pub(super) fn uniform(random: &mut RandomSource) -> f64 {
    ((random.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Mean 0, deviation 1.
pub(super) fn normal(random: &mut RandomSource) -> f64 {
    (-2.0 * uniform(random).ln()).sqrt() * (TAU * uniform(random)).cos()
}

/// Mean 1.
pub(super) fn exponential(random: &mut RandomSource) -> f64 {
    -uniform(random).ln()
}
