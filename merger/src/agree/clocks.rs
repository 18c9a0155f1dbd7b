//! Collects the clock records of all inputs on rank 0, fits the clocks there, and sends the fits to all ranks.

use super::domains::{DomainList, domains_of};
use super::logs::log_of_no_probes;
use super::nodes::JobNodes;
use super::observations::{
    ObservationMessage, TimedBurst, TimedClockSet, put_together, thin_out_bursts, thin_out_sets,
};
use crate::input::home::{HostClocks, RealtimeStep, to_boottime};
use crate::input::survey::InputSurvey;
use clap::ValueEnum;
use rpd_clocks::{
    AlignChoice, AlignMethod, BestSets, CausalityCheck, ClockFile, ClockObservations, CollectiveObservation,
    DomainFit, MERGED_TIME_NAMESPACE, NamedDomain, RepairedTimes, align, causality, keep_best,
    repair_causality,
};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::{Clock, ClockDomain, ClockSet, ProbeBurst, Process, is_wall_time, wire};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Number of intervals into which a run is divided to evaluate error bounds.
const MOMENTS: i128 = 64;
/// Domains, domains without process, best clock sets, clocks besides BOOTTIME, spans, logs, all clocks, REALTIME
/// spans.
type Short = (
    Vec<ClockDomain>,
    Vec<ClockDomain>,
    Vec<ClockSet>,
    BTreeMap<ClockDomain, Clock>,
    Spans,
    Logs,
    BTreeSet<(ClockDomain, Clock)>,
    Spans,
);
/// For each domain, the log of a collector with the reason why there were no probes.
type Logs = BTreeMap<ClockDomain, String>;

/// Clock records of this rank's inputs. They are taken from each input as soon as it is surveyed.
#[derive(Debug, Default)]
pub(crate) struct RecordedClocks {
    /// Domains of processes, by first occurrence in merge order.
    domains: DomainList,
    /// Domains of shards without a process.
    silent: DomainList,
    best: BestSets,
    /// Clock of the process timestamps, per domain in which it is not BOOTTIME.
    stamped: BTreeMap<ClockDomain, Clock>,
    /// All clocks of process timestamps, per domain.
    stamps: BTreeSet<(ClockDomain, Clock)>,
    /// First and last BOOTTIME in clock sets and processes.
    spans: Spans,
    /// First and last REALTIME of processes with REALTIME timestamps.
    walls: Spans,
    sets: BTreeMap<ClockDomain, Vec<TimedClockSet>>,
    bursts: BTreeMap<(ClockDomain, ClockDomain), Vec<TimedBurst>>,
    logs: Logs,
}

/// First and last recorded time of each domain, its BOOTTIME, ns.
type Spans = BTreeMap<ClockDomain, (i64, i64)>;

fn widen(spans: &mut Spans, domain: &ClockDomain, (first, last): (i64, i64)) {
    match spans.get_mut(domain) {
        Some(span) => *span = (span.0.min(first), span.1.max(last)),
        None => drop(spans.insert(domain.clone(), (first, last))),
    }
}

/// Clocks of the job before alignment. Observations and clock sets are complete on rank 0 only.
#[derive(Debug, Default)]
pub(crate) struct GatheredClocks {
    /// Domains and reference; on rank 0 also their observations. Collective observations are added later.
    pub observations: ClockObservations,
    best: BestSets,
    stamped: BTreeMap<ClockDomain, Clock>,
    stamps: BTreeSet<(ClockDomain, Clock)>,
    spans: Spans,
    logs: Logs,
    /// Number of leading domains that have processes.
    of_processes: usize,
    /// Number of bursts that were discarded because their clocks cannot have shown such times; on rank 0.
    impossible: u64,
}

