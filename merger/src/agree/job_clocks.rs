//! The clocks of all nodes, as all merge ranks know them after the alignment.

use super::recorded_clocks::Spans;
use crate::input::best_clock_sets::BestClockSets;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use crate::input::{BoottimeOffset, HostClocks, to_boottime};
use rpd_clocks::{AlignMethod, DomainFit};
use rpd_shard::model::LocalNs;
use rpd_shard::record::{Clock, ClockDomain, Process};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of intervals into which a run is divided to evaluate error bounds.
const MOMENTS: i128 = 64;
/// Maximum number of moments for which the output has the bounds of a clock domain.
const MAX_STORED_MOMENTS: i128 = 64;

/// Result of `--repair-causality`. A violation is a rank that left a collective before another rank, for which it
/// waits, entered it. It counts once per rank and collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CausalityRepair {
    /// Violations before the repair.
    pub before: u64,
    /// Violations after the repair.
    pub after: u64,
    /// Violations after the repair that no move within the error bounds could remove.
    #[serde(default)]
    pub out_of_reach: u64,
    /// Largest move of a time, ns.
    pub moved_ns: i64,
}

/// Bounds of the job times of a clock domain, at moments spread evenly over its recorded span.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DomainErrorBounds {
    /// Boot id.
    pub boot_id: String,
    /// Inode of the time namespace; 0: unknown.
    pub time_namespace: u64,
    /// First moment, job time, ns.
    pub from_ns: i64,
    /// Last moment, job time, ns.
    pub to_ns: i64,
    /// Error bound at each moment, ns; `None` if it is unknown.
    pub error_bound_ns: Vec<Option<i64>>,
    /// Certain bound at each moment, ns; `None` if there is none.
    pub certain_bound_ns: Vec<Option<i64>>,
}

impl DomainErrorBounds {
    fn of(domain: &ClockDomain, fit: &DomainFit, span: Option<(i64, i64)>) -> DomainErrorBounds {
        let of_knots = || Some((fit.bars.first()?.local, fit.bars.last()?.local));
        let moments = moments(fit, span.or_else(of_knots), MAX_STORED_MOMENTS - 1);
        let job_time = |local: Option<&i64>| local.map_or(0, |local| fit.map.map(LocalNs(*local)).ns());
        DomainErrorBounds {
            boot_id: domain.boot_id.clone(),
            time_namespace: match domain.time_namespace {
                MERGED_TIME_NAMESPACE => 0,
                own => own,
            },
            from_ns: job_time(moments.first()),
            to_ns: job_time(moments.last()),
            error_bound_ns: moments.iter().map(|moment| fit.bar_at(LocalNs(*moment))).collect(),
            certain_bound_ns: moments.iter().map(|moment| fit.certain_bound_at(LocalNs(*moment))).collect(),
        }
    }
}

/// Aligned clocks of the job.
#[derive(Clone, Debug)]
pub struct JobClocks {
    /// All domains, in merge order.
    pub domains: Vec<ClockDomain>,
    /// Fits of the domains.
    pub fits: BTreeMap<ClockDomain, DomainFit>,
    /// Per domain, the number of collectives that its ranks left before others entered, by the aligned times.
    pub violations: BTreeMap<ClockDomain, u64>,
    /// Result of the causality repair; `None` if it was not requested.
    pub repaired: Option<CausalityRepair>,
    /// Number of discarded probe bursts. Their clocks cannot have shown such times.
    pub impossible: u64,
    /// For each domain of a node that did not measure clocks, the log of one of its ranks that contains the reason, if
    /// any.
    pub logs: BTreeMap<ClockDomain, String>,
    /// Whether a clock file was given.
    pub has_clock_file: bool,
    /// Notes about the clock file.
    pub clock_file_notes: Vec<String>,
    /// Requested alignment method, as spelled on the command line.
    pub align: String,
    /// Domain of the reference clock.
    pub reference: ClockDomain,
    /// Clock of that domain: BOOTTIME, unless its inputs use another clock and contain no offset to BOOTTIME.
    pub clock: Clock,
    pub(super) best: BestClockSets,
    pub(super) spans: Spans,
    /// All clocks of process timestamps, per domain.
    pub(super) clocks: BTreeSet<(ClockDomain, Clock)>,
    pub(super) host_clocks: HostClocks,
    pub(super) unknown: DomainFit,
}

