//! Collects the clock records of all inputs on rank 0, fits the clocks there, and sends the fits to all ranks.

use super::job_clocks::{CausalityRepair, JobClocks};
use super::observations::{ObservationMessage, put_together};
use super::recorded_clocks::{Logs, RecordedClocks, Spans, widen};
use super::{domains::DomainList, nodes::JobNodes};
use crate::input::best_clock_sets::{BestClockSets, keep_best};
use crate::input::home::HostClocks;
use crate::input::home::MERGED_TIME_NAMESPACE;
use clap::ValueEnum;
use rpd_clocks::{
    AlignChoice, AlignMethod, ClockFile, ClockObservations, CollectiveObservation, DomainFit, NamedDomain,
    align,
};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::record::{Clock, ClockDomain, ClockSet, wire};
use std::collections::{BTreeMap, BTreeSet};

/// Domains, domains without a process, best clock sets, clocks other than BOOTTIME, spans, logs, all clocks, spans of
/// REALTIME.
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

/// Clocks of the job before alignment. Observations and clock sets are complete on rank 0 only.
#[derive(Debug, Default)]
pub(crate) struct GatheredClocks {
    /// Domains and reference; on rank 0 also their observations. Collective observations are added later.
    pub observations: ClockObservations,
    best: BestClockSets,
    stamped: BTreeMap<ClockDomain, Clock>,
    stamps: BTreeSet<(ClockDomain, Clock)>,
    spans: Spans,
    logs: Logs,
    /// Number of leading domains that have processes.
    of_processes: usize,
    /// Number of bursts that were discarded because their clocks cannot have shown such times; on rank 0.
    impossible: u64,
}

impl GatheredClocks {
    /// Gathers the clock records of all ranks.
    ///
    /// The reference is the node of the lowest rank, or a domain of `preferred` if present, whose times cannot
    /// change.
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
        let mut best = BestClockSets::new();
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

    /// Aligns the domains. `collectives` are complete on rank 0. All ranks get the same result.
    pub(crate) fn align(
        mut self,
        comm: &impl Comm,
        collectives: Vec<CollectiveObservation>,
        how: &AlignOptions<'_>,
    ) -> Result<JobClocks, Failure> {
        self.observations.collectives = collectives;
        let mut told: (Vec<DomainFit>, Vec<u64>, Option<CausalityRepair>, u64, Vec<String>) =
            Default::default();
        if comm.rank() == 0 {
            let mut fits = align(&self.observations, how.align);
            let notes = how.by_clock_file(&self, &mut fits);
            // Without aligned clocks, times in the wrong order are expected and not counted.
            let aligned: Vec<bool> = fits.iter().map(|fit| fit.method != AlignMethod::None).collect();
            let is_aligned = |domain: u32| aligned.get(domain as usize).copied().unwrap_or(false);
            let collectives = &mut self.observations.collectives;
            collectives.retain(|one| one.intervals.iter().all(|a| is_aligned(a.domain)));
            let check = self.observations.causality(&fits);
            let (left, moved) = match how.repair_causality {
                true => {
                    let repaired = self.observations.repair_causality(&mut fits);
                    let repair = CausalityRepair {
                        before: check.violations,
                        after: repaired.left.violations,
                        out_of_reach: repaired.out_of_reach,
                        moved_ns: repaired.moved,
                    };
                    (repaired.left, Some(repair))
                }
                false => (check, None),
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
            unknown: DomainFit::default(),
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
    /// Applies the clock file to domains that are not aligned, or aligned only by their wall clocks. Returns notes
    /// about the file.
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