impl RecordedClocks {
    /// Adds the clock records of the next input.
    pub(crate) fn add(&mut self, survey: &InputSurvey) {
        for source in &survey.sources {
            domains_of(source).into_iter().for_each(|domain| self.domains.add(domain));
            let process = &source.process;
            self.stamps.insert((process.domain.clone(), process.clock));
            if process.clock == Clock::Realtime && is_wall_time(process.first_seen) {
                let last = process.last_seen.filter(|last| is_wall_time(*last)).unwrap_or(process.first_seen);
                widen(&mut self.walls, &process.domain, (process.first_seen, last.max(process.first_seen)));
            }
            if process.clock != Clock::Boottime {
                self.stamped.entry(process.domain.clone()).or_insert(process.clock);
            } else if process.first_seen > 0 {
                let last = process.last_seen.unwrap_or(process.first_seen);
                widen(&mut self.spans, &process.domain, (process.first_seen, last.max(process.first_seen)));
            }
        }
        let sets = survey.input.clocks();
        if let Some(first) = sets.first() {
            self.silent.add(first.domain.clone());
            if survey.input.probes().is_empty()
                && !self.logs.contains_key(&first.domain)
                && let Some(log) = log_of_no_probes(survey.input.path())
            {
                self.logs.insert(first.domain.clone(), log.display().to_string());
            }
        }
        keep_best(&mut self.best, sets.iter().cloned());
        for ClockSet { domain, boottime, monotonic_raw, monotonic, realtime, bracket } in sets {
            widen(&mut self.spans, domain, (*boottime, *boottime));
            let known = self.sets.entry(domain.clone()).or_default();
            known.push([*boottime, *monotonic_raw, *monotonic, *realtime, *bracket]);
            thin_out_sets(known);
        }
        for ProbeBurst { from, to, sent, answered, spread, best, kernel_times } in survey.input.probes() {
            let Some(first) = best.first() else { continue };
            let trip = first.round_trip().unwrap_or(i64::MAX);
            let best = best.iter().map(|p| [p.t1, p.t2, p.t3, p.t4]).collect();
            let known = self.bursts.entry((from.clone(), to.clone())).or_default();
            known.push((first.t1, trip, *sent, *answered, *spread, best, *kernel_times));
            thin_out_bursts(known);
        }
    }

    fn message(self) -> ObservationMessage {
        let named = self.bursts.keys().flat_map(|(from, to)| [from, to]).chain(self.sets.keys());
        let domains: Vec<ClockDomain> = named.cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |domain: &ClockDomain| domains.binary_search(domain).unwrap_or(domains.len()) as u32;
        let sets = self.sets.into_iter().map(|(domain, sets)| (place(&domain), sets)).collect();
        let bursts = self.bursts.into_iter();
        let bursts = bursts.map(|((from, to), bursts)| (place(&from), place(&to), bursts)).collect();
        ObservationMessage { domains, sets, bursts }
    }
}

impl GatheredClocks {
    /// Gathers the clock records of all ranks.
    ///
    /// The reference is the node of the lowest rank, or a domain of `preferred`, whose times cannot change.
    pub(crate) fn gather(
        comm: &impl Comm,
        own: RecordedClocks,
        preferred: &[ClockDomain],
    ) -> Result<GatheredClocks, Failure> {
        let best: Vec<&ClockSet> = own.best.values().collect();
        let short = (
            &own.domains.all,
            &own.silent.all,
            best,
            &own.stamped,
            &own.spans,
            &own.logs,
            &own.stamps,
            &own.walls,
        );
        let mut domains = DomainList::default();
        let mut all_silent = Vec::new();
        let mut best = BestSets::new();
        let (mut stamped, mut spans, mut logs) = (BTreeMap::new(), Spans::new(), Logs::new());
        let (mut stamps, mut walls) = (BTreeSet::new(), Spans::new());
        for message in comm.all_gather(wire::encode(&short)) {
            let (theirs, silent, sets, others, known, told, theirs_stamped, seen): Short =
                wire::decode_message(&message).map_err(Failure::message)?;
            stamps.extend(theirs_stamped);
            seen.iter().for_each(|(domain, span)| widen(&mut walls, domain, *span));
            known.iter().for_each(|(domain, span)| widen(&mut spans, domain, *span));
            others.into_iter().for_each(|(domain, clock)| {
                stamped.entry(domain).or_insert(clock);
            });
            told.into_iter().for_each(|(domain, log)| {
                logs.entry(domain).or_insert(log);
            });
            theirs.into_iter().for_each(|domain| domains.add(domain));
            all_silent.extend(silent);
            keep_best(&mut best, sets);
        }
        let of_processes = domains.all.len();
        all_silent.into_iter().for_each(|domain| domains.add(domain));
        let DomainList { all: domains, .. } = domains;
        // The node of the lowest rank. A domain without clock sets cannot be the reference for others.
        let known = || domains.iter().enumerate().filter(|(_, domain)| best.contains_key(domain));
        let chosen = known().find(|(_, domain)| preferred.contains(domain)).or_else(|| known().next());
        let reference = chosen.map_or(0, |(place, _)| place);
        // If times of a domain come from several clocks, the offsets between these clocks are unknown.
        let is_wall = |domain: &ClockDomain| {
            let mut of = stamps.iter().filter(|(of, _)| of == domain);
            !best.contains_key(domain) && of.all(|(_, clock)| *clock == Clock::Realtime)
        };
        let wall = |(place, domain): (usize, &ClockDomain)| {
            Some((place, *walls.get(domain).filter(|_| is_wall(domain))?))
        };
        let walls = domains.iter().enumerate().filter_map(wall).collect();
        let mut observations =
            ClockObservations { domains, reference, walls, ..ClockObservations::default() };

        let mut outgoing = vec![Vec::new(); comm.size()];
        if let Some(to_first) = outgoing.first_mut() {
            *to_first = wire::encode(&own.message());
        }
        let incoming = comm.all_to_all(outgoing);
        let mut impossible = 0;
        if comm.rank() == 0 {
            let all: Result<Vec<ObservationMessage>, _> =
                incoming.iter().map(|m| wire::decode_message(m)).collect();
            impossible = put_together(all.map_err(Failure::message)?, &mut observations);
        }
        Ok(GatheredClocks { observations, best, stamped, stamps, spans, logs, of_processes, impossible })
    }