impl JobClocks {
    /// Returns REALTIME minus BOOTTIME of the reference, ns. It converts job time to wall time.
    pub fn realtime_anchor(&self) -> Option<i64> {
        self.best.get(&self.reference).map(|set| set.realtime.saturating_sub(set.boottime))
    }

    /// Returns the fit that converts BOOTTIME timestamps of a domain to job time.
    pub fn domain_fit(&self, domain: &ClockDomain) -> &DomainFit {
        self.fits.get(domain).unwrap_or(&self.unknown)
    }

    /// Returns the median error bound of a domain over its recorded span, ns; `None` if it is unknown. That span can
    /// be much longer than the observed part of its clock.
    pub fn median_error_bound(&self, domain: &ClockDomain) -> Option<i64> {
        median_bound(self.domain_fit(domain), self.span(domain), DomainFit::bar_at)
    }

    /// Returns the largest certain bound of a domain at the same times, ns; `None` if there is none at one of them.
    pub fn max_certain_bound(&self, domain: &ClockDomain) -> Option<i64> {
        max_certain_bound(self.domain_fit(domain), self.span(domain))
    }

    /// Returns the bounds of a domain at moments of its recorded span.
    pub fn error_bounds(&self, domain: &ClockDomain) -> DomainErrorBounds {
        DomainErrorBounds::of(domain, self.domain_fit(domain), self.span(domain))
    }

    /// Returns the first and last recorded time of a domain, its BOOTTIME, ns.
    pub fn span(&self, domain: &ClockDomain) -> Option<(i64, i64)> {
        self.spans.get(domain).copied()
    }

    /// Returns the clocks other than BOOTTIME that a domain's timestamps use, with the offsets to BOOTTIME.
    pub fn conversions(&self, domain: &ClockDomain) -> impl Iterator<Item = (Clock, &[BoottimeOffset])> {
        let of_domain =
            self.clocks.range((domain.clone(), Clock::Boottime)..).take_while(move |(of, _)| of == domain);
        let others = of_domain.filter(|(_, clock)| *clock != Clock::Boottime);
        let all = others.map(|(of, clock)| (*clock, self.host_clocks.steps(of, *clock)));
        // If no shard contains clocks, there is nothing to compare with.
        all.filter(|_| !self.host_clocks.is_empty())
    }

    /// Returns the conversion from a process's times to job time.
    pub fn process_fit(&self, process: &Process) -> ProcessFit<'_> {
        let steps = self.host_clocks.steps(&process.domain, process.clock);
        ProcessFit { fit: self.domain_fit(&process.domain), steps }
    }
}

/// Returns the median of a property of the fit at times of a span.
pub(super) fn median_bound(
    fit: &DomainFit,
    span: Option<(i64, i64)>,
    at: impl Fn(&DomainFit, LocalNs) -> Option<i64>,
) -> Option<i64> {
    let moments = moments(fit, span, MOMENTS).into_iter();
    let mut values: Vec<Option<i64>> = moments.map(|moment| at(fit, LocalNs(moment))).collect();
    // An unknown value counts as larger than any known value.
    values.sort_unstable_by_key(|value| (value.is_none(), *value));
    values.get(values.len() / 2).copied().flatten()
}

/// Returns the largest certain bound of a fit at times of a span; `None` if it is unknown at one of them.
pub(super) fn max_certain_bound(fit: &DomainFit, span: Option<(i64, i64)>) -> Option<i64> {
    let bounds = moments(fit, span, MOMENTS).into_iter().map(|moment| fit.certain_bound_at(LocalNs(moment)));
    bounds.collect::<Option<Vec<i64>>>()?.into_iter().max()
}

/// Returns the ends of equal parts of a span; the knots of the fit if the span is unknown.
fn moments(fit: &DomainFit, span: Option<(i64, i64)>, parts: i128) -> Vec<i64> {
    match span {
        _ if fit.method == AlignMethod::Reference => vec![0],
        Some((first, last)) => {
            let length = i128::from(last) - i128::from(first);
            (0..=parts).map(|part| (i128::from(first) + length * part / parts) as i64).collect()
        }
        None => fit.bars.iter().map(|knot| knot.local).collect(),
    }
}

/// Conversion from the times of one process to job time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFit<'a> {
    /// Fit of the process's domain.
    pub fit: &'a DomainFit,
    /// Offsets from the process's own clock to BOOTTIME of its domain.
    steps: &'a [BoottimeOffset],
}

