//! Clocks that the inputs of one merge rank have recorded.

use super::domains::{DomainList, domains_of};
use super::logs::log_of_no_probes;
use super::observations::{ObservationMessage, TimedBurst, TimedClockSet, thin_out_bursts, thin_out_sets};
use crate::input::best_clock_sets::{BestClockSets, keep_best};
use crate::input::input_survey::InputSurvey;
use rpd_shard::record::{Clock, ClockDomain, ClockSet, ProbeBurst, is_wall_time};
use std::collections::{BTreeMap, BTreeSet};

/// First and last recorded time of each domain, its BOOTTIME, ns.
pub(super) type Spans = BTreeMap<ClockDomain, (i64, i64)>;

/// For each domain, the log of a collector with the reason why there were no probes.
pub(super) type Logs = BTreeMap<ClockDomain, String>;

/// Clock records of this rank's inputs. They are taken from each input as soon as it is surveyed.
#[derive(Debug, Default)]
pub(crate) struct RecordedClocks {
    /// Domains of processes, by first occurrence in merge order.
    pub(super) domains: DomainList,
    /// Domains of shards without a process.
    pub(super) silent: DomainList,
    pub(super) best: BestClockSets,
    /// Clock of the process timestamps, per domain in which it is not BOOTTIME.
    pub(super) stamped: BTreeMap<ClockDomain, Clock>,
    /// All clocks of process timestamps, per domain.
    pub(super) stamps: BTreeSet<(ClockDomain, Clock)>,
    /// First and last BOOTTIME in clock sets and processes.
    pub(super) spans: Spans,
    /// First and last REALTIME of processes with REALTIME timestamps.
    pub(super) walls: Spans,
    pub(super) sets: BTreeMap<ClockDomain, Vec<TimedClockSet>>,
    pub(super) bursts: BTreeMap<(ClockDomain, ClockDomain), Vec<TimedBurst>>,
    pub(super) logs: Logs,
}

pub(super) fn widen(spans: &mut Spans, domain: &ClockDomain, (first, last): (i64, i64)) {
    match spans.get_mut(domain) {
        Some(span) => *span = (span.0.min(first), span.1.max(last)),
        None => drop(spans.insert(domain.clone(), (first, last))),
    }
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

    pub(super) fn message(self) -> ObservationMessage {
        let named = self.bursts.keys().flat_map(|(from, to)| [from, to]).chain(self.sets.keys());
        let domains: Vec<ClockDomain> = named.cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |domain: &ClockDomain| domains.binary_search(domain).unwrap_or(domains.len()) as u32;
        let sets = self.sets.into_iter().map(|(domain, sets)| (place(&domain), sets)).collect();
        let bursts = self.bursts.into_iter();
        let bursts = bursts.map(|((from, to), bursts)| (place(&from), place(&to), bursts)).collect();
        ObservationMessage { domains, sets, bursts }
    }
}
