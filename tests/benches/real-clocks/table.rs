//! The table of errors and bounds, and whether the aims hold.

use rpd_clocks::AlignChoice;
use rpd_tests::clocks::JudgedClock;

/// Share of clocks that must be covered in each group, and at most of those of a build before.
const COVERED: f64 = 0.95;
const COVERED_BEFORE: f64 = 0.90;
/// Busy clocks, us: 95th percentile and maximum of the error, median bound.
const BUSY_P95: f64 = 0.5;
const BUSY_MAX: f64 = 10.0;
const BOUND: f64 = 0.8;
/// 95th percentile with everything beside that of probes alone.
const BESIDE_PROBES: f64 = 1.2;

/// Clocks of many runs.
pub(crate) struct Table {
    name: String,
    groups: Vec<Group>,
}

/// The clocks of one load, aligned by one source.
struct Group {
    load: &'static str,
    by: AlignChoice,
    clocks: Vec<JudgedClock>,
}

/// us, but for the counts.
struct Figures {
    covered: usize,
    clocks: usize,
    p50: f64,
    p95: f64,
    max: f64,
    bound: f64,
    jumps: usize,
    broken: usize,
}

impl Table {
    pub(crate) fn new(name: &str, sources: &[AlignChoice]) -> Table {
        let group = |load, by| Group { load, by, clocks: Vec::new() };
        let groups =
            ["idle", "busy"].into_iter().flat_map(|load| sources.iter().map(move |by| group(load, *by)));
        Table { name: name.to_owned(), groups: groups.collect() }
    }

    /// Adds the clocks of a run that were aligned by one source, and prints those that are not covered.
    pub(crate) fn add(&mut self, name: &str, by: AlignChoice, clocks: Vec<JudgedClock>) {
        let is_of_run = |group: &&mut Group| name.starts_with(group.load) && group.by == by;
        if let Some(group) = self.groups.iter_mut().find(is_of_run) {
            for clock in clocks {
                if !clock.is_covered() {
                    let one = Figures::of(std::slice::from_ref(&clock));
                    println!(
                        "  {}, {name}, {:?}: {:.0} % covered; error p50 {:.2}, max {:.2} us; median bound {:.2} us",
                        self.name,
                        group.by,
                        clock.coverage() * 100.0,
                        one.p50,
                        one.max,
                        one.bound
                    );
                }
                group.clocks.push(clock);
            }
        }
    }

    fn figures(&self, load: &str, by: AlignChoice) -> Figures {
        let group = self.groups.iter().find(|group| group.load == load && group.by == by);
        Figures::of(group.map_or(&[], |group| group.clocks.as_slice()))
    }

    /// Prints the table and the aims. Whether these hold.
    pub(crate) fn print(&self, before: Option<Table>) -> bool {
        println!(
            "\n{:<18} {:<5} {:<7} {:>12} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7}",
            "", "load", "by", "covered", "p50 us", "p95 us", "max us", "bound us", "jumps", "broken"
        );
        for table in std::iter::once(self).chain(&before) {
            for group in &table.groups {
                let f = Figures::of(&group.clocks);
                println!(
                    "{:<18} {:<5} {:<7} {:>5} of {:>3} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>6} {:>7}",
                    table.name,
                    group.load,
                    format!("{:?}", group.by).to_lowercase(),
                    f.covered,
                    f.clocks,
                    f.p50,
                    f.p95,
                    f.max,
                    f.bound,
                    f.jumps,
                    f.broken
                );
            }
        }
        let (idle, busy) = (self.figures("idle", AlignChoice::Auto), self.figures("busy", AlignChoice::Auto));
        let probes = self.figures("busy", AlignChoice::Probes);
        let share = |f: &Figures| f.covered as f64 / f.clocks.max(1) as f64;
        let mut aims = vec![
            (
                format!("at least {:.0} % of clocks covered, idle and busy", COVERED * 100.0),
                share(&idle) >= COVERED && share(&busy) >= COVERED,
            ),
            (
                format!("busy p95 at most {BUSY_P95} us, max {BUSY_MAX} us"),
                busy.p95 <= BUSY_P95 && busy.max <= BUSY_MAX,
            ),
            (format!("median bound at most {BOUND} us"), idle.bound <= BOUND && busy.bound <= BOUND),
            (
                format!("p95 at most {BESIDE_PROBES} times that of probes"),
                busy.p95 <= BESIDE_PROBES * probes.p95,
            ),
            (
                "no jump and no broken certain bound".to_owned(),
                [&idle, &busy].iter().all(|f| f.jumps + f.broken == 0),
            ),
        ];
        if let Some(before) = &before {
            let theirs = before.figures("busy", AlignChoice::Auto);
            aims.push((
                format!("the load is real: at most {:.0} % covered before", COVERED_BEFORE * 100.0),
                share(&theirs) <= COVERED_BEFORE,
            ));
        }
        println!();
        for (aim, holds) in &aims {
            println!("  {} {aim}", if *holds { "holds " } else { "MISSED" });
        }
        aims.iter().all(|(_, holds)| *holds)
    }
}

impl Figures {
    fn of(clocks: &[JudgedClock]) -> Figures {
        let all = |of: fn(&JudgedClock) -> &Vec<i64>| {
            let mut values: Vec<i64> = clocks.iter().flat_map(of).copied().collect();
            values.sort_unstable();
            values
        };
        let (errors, bounds) = (all(|clock| &clock.errors), all(|clock| &clock.bounds));
        let at = |values: &[i64], share: f64| {
            let place = (values.len().saturating_sub(1) as f64 * share) as usize;
            values.get(place).copied().unwrap_or(0) as f64 / 1e3
        };
        Figures {
            covered: clocks.iter().filter(|clock| clock.is_covered()).count(),
            clocks: clocks.len(),
            p50: at(&errors, 0.5),
            p95: at(&errors, 0.95),
            max: at(&errors, 1.0),
            bound: at(&bounds, 0.5),
            jumps: clocks.iter().map(|clock| clock.jumps).sum(),
            broken: clocks.iter().map(|clock| clock.broken).sum(),
        }
    }
}