impl ProcessFit<'_> {
    /// Replaces times of the process by job times.
    pub fn map_all(&self, times: &mut [i64]) {
        let shift = match self.steps {
            [] => 0,
            [only] => only.offset,
            steps => {
                times.iter_mut().for_each(|time| *time = to_boottime(steps, *time));
                0
            }
        };
        self.fit.map.map_all(times, shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rpd_clocks::ErrorKnot;

    /// Knots at uneven distances, each with an error bound, a certain bound that is wider by some amount, and its
    /// growth.
    fn some_fit() -> impl Strategy<Value = DomainFit> {
        let knot = (1..1_000_000_000i64, 0..100_000i64, proptest::option::of(0..100_000i64), 0..5_000i64);
        proptest::collection::vec(knot, 1..12).prop_map(|knots| {
            let mut local = 0;
            let bars = knots.into_iter().map(|(after, bar, more, growth)| {
                local += after;
                let certain_bounds = more.map(|more| (-bar / 2, bar + more));
                ErrorKnot { local, offset: 0, bar, certain_bounds, growth }
            });
            DomainFit { method: AlignMethod::Probes, bars: bars.collect(), ..DomainFit::default() }
        })
    }

    #[test]
    fn stored_bounds_are_few_and_short() {
        let knot = |local: i64| ErrorKnot { local, offset: 0, bar: 400, certain_bounds: None, growth: 100 };
        let second = 1_000_000_000;
        let fit = DomainFit {
            method: AlignMethod::Probes,
            bars: vec![knot(0), knot(100 * second)],
            ..DomainFit::default()
        };
        let domain = ClockDomain { boot_id: "boot".to_owned(), time_namespace: 7 };
        let bounds = DomainErrorBounds::of(&domain, &fit, Some((-10 * second, 100 * second)));
        assert_eq!((bounds.from_ns, bounds.to_ns), (-10 * second, 100 * second));
        assert_eq!((bounds.error_bound_ns.len(), bounds.certain_bound_ns), (64, vec![None; 64]));
        assert_eq!((bounds.error_bound_ns[0], bounds.error_bound_ns[63]), (Some(1_400), Some(400)));
        // Without a span, the ends are those of the observations.
        let bounds = DomainErrorBounds::of(&domain, &fit, None);
        assert_eq!((bounds.from_ns, bounds.to_ns), (0, 100 * second));
        assert!(serde_json::to_string(&bounds).unwrap().len() < 2048);
    }

    proptest! {
        #[test]
        fn what_is_certain_is_never_told_to_be_less_than_the_bar(
            fit in some_fit(),
            span in proptest::option::of((-5_000_000_000..5_000_000_000i64, 0..20_000_000_000i64)),
        ) {
            let span = span.map(|(first, length)| (first, first + length));
            let bar = median_bound(&fit, span, DomainFit::bar_at);
            prop_assert!(bar.is_some());
            if let Some(hard) = max_certain_bound(&fit, span) {
                prop_assert!(bar <= Some(hard), "{:?} of {}", bar, hard);
            }
            if fit.bars.iter().all(|knot| knot.certain_bounds.is_some()) {
                prop_assert!(max_certain_bound(&fit, span).is_some());
            }
        }
    }

    #[test]
    fn the_bar_is_the_usual_one_and_what_is_certain_holds_always() {
        // Most knots are at the beginning, where errors are small; most of the time is after it.
        let knot = |local: i64, bar: i64| ErrorKnot {
            local,
            offset: 0,
            bar,
            certain_bounds: Some((-bar, bar)),
            growth: 0,
        };
        let bars = [0, 1, 2, 3, 4].map(|at| knot(at * 1_000, 10)).into_iter().chain([knot(1_000_000, 9_000)]);
        let mut fit = DomainFit { method: AlignMethod::Probes, bars: bars.collect(), ..DomainFit::default() };
        let span = Some((0, 1_000_000));
        let bar = median_bound(&fit, span, DomainFit::bar_at).unwrap();
        assert!((4_000..5_000).contains(&bar), "{bar}");
        assert_eq!(max_certain_bound(&fit, span), Some(9_000));
        fit.bars[5].certain_bounds = None;
        assert_eq!(max_certain_bound(&fit, span), None);
    }
}
