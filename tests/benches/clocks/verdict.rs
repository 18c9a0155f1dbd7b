use crate::methods::{FUSION, METHODS, SOURCES};
use crate::tally::{Figures, Tally};
use rpd_tests::clocks::{ClockScenario, NoiseLevel, ProbeRate};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// The aims. In a quiet network, at 600 s and 3600 s, us...
const P95: f32 = 1.0;
/// ... and of the scenario with everything at once at 600 s.
const P95_OF_EVERYTHING: f32 = 1.5;
const BESIDE_SOURCES: f32 = 1.2;
const POOLED: f64 = 0.95;
const EACH: f64 = 0.90;
const WIDTH: f32 = 4.0;
/// Certain bounds assume that no clock jumps unseen. Where one jumps, this share of the errors may be outside.
const UNSEEN: f64 = 1e-3;

/// What a row is about.
pub(crate) struct Place<'a> {
    pub(crate) scenario: &'a ClockScenario,
    pub(crate) noise: NoiseLevel,
    /// Length of the runs.
    pub(crate) seconds: i64,
}

/// The table, and whether the aims hold.
pub(crate) struct Verdict {
    rows: Vec<Row>,
    /// Where rows are kept.
    file: Option<PathBuf>,
    /// Seeds, the first one, nodes: rows of others are not used.
    jobs: (u64, u64, usize),
}

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    name: String,
    noise: String,
    seconds: i64,
    fusion: Figures,
    /// p95 beside that of the better source.
    beside: Option<f32>,
    hard: (u64, u64),
    jump: bool,
    /// Whether there are probes at all.
    is_probed: bool,
    jobs: (u64, u64, usize),
}

impl Verdict {
    /// Takes the rows of a file that are of the same jobs.
    pub(crate) fn open(file: Option<PathBuf>, jobs: (u64, u64, usize)) -> Verdict {
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let rows = text.lines().filter_map(|line| serde_json::from_str::<Row>(line).ok());
        Verdict { rows: rows.filter(|row| row.jobs == jobs).collect(), file, jobs }
    }

    /// Whether there is a row of it.
    pub(crate) fn has(&self, place: &Place<'_>) -> bool {
        let is_same = |row: &Row| {
            (row.name.as_str(), row.noise.as_str(), row.seconds)
                == (place.scenario.name, place.noise.name(), place.seconds)
        };
        self.rows.iter().any(is_same)
    }

