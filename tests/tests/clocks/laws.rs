//! What must change nothing, or exactly one thing.

use proptest::prelude::*;
use rpd_clocks::{AlignChoice, AlignMethod, ClockObservations, DomainFit, align};
use rpd_shard::model::LocalNs;
use rpd_tests::clocks::{ClockScenario, Job};
use rpd_tests::synthetic::RandomSource;

const NODES: usize = 6;

/// A scenario and a seed: what a failure shows.
fn seeds() -> impl Strategy<Value = (usize, u64)> {
    (0..ClockScenario::ALL.len(), 0_u64..1_000_000)
}

fn job((scenario, seed): (usize, u64)) -> Job {
    Job::new(&ClockScenario::ALL[scenario], NODES, 40, seed)
}

fn methods() -> impl Strategy<Value = AlignChoice> {
    prop::sample::select(vec![
        AlignChoice::Auto,
        AlignChoice::Probes,
        AlignChoice::Collectives,
        AlignChoice::Anchors,
    ])
}

/// All clocks of a domain but the one on the wall are moved.
fn shifted(observations: &ClockObservations, domain: usize, by: i64) -> ClockObservations {
    let mut shifted = observations.clone();
    for set in &mut shifted.sets[domain] {
        [&mut set.boottime, &mut set.monotonic_raw, &mut set.monotonic]
            .into_iter()
            .for_each(|clock| *clock += by);
    }
    for burst in &mut shifted.bursts {
        for probe in &mut burst.best {
            if burst.from == domain {
                [&mut probe.t1, &mut probe.t4].into_iter().for_each(|time| *time += by);
            }
            if burst.to == domain {
                [&mut probe.t2, &mut probe.t3].into_iter().for_each(|time| *time += by);
            }
        }
    }
    let intervals = shifted.collectives.iter_mut().flat_map(|m| &mut m.intervals);
    for interval in intervals.filter(|a| a.domain as usize == domain) {
        interval.enter.0 += by;
        interval.exit.0 += by;
    }
    shifted
}

fn shuffle<T>(items: &mut [T], random: &mut RandomSource) {
    for i in (1..items.len()).rev() {
        items.swap(i, random.index(i + 1));
    }
}

/// Everything in another order; also the new position of each domain.
fn shuffled(observations: &ClockObservations, seed: u64) -> (ClockObservations, Vec<usize>) {
    let random = &mut RandomSource::new(&[seed]);
    let mut order: Vec<usize> = (0..NODES).collect();
    shuffle(&mut order, random);
    let mut position = vec![0; NODES];
    order.iter().enumerate().for_each(|(new, &old)| position[old] = new);
    let mut other = observations.clone();
    other.domains = order.iter().map(|&old| observations.domains[old].clone()).collect();
    other.sets = order.iter().map(|&old| observations.sets[old].clone()).collect();
    other.reference = position[observations.reference];
    other.sets.iter_mut().for_each(|sets| shuffle(sets, random));
    for burst in &mut other.bursts {
        (burst.from, burst.to) = (position[burst.from], position[burst.to]);
        shuffle(&mut burst.best, random);
    }
    for meeting in &mut other.collectives {
        meeting.intervals.iter_mut().for_each(|a| a.domain = position[a.domain as usize] as u32);
        shuffle(&mut meeting.intervals, random);
    }
    shuffle(&mut other.bursts, random);
    shuffle(&mut other.collectives, random);
    (other, position)
}

/// Times before, in and after the run.
fn times(job: &Job, domain: usize) -> impl Iterator<Item = LocalNs> {
    let start = job.clocks[domain].boottime(0);
    (-5..50).map(move |s| LocalNs(start + s * 997_654_321))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shifting_one_domain_moves_its_map_by_exactly_that_and_no_other(
        seed in seeds(), by in -400_000_000_000_000_i64..400_000_000_000_000, domain in 1..NODES, method in methods()
    ) {
        let job = job(seed);
        let before = align(&job.observations, method);
        let after = align(&shifted(&job.observations, domain, by), method);
        for other in (0..NODES).filter(|&d| d != domain) {
            prop_assert_eq!(&before[other], &after[other]);
        }
        let (before, after) = (&before[domain], &after[domain]);
        if before.method == AlignMethod::None {
            prop_assert_eq!(before, after);
            return Ok(());
        }
        for time in times(&job, domain) {
            let moved = LocalNs(time.0 + by);
            prop_assert_eq!(before.map.map(time), after.map.map(moved));
            prop_assert_eq!(before.bar_at(time), after.bar_at(moved));
        }
        prop_assert_eq!(before.offset - by, after.offset);
    }

    #[test]
    fn shifting_the_reference_moves_all_by_that(
        seed in seeds(), by in -400_000_000_000_000_i64..400_000_000_000_000, method in methods()
    ) {
        let job = job(seed);
        let before = align(&job.observations, method);
        let after = align(&shifted(&job.observations, 0, by), method);
        for domain in (1..NODES).filter(|&d| before[d].method != AlignMethod::None) {
            for time in times(&job, domain) {
                prop_assert_eq!(before[domain].map.map(time).ns() + by, after[domain].map.map(time).ns());
            }
        }
    }

    #[test]
    fn no_order_changes_anything(seed in seeds(), order: u64, method in methods()) {
        let job = job(seed);
        let before = align(&job.observations, method);
        let (other, position) = shuffled(&job.observations, order);
        let after = align(&other, method);
        for domain in 0..NODES {
            prop_assert_eq!(&before[domain], &after[position[domain]]);
        }
    }

    #[test]
    fn the_reference_is_untouched_and_no_map_goes_backwards(seed in seeds(), method in methods()) {
        let job = job(seed);
        let fits = align(&job.observations, method);
        prop_assert!(fits[0].map.is_identity());
        for (domain, fit) in fits.iter().enumerate() {
            never_backwards(fit, times(&job, domain))?;
        }
        let first = times(&job, 0).next().unwrap();
        prop_assert_eq!(fits[0].map.map(first).ns(), first.0);
        prop_assert_eq!(fits[0].map.map(LocalNs(i64::MAX)).ns(), i64::MAX);
    }
}

fn never_backwards(fit: &DomainFit, times: impl Iterator<Item = LocalNs>) -> Result<(), TestCaseError> {
    let mut times: Vec<LocalNs> =
        times.chain(fit.map.bends().flat_map(|b| [-1, 0, 1].map(|d| LocalNs(b.0 + d)))).collect();
    times.sort();
    let mapped: Vec<i64> = times.iter().map(|t| fit.map.map(*t).ns()).collect();
    prop_assert!(mapped.is_sorted());
    // A cursor that comes from anywhere gives the same.
    let mut cursor = fit.map.cursor();
    for (time, mapped) in times.iter().zip(&mapped).rev().step_by(3) {
        prop_assert_eq!(cursor.map(*time).ns(), *mapped);
    }
    Ok(())
}
