//! Collects the clock records of all inputs on rank 0, fits the clocks there, and sends the fits to all ranks.

use super::job_clocks::{CausalityRepair, JobClocks};
use super::nodes::JobNodes;
use super::observations::{ObservationMessage, combine_observations};
use super::recorded_clocks::{ClockFacts, RecordedClocks};
use crate::input::HostClocks;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use clap::ValueEnum;
use rpd_clocks::{
    AlignChoice, AlignMethod, ClockFile, ClockObservations, CollectiveObservation, DomainFit, NamedDomain,
    align,
};
use rpd_comm::{Comm, all_gather_values, broadcast_result};
use rpd_console::Failure;
use rpd_shard::record::{Clock, ClockDomain, wire};
use serde::{Deserialize, Serialize};

/// Clocks of the job before alignment. Observations and clock sets are complete on rank 0 only.
#[derive(Debug, Default)]
pub(crate) struct GatheredClocks {
    /// Domains and reference; on rank 0 also their observations. Collective observations are added later.
    pub observations: ClockObservations,
    facts: ClockFacts,
    /// Number of leading domains that have processes.
    of_processes: usize,
    /// Number of bursts that were discarded because their clocks cannot have shown such times; on rank 0.
    impossible: u64,
}

impl GatheredClocks {
    /// Gathers the clock records of all ranks.
    ///
    /// The reference is the node of the lowest rank, or a domain of `preferred` if present, as its times cannot
    /// change.
    pub(crate) fn gather(
        comm: &impl Comm,
        own: RecordedClocks,
        preferred: &[ClockDomain],
    ) -> Result<GatheredClocks, Failure> {
        let mut facts = ClockFacts::default();
        all_gather_values(comm, &own.facts)?.into_iter().for_each(|next| facts.extend(next));
        let of_processes = facts.domains.all.len();
        let mut domains = std::mem::take(&mut facts.domains);
        domains.extend(std::mem::take(&mut facts.without_process));
        let domains = domains.all;
        // The node of the lowest rank. A domain without clock sets cannot be the reference for others.
        let known = || domains.iter().enumerate().filter(|(_, domain)| facts.best.contains_key(domain));
        let chosen = known().find(|(_, domain)| preferred.contains(domain)).or_else(|| known().next());
        let reference = chosen.map_or(0, |(place, _)| place);
        // If times of a domain come from several clocks, the offsets between these clocks are unknown.
        let is_realtime = |domain: &ClockDomain| {
            let mut of = facts.clocks.iter().filter(|(of, _)| of == domain);
            !facts.best.contains_key(domain) && of.all(|(_, clock)| *clock == Clock::Realtime)
        };
        let realtime_span = |(place, domain): (usize, &ClockDomain)| {
            Some((place, *facts.realtime_spans.get(domain).filter(|_| is_realtime(domain))?))
        };
        let walls = domains.iter().enumerate().filter_map(realtime_span).collect();
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
            impossible = combine_observations(all.map_err(Failure::damaged_message)?, &mut observations);
        }
        Ok(GatheredClocks { observations, facts, of_processes, impossible })
    }

    /// Returns the first and last recorded time of each domain, its BOOTTIME, ns; in merge order.
    pub(crate) fn spans(&self) -> Vec<Option<(i64, i64)>> {
        self.observations.domains.iter().map(|domain| self.facts.spans.get(domain).copied()).collect()
    }

    /// Returns whether there is more than one clock to align.
    pub(crate) fn is_of_several(&self) -> bool {
        let domains = self.observations.domains.iter();
        domains.filter(|domain| domain.time_namespace != MERGED_TIME_NAMESPACE).count() > 1
    }

    /// Aligns the domains. `collectives` are complete on rank 0. All ranks get the same result.
    pub(crate) fn align(
        mut self,
        comm: &impl Comm,
        collectives: Vec<CollectiveObservation>,
        how: &AlignOptions<'_>,
    ) -> Result<JobClocks, Failure> {
        self.observations.collectives = collectives;
        let aligned = broadcast_result(comm, || Ok(self.align_on_rank_0(how)))?;
        let ClockObservations { domains, reference, .. } = self.observations;
        let reference = domains.get(reference).cloned();
        let reference = reference.unwrap_or(ClockDomain { boot_id: String::new(), time_namespace: 0 });
        let violations = domains.iter().cloned().zip(aligned.violations).collect();
        let fits = domains.iter().cloned().zip(aligned.fits).collect();
        let facts = self.facts;
        let other = facts.other_clocks.get(&reference).filter(|_| !facts.best.contains_key(&reference));
        let align = how.align.to_possible_value();
        Ok(JobClocks {
            domains,
            fits,
            violations,
            repaired: aligned.repaired,
            impossible: aligned.impossible,
            clock_file_notes: aligned.clock_file_notes,
            has_clock_file: how.clock_file.is_some(),
            logs: facts.logs,
            clock: other.copied().unwrap_or(Clock::Boottime),
            align: align.map_or(String::new(), |value| value.get_name().to_owned()),
            reference,
            best: facts.best,
            spans: facts.spans,
            clocks: facts.clocks,
            host_clocks: how.host_clocks.clone(),
            unknown: DomainFit::default(),
        })
    }

    fn align_on_rank_0(&mut self, how: &AlignOptions<'_>) -> AlignedClocks {
        let mut fits = align(&self.observations, how.align);
        let clock_file_notes = how.by_clock_file(self, &mut fits);
        // Without aligned clocks, times in the wrong order are expected and not counted.
        let aligned: Vec<bool> = fits.iter().map(|fit| fit.method != AlignMethod::None).collect();
        let is_aligned = |domain: u32| aligned.get(domain as usize).copied().unwrap_or(false);
        let collectives = &mut self.observations.collectives;
        collectives.retain(|one| one.intervals.iter().all(|a| is_aligned(a.domain)));
        let check = self.observations.causality(&fits);
        let (left, repaired) = match how.repair_causality {
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
        let violations = left.by_domain;
        AlignedClocks { fits, violations, repaired, impossible: self.impossible, clock_file_notes }
    }
}

/// Result of the alignment, which rank 0 sends to all ranks. Fits and violations are in the order of the domains.
#[derive(Debug, Serialize, Deserialize)]
struct AlignedClocks {
    fits: Vec<DomainFit>,
    violations: Vec<u64>,
    repaired: Option<CausalityRepair>,
    impossible: u64,
    clock_file_notes: Vec<String>,
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
    pub host_clocks: &'a HostClocks,
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
            let middle = observed.facts.spans.get(domain).map(|(first, last)| first.midpoint(*last));
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