    /// Prints the lines of a scenario and keeps what the aims need.
    pub(crate) fn take(&mut self, place: &Place<'_>, mut tallies: Vec<Tally>) {
        let Place { scenario, noise, seconds } = *place;
        println!("\n{}, {}, {seconds} s", scenario.name, noise.name());
        println!(
            "  {:<12} {:>10} {:>10} {:>11} {:>9} {:>9}",
            "method", "p50", "p95", "max", "coverage", "bar"
        );
        let figures: Vec<Option<Figures>> = tallies.iter_mut().map(Tally::figures).collect();
        for (method, figures) in METHODS.iter().zip(&figures) {
            let Some(f) = figures else { continue };
            let coverage = f.coverage().map_or("-".to_owned(), |c| format!("{:.1} %", c * 100.0));
            let bar = f.bar.map_or("-".to_owned(), |bar| format!("{bar:.2}"));
            println!(
                "  {:<12} {:>10.2} {:>10.2} {:>11.2} {coverage:>9} {bar:>9}",
                method.name, f.p50, f.p95, f.max
            );
        }
        let Some(fusion) = figures.get(FUSION).copied().flatten() else { return };
        let beside = SOURCES.iter().enumerate().filter_map(|(i, source)| {
            let source = figures.get(*source).copied().flatten()?;
            let fusion = figures.get(METHODS.len() + i).copied().flatten()?;
            Some((source.p95, fusion.p95 / source.p95))
        });
        let beside = beside.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, ratio)| ratio);
        let hard = (tallies[FUSION].hard_broken, tallies[FUSION].hard);
        let row = Row {
            name: scenario.name.to_owned(),
            noise: noise.name().to_owned(),
            seconds,
            fusion,
            beside,
            hard,
            jump: scenario.jump,
            is_probed: scenario.probes != ProbeRate::Nobody,
            jobs: self.jobs,
        };
        if let Some(file) = &self.file {
            let line = serde_json::to_string(&row).expect("a row is JSON");
            let opened = OpenOptions::new().create(true).append(true).open(file);
            opened.and_then(|mut file| writeln!(file, "{line}")).expect("the file of the results");
        }
        self.rows.push(row);
    }

    /// The aims; whether all hold.
    pub(crate) fn print(&self) -> bool {
        println!("\nfusion, p95 of the error beside its sources; coverage; width of the bar beside p95");
        for row in &self.rows {
            let f = &row.fusion;
            println!(
                "  {:<9} {:<18} {:>5} s {:>8.3} us {:>6} {:>7.1} % {:>6.2}",
                row.noise,
                row.name,
                row.seconds,
                f.p95,
                row.beside.map_or("-".to_owned(), |r| format!("{r:.2}")),
                f.coverage().unwrap_or(0.0) * 100.0,
                row.width()
            );
        }
        let sum = |count: fn(&Figures) -> u64| self.rows.iter().map(|r| count(&r.fusion)).sum::<u64>() as f64;
        let pooled = sum(|f| f.within) / sum(|f| f.barred).max(1.0);
        println!();
        let aims = [
            self.aim(format!("quiet: p95 of fusion below {P95} us at 600 s and 3600 s, everything at 600 s {P95_OF_EVERYTHING}"), |r| {
                let most = if (r.name.as_str(), r.seconds) == ("everything", 600) { P95_OF_EVERYTHING } else { P95 };
                r.noise != NoiseLevel::Quiet.name() || r.seconds < 600 || r.fusion.p95 < most
            }),
            self.aim(format!("fusion at most {BESIDE_SOURCES} times the better source, where there are probes"), |r| {
                !r.is_probed || r.beside.is_none_or(|ratio| ratio <= BESIDE_SOURCES)
            }),
            self.aim(format!("coverage of each scenario at least {:.0} %", EACH * 100.0), |r| {
                r.fusion.coverage().is_some_and(|c| c >= EACH)
            }),
            self.aim(format!("median bar at most {WIDTH} times p95"), |r| r.width() <= WIDTH),
            self.aim(self.hard(), |r| r.hard.0 as f64 <= if r.jump { UNSEEN * r.hard.1 as f64 } else { 0.0 }),
        ];
        let holds = if pooled >= POOLED { "holds " } else { "MISSED" };
        println!("  {holds} pooled coverage at least {:.0} %: {:.2} %", POOLED * 100.0, pooled * 100.0);
        aims.into_iter().all(|met| met) && pooled >= POOLED
    }

    fn hard(&self) -> String {
        let sum = |part: fn(&Row) -> u64| self.rows.iter().map(part).sum::<u64>();
        format!(
            "errors outside of their certain bounds ({} of {}) only where a clock jumps, and below {} %",
            sum(|r| r.hard.0),
            sum(|r| r.hard.1),
            UNSEEN * 100.0
        )
    }

    fn aim(&self, what: String, holds: impl Fn(&Row) -> bool) -> bool {
        let missed: Vec<String> = self
            .rows
            .iter()
            .filter(|row| !holds(row))
            .map(|row| format!("{} ({}) {} s", row.name, row.noise, row.seconds))
            .collect();
        if missed.is_empty() {
            println!("  holds  {what}");
        } else {
            println!("  MISSED {what}: {}", missed.join(", "));
        }
        missed.is_empty()
    }
}

impl Row {
    /// Median bar beside p95.
    fn width(&self) -> f32 {
        self.fusion.bar.unwrap_or(f32::INFINITY) / self.fusion.p95
    }
}