    /// Returns the first and last recorded time of each domain, its BOOTTIME, ns; in merge order.
    pub(crate) fn spans(&self) -> Vec<Option<(i64, i64)>> {
        self.observations.domains.iter().map(|domain| self.spans.get(domain).copied()).collect()
    }

    /// Returns whether there is more than one clock to align.
    pub(crate) fn is_of_several(&self) -> bool {
        self.observations
            .domains
            .iter()
            .filter(|domain| domain.time_namespace != MERGED_TIME_NAMESPACE)
            .count()
            > 1
    }

    /// Aligns the domains. `meetings` are complete on rank 0. All ranks get the same result.
    pub(crate) fn align(
        mut self,
        comm: &impl Comm,
        meetings: Vec<CollectiveObservation>,
        how: &AlignOptions<'_>,
    ) -> Result<JobClocks, Failure> {
        self.observations.meetings = meetings;
        let mut told: (Vec<DomainFit>, Vec<u64>, Option<CausalityRepair>, u64, Vec<String>) =
            Default::default();
        if comm.rank() == 0 {
            let mut fits = align(&self.observations, how.align);
            let notes = how.by_clock_file(&self, &mut fits);
            // Without aligned clocks, times in the wrong order are expected and not counted.
            let aligned: Vec<bool> = fits.iter().map(|fit| fit.method != AlignMethod::None).collect();
            let is_aligned = |domain: u32| aligned.get(domain as usize).copied().unwrap_or(false);
            let meetings = &mut self.observations.meetings;
            meetings.retain(|meeting| meeting.attendances.iter().all(|a| is_aligned(a.domain)));
            let (left, moved): (CausalityCheck, _) = match how.repair_causality {
                true => {
                    let before = causality(&self.observations, &fits).violations;
                    let RepairedTimes { left, out_of_reach, moved } =
                        repair_causality(&self.observations, &mut fits);
                    let after = left.violations;
                    (left, Some(CausalityRepair { before, after, out_of_reach, moved_ns: moved }))
                }
                false => (causality(&self.observations, &fits), None),
            };
            told = (fits, left.by_domain, moved, self.impossible, notes);
        }
        let messages = comm.all_gather(if comm.rank() == 0 { wire::encode(&told) } else { Vec::new() });
        if let Some(message) = messages.first().filter(|_| comm.rank() != 0) {
            told = wire::decode_message(message).map_err(Failure::message)?;
        }
        let ClockObservations { domains, reference, .. } = self.observations;
        let reference = domains.get(reference).cloned();
        let reference = reference.unwrap_or(ClockDomain { boot_id: String::new(), time_namespace: 0 });
        let (fits, violations, repaired, impossible, clock_file_notes) = told;
        let violations = domains.iter().cloned().zip(violations).collect();
        let fits = domains.iter().cloned().zip(fits).collect();
        let stamped = self.stamped.get(&reference).filter(|_| !self.best.contains_key(&reference));
        let align = how.align.to_possible_value();
        Ok(JobClocks {
            domains,
            fits,
            violations,
            repaired,
            impossible,
            clock_file_notes,
            has_clock_file: how.clock_file.is_some(),
            logs: self.logs,
            clock: stamped.copied().unwrap_or(Clock::Boottime),
            align: align.map_or(String::new(), |value| value.get_name().to_owned()),
            reference,
            best: self.best,
            spans: self.spans,
            stamps: self.stamps,
            homes: how.homes.clone(),
            unknown: DomainFit::unknown(),
        })
    }
}

