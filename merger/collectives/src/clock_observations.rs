//! Selects the matched collectives that become clock observations: a limited number of those between several
//! clock domains, spread over the run.

use super::functions::FunctionWaits;
use super::matched_call::{MatchedCollective, RankCall};
use super::matching::MatchedCollectives;
use super::sample::sample_key;
use rpd_clocks::{CollectiveObservation, ObservedWaits, RankInterval};
use rpd_comm::{Comm, all_gather_values, gather_values};
use rpd_console::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of collectives that are passed to clock estimation.
const MAX_OBSERVATIONS: usize = 20_000;
/// Number of parts into which the run is divided on the clock of one domain. The same number of collectives is
/// selected from each part.
const RUN_PARTS: i64 = 1_000;

/// Collectives with their hashes, by clock domain of the first rank and part of the run.
type RunParts<T> = BTreeMap<(u32, i64), Vec<(u64, T)>>;

impl MatchedCollectives {
    /// Returns the collective observations on rank 0, and an empty list on other ranks. `domains` are all clock
    /// domains.
    pub fn clock_observations(
        &self,
        comm: &impl Comm,
        domains: &[ClockDomain],
    ) -> Result<Vec<CollectiveObservation>, Failure> {
        let places: BTreeMap<&ClockDomain, u32> = domains.iter().zip(0..).collect();
        let domain_of: Vec<Option<u32>> =
            self.members.all.iter().map(|one| places.get(&one.domain).copied()).collect();
        let shared = || self.timed.iter().filter_map(|one| Shared::new(one, &domain_of));
        let spans = spans(comm, shared(), domains.len())?;
        let most = (MAX_OBSERVATIONS / (RUN_PARTS as usize * spans.iter().flatten().count().max(1))).max(1);

        // Each part of the run contributes its collectives with the lowest hashes, so that the selection is the
        // same for any number of merge ranks.
        let mut parts: RunParts<Shared<'_>> = BTreeMap::new();
        for one in shared() {
            let Some(Some(span)) = spans.get(one.domain as usize) else { continue };
            let chosen = parts.entry((one.domain, span.part(one.at))).or_default();
            chosen.push((sample_key(one.collective.comm, one.collective.seq), one));
            if chosen.len() > 2 * most + 16 {
                keep_lowest(chosen, most);
            }
        }
        let mut mine: RunParts<CollectiveObservation> = BTreeMap::new();
        for (part, mut chosen) in parts {
            keep_lowest(&mut chosen, most);
            let observed = chosen.iter().map(|(key, one)| (*key, one.observation(&domain_of)));
            mine.insert(part, observed.collect());
        }
        let mut parts: RunParts<CollectiveObservation> = BTreeMap::new();
        for (part, mut chosen) in gather_values(comm, mine)?.into_iter().flatten() {
            parts.entry(part).or_default().append(&mut chosen);
        }
        parts.values_mut().for_each(|chosen| keep_lowest(chosen, most));
        Ok(parts.into_values().flatten().map(|(_, observation)| observation).collect())
    }
}

fn keep_lowest<T>(chosen: &mut Vec<(u64, T)>, most: usize) {
    chosen.sort_by_key(|(key, _)| *key);
    chosen.truncate(most);
}

/// A collective between several clock domains.
struct Shared<'a> {
    collective: &'a MatchedCollective,
    /// Clock domain of the first rank, and the time at which that rank entered.
    domain: u32,
    at: i64,
}

impl<'a> Shared<'a> {
    fn new(collective: &'a MatchedCollective, domain_of: &[Option<u32>]) -> Option<Shared<'a>> {
        let domain = |participant: u32| domain_of.get(participant as usize).copied().flatten();
        let first = collective.calls.first()?;
        let own = domain(first.participant)?;
        let others = collective.calls.iter().any(|call| domain(call.participant) != Some(own));
        // A rooted collective is usable only if its root is recorded.
        let rooted = collective.waits != FunctionWaits::AllForAll;
        let known = collective.root.is_some() && collective.calls.iter().all(|call| call.rank.is_some());
        (others && (!rooted || known)).then_some(Shared { collective, domain: own, at: first.enter })
    }

    fn observation(&self, domain_of: &[Option<u32>]) -> CollectiveObservation {
        let waits = match (self.collective.waits, self.collective.root) {
            (FunctionWaits::AllForAll, _) if self.collective.is_unnumbered => ObservedWaits::AllForAllByTimes,
            (FunctionWaits::AllForAll, _) => ObservedWaits::AllForAll,
            (FunctionWaits::AllForRoot, Some(root)) => ObservedWaits::AllForRoot(root),
            (FunctionWaits::RootForAll, Some(root)) => ObservedWaits::RootForAll(root),
            _ => ObservedWaits::Nothing,
        };
        let interval = |call: &RankCall| {
            let domain = domain_of.get(call.participant as usize).copied().flatten()?;
            let rank = call.rank.unwrap_or(call.participant);
            Some(RankInterval { domain, rank, enter: LocalNs(call.enter), exit: LocalNs(call.exit) })
        };
        CollectiveObservation {
            waits,
            intervals: self.collective.calls.iter().filter_map(interval).collect(),
        }
    }
}

/// First and last time of collectives on one clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Span(i64, i64);

impl Span {
    fn part(&self, at: i64) -> i64 {
        let length = (i128::from(self.1) - i128::from(self.0)).max(1);
        let since = i128::from(at) - i128::from(self.0);
        (since * i128::from(RUN_PARTS) / (length + 1)) as i64
    }
}

/// Returns, by domain, the span of the collectives that have their first rank in the domain.
fn spans<'a>(
    comm: &impl Comm,
    shared: impl Iterator<Item = Shared<'a>>,
    domains: usize,
) -> Result<Vec<Option<Span>>, Failure> {
    let widen = |span: &mut Option<Span>, more: Span| {
        let known = span.unwrap_or(more);
        *span = Some(Span(known.0.min(more.0), known.1.max(more.1)));
    };
    let mut own: Vec<Option<Span>> = vec![None; domains];
    for one in shared {
        if let Some(span) = own.get_mut(one.domain as usize) {
            widen(span, Span(one.at, one.at));
        }
    }
    let mut all: Vec<Option<Span>> = vec![None; domains];
    for theirs in all_gather_values::<Vec<Option<Span>>>(comm, &own)? {
        for (span, theirs) in all.iter_mut().zip(theirs) {
            theirs.into_iter().for_each(|theirs| widen(span, theirs));
        }
    }
    Ok(all)
}
