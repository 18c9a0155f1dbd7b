//! Rounds of measurements, and what they say together.

use rpd_tests::measure::{RatioInterval, median};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// p50 and p99 of a round's sums, us.
pub(crate) type Percentiles = [f64; 2];

/// What a round has found: one job alone, one under rpd-collect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) ranks: usize,
    pub(crate) alone: Percentiles,
    pub(crate) traced: Percentiles,
    /// Load average of the last minute when it began.
    pub(crate) load: f64,
}

/// All rounds so far: those of this call, and those of a file that it goes on with.
pub(crate) struct Rounds {
    all: Vec<Round>,
    file: Option<PathBuf>,
}

impl Rounds {
    pub(crate) fn open(file: Option<PathBuf>) -> Result<Rounds, String> {
        let mut all = Vec::new();
        if let Some(path) = file.as_ref().filter(|path| path.exists()) {
            let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            for line in text.lines() {
                let round = read(line).ok_or_else(|| format!("{}: no round: {line:?}", path.display()))?;
                all.push(round);
            }
        }
        Ok(Rounds { all, file })
    }

    pub(crate) fn add(&mut self, round: Round) -> Result<(), String> {
        self.all.push(round);
        let Some(path) = &self.file else { return Ok(()) };
        let Round { ranks, alone, traced, load } = round;
        let line = format!("{ranks} {} {} {} {} {load}\n", alone[0], alone[1], traced[0], traced[1]);
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Prints what the rounds of jobs of so many ranks say. Whether p99 is within the aim.
    pub(crate) fn print(&self, ranks: usize, most: f64) -> bool {
        let rounds: Vec<&Round> = self.all.iter().filter(|round| round.ranks == ranks).collect();
        let load = RatioInterval::of(rounds.iter().map(|round| round.load)).mean;
        println!("\nMPI_Allreduce of 8 bytes, {ranks} ranks, {} rounds, load {load:.1}", rounds.len());
        let [mut p99, mut low, mut high] = [f64::NAN; 3];
        for (at, name) in ["p50", "p99"].into_iter().enumerate() {
            let alone = median(rounds.iter().map(|round| round.alone[at]));
            let traced = median(rounds.iter().map(|round| round.traced[at]));
            let ratio = Ratio::of(rounds.iter().map(|round| round.traced[at] / round.alone[at]));
            println!("{name}: {traced:.1} us, alone {alone:.1} (medians); ratio {ratio}");
            (p99, low, high) = (ratio.mean, ratio.low, ratio.high);
        }
        let holds = p99 <= most;
        let sure = if (low..=high).contains(&most) { ", but the interval has both" } else { "" };
        println!("aim: p99 at most {:.0} % worse: {}{sure}", 100.0 * (most - 1.0), verdict(holds));
        holds
    }
}

pub(crate) fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSED" }
}

fn read(line: &str) -> Option<Round> {
    let mut words = line.split(' ');
    let ranks = words.next()?.parse().ok()?;
    let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [a50, a99, t50, t99, load] = numbers.try_into().ok()?;
    Some(Round { ranks, alone: [a50, a99], traced: [t50, t99], load })
}

/// The geometric mean of ratios, with its 95 % interval: one of a half weighs as much as one of two.
struct Ratio {
    mean: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    fn of(ratios: impl Iterator<Item = f64>) -> Ratio {
        let RatioInterval { mean, half_width } = RatioInterval::of(ratios.map(f64::ln));
        Ratio { mean: mean.exp(), low: (mean - half_width).exp(), high: (mean + half_width).exp() }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.mean, self.low, self.high)
    }
}