/// Options for the alignment.
pub(crate) struct AlignOptions<'a> {
    /// Method of alignment.
    pub align: AlignChoice,
    /// Whether times may be moved until no effect precedes its cause.
    pub repair_causality: bool,
    /// Clock relations that the site measured.
    pub clock_file: Option<&'a ClockFile>,
    /// Host names and machine ids of the domains.
    pub nodes: &'a JobNodes,
    /// Offsets from other clocks of a node to its BOOTTIME.
    pub homes: &'a HostClocks,
}

impl JobNodes {
    /// Returns the names of a domain, host names first. Other domains can have the same names.
    pub fn names(&self, domain: &ClockDomain) -> Vec<String> {
        let nodes = self.of_boot(&domain.boot_id);
        let names = nodes.flat_map(|node| [node.hostname.clone(), node.machine_id.clone()]);
        names.chain([domain.boot_id.clone()]).filter(|name| !name.is_empty()).collect()
    }
}

impl AlignOptions<'_> {
    /// Applies the clock file to domains that are aligned only by wall clocks or not at all. Returns notes about it.
    fn by_clock_file(&self, observed: &GatheredClocks, fits: &mut [DomainFit]) -> Vec<String> {
        let Some(file) = self.clock_file else { return Vec::new() };
        let ClockObservations { domains, reference, .. } = &observed.observations;
        let named = |(place, domain): (usize, &ClockDomain)| {
            // No process has times of the other domains.
            let is_callable = place < observed.of_processes && domain.time_namespace != MERGED_TIME_NAMESPACE;
            let middle = observed.spans.get(domain).map(|(first, last)| first.midpoint(*last));
            let own = format!("{}/{}", domain.boot_id, domain.time_namespace);
            let names =
                std::iter::once(own).chain(self.nodes.names(domain)).filter(|_| is_callable).collect();
            NamedDomain { names, middle }
        };
        let domains: Vec<NamedDomain> = domains.iter().enumerate().map(named).collect();
        let resolved = file.resolve(&domains, *reference);
        let mut notes = resolved.notes;
        let mut better = 0;
        for (fit, measured) in fits.iter_mut().zip(resolved.fits) {
            let Some(measured) = measured else { continue };
            if matches!(fit.method, AlignMethod::None | AlignMethod::RealtimeAnchors) {
                *fit = measured;
            } else {
                better += 1;
            }
        }
        if better > 0 {
            let clocks = if better == 1 { "1 clock".to_owned() } else { format!("{better} clocks") };
            notes.push(format!(
                "the clock file was not used for {clocks} that probes or collectives align: --align none uses it for all"
            ));
        }
        notes
    }
}

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
    /// Number of discarded probe bursts, whose clocks cannot have shown such times.
    pub impossible: u64,
    /// For each domain whose node did not measure clocks, the log of one of its ranks with the reason, if any.
    pub logs: BTreeMap<ClockDomain, String>,
    /// Whether a clock file was given.
    pub has_clock_file: bool,
    /// Notes about the clock file.
    pub clock_file_notes: Vec<String>,
    /// Requested alignment method, as spelled on the command line.
    pub align: String,
    /// Domain whose clock is the reference clock.
    pub reference: ClockDomain,
    /// Clock of that domain: BOOTTIME, unless its inputs use another clock and contain no offset to BOOTTIME.
    pub clock: Clock,
    best: BestSets,
    spans: Spans,
    stamps: BTreeSet<(ClockDomain, Clock)>,
    homes: HostClocks,
    unknown: DomainFit,
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
    pub fn usual_bar(&self, domain: &ClockDomain) -> Option<i64> {
        usual(self.domain_fit(domain), self.span(domain), DomainFit::bar_at)
    }

    /// Returns the largest certain bound of a domain at the same times, ns; `None` if there is none at one of them.
    pub fn most_hard(&self, domain: &ClockDomain) -> Option<i64> {
        most_hard(self.domain_fit(domain), self.span(domain))
    }

    /// Returns the first and last recorded time of a domain, its BOOTTIME, ns.
    pub fn span(&self, domain: &ClockDomain) -> Option<(i64, i64)> {
        self.spans.get(domain).copied()
    }

    /// Returns the clocks other than BOOTTIME that a domain's timestamps use, with the offsets to BOOTTIME.
    pub fn conversions(&self, domain: &ClockDomain) -> impl Iterator<Item = (Clock, &[RealtimeStep])> {
        let of_domain =
            self.stamps.range((domain.clone(), Clock::Boottime)..).take_while(move |(of, _)| of == domain);
        let others = of_domain.filter(|(_, clock)| *clock != Clock::Boottime);
        let all = others.map(|(of, clock)| (*clock, self.homes.steps(of, *clock)));
        // If no shard contains clocks, there is nothing to compare with.
        all.filter(|_| !self.homes.is_empty())
    }

    /// Returns the conversion from a process's times to job time.
    pub fn process_fit(&self, process: &Process) -> ProcessFit<'_> {
        let steps = self.homes.steps(&process.domain, process.clock);
        ProcessFit { fit: self.domain_fit(&process.domain), steps }
    }
}

