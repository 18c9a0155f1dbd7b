//! Clocks that the inputs of one merge rank have recorded.

use super::domains::{DomainList, domains_of};
use super::logs::log_of_no_probes;
use super::observations::{ObservationMessage, TimedBurst, TimedClockSet, thin_out_bursts, thin_out_sets};
use crate::input::best_clock_sets::{BestClockSets, keep_best};
use crate::input::survey::InputSurvey;
use rpd_shard::record::{Clock, ClockDomain, ClockSet, ProbeBurst, is_wall_time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// First and last recorded time of each domain, its BOOTTIME, ns.
pub(super) type Spans = BTreeMap<ClockDomain, (i64, i64)>;

/// For each domain, the log of a collector with the reason why there were no probes.
pub(super) type Logs = BTreeMap<ClockDomain, String>;

/// Facts about the recorded clocks that all merge ranks need. Observations of clocks against each other are larger and
/// go to rank 0 only.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ClockFacts {
    /// Domains of processes, by first occurrence in merge order.
    pub(super) domains: DomainList,
    /// Domains of shards without a process.
    pub(super) without_process: DomainList,
    pub(super) best: BestClockSets,
    /// A clock of the process timestamps other than BOOTTIME, for each domain that has one.
    pub(super) other_clocks: BTreeMap<ClockDomain, Clock>,
    /// All clocks of process timestamps, per domain.
    pub(super) clocks: BTreeSet<(ClockDomain, Clock)>,
    /// First and last BOOTTIME in clock sets and processes.
    pub(super) spans: Spans,
    /// First and last REALTIME of processes with REALTIME timestamps.
    pub(super) realtime_spans: Spans,
    pub(super) logs: Logs,
}

impl ClockFacts {
    /// Adds the facts of the next merge rank.
    pub(super) fn extend(&mut self, next: ClockFacts) {
        self.domains.extend(next.domains);
        self.without_process.extend(next.without_process);
        keep_best(&mut self.best, next.best.into_values());
        self.clocks.extend(next.clocks);
        next.spans.iter().for_each(|(domain, span)| widen(&mut self.spans, domain, *span));
        next.realtime_spans.iter().for_each(|(domain, span)| widen(&mut self.realtime_spans, domain, *span));
        for (domain, clock) in next.other_clocks {
            self.other_clocks.entry(domain).or_insert(clock);
        }
        for (domain, log) in next.logs {
            self.logs.entry(domain).or_insert(log);
        }
    }
}

/// Clock records of this rank's inputs. They are taken from each input as soon as it is surveyed.
#[derive(Debug, Default)]
pub(crate) struct RecordedClocks {
    pub(super) facts: ClockFacts,
    sets: BTreeMap<ClockDomain, Vec<TimedClockSet>>,
    bursts: BTreeMap<(ClockDomain, ClockDomain), Vec<TimedBurst>>,
}

fn widen(spans: &mut Spans, domain: &ClockDomain, (first, last): (i64, i64)) {
    match spans.get_mut(domain) {
        Some(span) => *span = (span.0.min(first), span.1.max(last)),
        None => drop(spans.insert(domain.clone(), (first, last))),
    }
}

impl RecordedClocks {
    /// Adds the clock records of the next input.
    pub(crate) fn add(&mut self, survey: &InputSurvey) {
        let facts = &mut self.facts;
        for source in &survey.sources {
            domains_of(source).into_iter().for_each(|domain| facts.domains.add(domain));
            let process = &source.process;
            facts.clocks.insert((process.domain.clone(), process.clock));
            if process.clock == Clock::Realtime && is_wall_time(process.first_seen) {
                let last = process.last_seen.filter(|last| is_wall_time(*last)).unwrap_or(process.first_seen);
                let span = (process.first_seen, last.max(process.first_seen));
                widen(&mut facts.realtime_spans, &process.domain, span);
            }
            if process.clock != Clock::Boottime {
                facts.other_clocks.entry(process.domain.clone()).or_insert(process.clock);
            } else if process.first_seen > 0 {
                let last = process.last_seen.unwrap_or(process.first_seen);
                widen(&mut facts.spans, &process.domain, (process.first_seen, last.max(process.first_seen)));
            }
        }
        let sets = survey.input.clocks();
        if let Some(first) = sets.first() {
            facts.without_process.add(first.domain.clone());
            if survey.input.probes().is_empty()
                && !facts.logs.contains_key(&first.domain)
                && let Some(log) = log_of_no_probes(survey.input.path())
            {
                facts.logs.insert(first.domain.clone(), log.display().to_string());
            }
        }
        keep_best(&mut facts.best, sets.iter().cloned());
        for ClockSet { domain, boottime, monotonic_raw, monotonic, realtime, bracket } in sets {
            widen(&mut facts.spans, domain, (*boottime, *boottime));
            let known = self.sets.entry(domain.clone()).or_default();
            known.push([*boottime, *monotonic_raw, *monotonic, *realtime, *bracket]);
            thin_out_sets(known);
        }
        for ProbeBurst { from, to, sent, answered, spread, best, kernel_times } in survey.input.probes() {
            let Some(first) = best.first() else { continue };
            let known = self.bursts.entry((from.clone(), to.clone())).or_default();
            known.push(TimedBurst {
                first: first.t1,
                round_trip: first.round_trip().unwrap_or(i64::MAX),
                sent: *sent,
                answered: *answered,
                spread: *spread,
                best: best.iter().map(|p| [p.t1, p.t2, p.t3, p.t4]).collect(),
                kernel_times: *kernel_times,
            });
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