/// Returns the median of a property of the fit at times of a span.
fn usual(
    fit: &DomainFit,
    span: Option<(i64, i64)>,
    at: impl Fn(&DomainFit, LocalNs) -> Option<i64>,
) -> Option<i64> {
    let moments = moments(fit, span).into_iter();
    let mut values: Vec<Option<i64>> = moments.map(|moment| at(fit, LocalNs(moment))).collect();
    // An unknown value counts as larger than any known value.
    values.sort_unstable_by_key(|value| (value.is_none(), *value));
    values.get(values.len() / 2).copied().flatten()
}

/// Returns the largest certain bound of a fit at times of a span; `None` if it is unknown at one of them.
fn most_hard(fit: &DomainFit, span: Option<(i64, i64)>) -> Option<i64> {
    let hard = moments(fit, span).into_iter().map(|moment| fit.hard_at(LocalNs(moment)));
    hard.collect::<Option<Vec<i64>>>()?.into_iter().max()
}

/// Returns times spread evenly over a span; the knots of the fit if the span is unknown.
fn moments(fit: &DomainFit, span: Option<(i64, i64)>) -> Vec<i64> {
    match span {
        _ if fit.method == AlignMethod::Reference => vec![0],
        Some((first, last)) => {
            let length = i128::from(last) - i128::from(first);
            (0..=MOMENTS).map(|part| (i128::from(first) + length * part / MOMENTS) as i64).collect()
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
    steps: &'a [RealtimeStep],
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

    /// Knots at uneven distances, each with an error bound, optionally a certain bound that is wider by some amount,
    /// and its growth.
    fn some_fit() -> impl Strategy<Value = DomainFit> {
        let knot = (1..1_000_000_000i64, 0..100_000i64, proptest::option::of(0..100_000i64), 0..5_000i64);
        proptest::collection::vec(knot, 1..12).prop_map(|knots| {
            let mut local = 0;
            let bars = knots.into_iter().map(|(after, bar, more, growth)| {
                local += after;
                let hard = more.map(|more| (-bar / 2, bar + more));
                ErrorKnot { local, offset: 0, bar, hard, growth }
            });
            DomainFit { method: AlignMethod::Probes, bars: bars.collect(), ..DomainFit::unknown() }
        })
    }

    proptest! {
        #[test]
        fn what_is_certain_is_never_told_to_be_less_than_the_bar(
            fit in some_fit(),
            span in proptest::option::of((-5_000_000_000..5_000_000_000i64, 0..20_000_000_000i64)),
        ) {
            let span = span.map(|(first, length)| (first, first + length));
            let bar = usual(&fit, span, DomainFit::bar_at);
            prop_assert!(bar.is_some());
            if let Some(hard) = most_hard(&fit, span) {
                prop_assert!(bar <= Some(hard), "{:?} of {}", bar, hard);
            }
            if fit.bars.iter().all(|knot| knot.hard.is_some()) {
                prop_assert!(most_hard(&fit, span).is_some());
            }
        }
    }

    #[test]
    fn the_bar_is_the_usual_one_and_what_is_certain_holds_always() {
        // Most knots are at the beginning, where errors are small; most of the time is after it.
        let knot =
            |local: i64, bar: i64| ErrorKnot { local, offset: 0, bar, hard: Some((-bar, bar)), growth: 0 };
        let bars = [0, 1, 2, 3, 4].map(|at| knot(at * 1_000, 10)).into_iter().chain([knot(1_000_000, 9_000)]);
        let mut fit = DomainFit { method: AlignMethod::Probes, bars: bars.collect(), ..DomainFit::unknown() };
        let span = Some((0, 1_000_000));
        let bar = usual(&fit, span, DomainFit::bar_at).unwrap();
        assert!((4_000..5_000).contains(&bar), "{bar}");
        assert_eq!(most_hard(&fit, span), Some(9_000));
        fit.bars[5].hard = None;
        assert_eq!(most_hard(&fit, span), None);
    }
}
