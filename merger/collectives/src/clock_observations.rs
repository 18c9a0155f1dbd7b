//! Selects the matched collectives that become clock observations: a limited number of those between several
//! clock domains, spread over the run.

use super::functions::WaitPattern;
use super::matched_call::MatchedCollective;
use super::matching::MatchedCollectives;
use super::sample::sample_key;
use rpd_clocks::{CollectiveObservation, RankInterval, WaitRelation};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of collectives that are passed to clock estimation.
const MAX_OBSERVATIONS: usize = 20_000;
/// Number of parts into which the run is divided on the clock of one domain. The same number of collectives is
/// selected from each part.
const PARTS: i64 = 1_000;

/// A collective on its way to rank 0: part of the run, hash and times.
#[derive(Serialize, Deserialize)]
struct Candidate {
    domain: u32,
    part: i64,
    key: u64,
    needs: (u8, u32),
    /// Participant, rank, entry and exit.
    attendances: Vec<(u32, u32, i64, i64)>,
}

/// Returns the collective observations on rank 0, and an empty list on other ranks. `domains` are all clock
/// domains.
pub fn clock_observations(
    comm: &impl Comm,
    matched: &MatchedCollectives,
    domains: &[ClockDomain],
) -> Result<Vec<CollectiveObservation>, Failure> {
    let places: BTreeMap<&ClockDomain, u32> = domains.iter().zip(0..).collect();
    let domain_of: Vec<Option<u32>> =
        matched.members.all.iter().map(|p| places.get(&p.domain).copied()).collect();
    let shared = || matched.kept.iter().filter_map(|kept| Shared::new(kept, &domain_of));
    let spans = spans(comm, shared(), domains.len())?;
    let most = (MAX_OBSERVATIONS / (PARTS as usize * spans.iter().flatten().count().max(1))).max(1);

    // Each part of the run contributes its collectives with the lowest hashes, so that the selection is the same
    // for any number of merge ranks.
    let mut parts: BTreeMap<(u32, i64), Vec<(u64, Shared<'_>)>> = BTreeMap::new();
    for one in shared() {
        let Some(Some(span)) = spans.get(one.domain as usize) else { continue };
        let chosen = parts.entry((one.domain, span.part(one.at))).or_default();
        chosen.push((sample_key(one.kept.comm, one.kept.seq), one));
        if chosen.len() > 2 * most + 16 {
            keep_lowest(chosen, most);
        }
    }
    let mut mine: Vec<Candidate> = Vec::new();
    for ((domain, part), mut chosen) in parts {
        keep_lowest(&mut chosen, most);
        mine.extend(chosen.iter().map(|(key, one)| one.candidate(domain, part, *key)));
    }
    let mut outgoing = vec![Vec::new(); comm.size()];
    if let Some(to_first) = outgoing.first_mut() {
        *to_first = wire::encode(&mine);
    }
    drop(mine);
    let incoming = comm.all_to_all(outgoing);
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let mut parts: BTreeMap<(u32, i64), Vec<(u64, Candidate)>> = BTreeMap::new();
    for message in incoming {
        let theirs: Vec<Candidate> = wire::decode_message(&message).map_err(Failure::message)?;
        for candidate in theirs {
            let key = (candidate.domain, candidate.part);
            parts.entry(key).or_default().push((candidate.key, candidate));
        }
    }
    let mut meetings = Vec::new();
    for mut chosen in parts.into_values() {
        keep_lowest(&mut chosen, most);
        meetings.extend(chosen.into_iter().map(|(_, candidate)| candidate.meeting(&domain_of)));
    }
    Ok(meetings)
}

fn keep_lowest<T>(chosen: &mut Vec<(u64, T)>, most: usize) {
    chosen.sort_by_key(|(key, _)| *key);
    chosen.truncate(most);
}

/// A collective between several clock domains.
struct Shared<'a> {
    kept: &'a MatchedCollective,
    /// Clock domain of the first rank, and the time at which that rank entered.
    domain: u32,
    at: i64,
}

impl<'a> Shared<'a> {
    fn new(kept: &'a MatchedCollective, domain_of: &[Option<u32>]) -> Option<Shared<'a>> {
        let domain = |participant: u32| domain_of.get(participant as usize).copied().flatten();
        let first = kept.guests.first()?;
        let own = domain(first.participant)?;
        let others = kept.guests.iter().any(|guest| domain(guest.participant) != Some(own));
        // A rooted collective is usable only if its root is recorded.
        let rooted = kept.waits != WaitPattern::AllForAll;
        let known = kept.root.is_some() && kept.guests.iter().all(|guest| guest.rank.is_some());
        (others && (!rooted || known)).then_some(Shared { kept, domain: own, at: first.enter })
    }

    fn candidate(&self, domain: u32, part: i64, key: u64) -> Candidate {
        let needs = match (self.kept.waits, self.kept.root) {
            (WaitPattern::AllForAll, _) if self.kept.by_order => (4, 0),
            (WaitPattern::AllForAll, _) => (1, 0),
            (WaitPattern::AllForRoot, Some(root)) => (2, root),
            (WaitPattern::RootForAll, Some(root)) => (3, root),
            _ => (0, 0),
        };
        let guests = self.kept.guests.iter();
        let rank = |guest: &super::matched_call::RankCall| guest.rank.unwrap_or(guest.participant);
        let attendances = guests.map(|g| (g.participant, rank(g), g.enter, g.exit)).collect();
        Candidate { domain, part, key, needs, attendances }
    }
}

impl Candidate {
    fn meeting(self, domain_of: &[Option<u32>]) -> CollectiveObservation {
        let needs = match self.needs {
            (1, _) => WaitRelation::AllOfAll,
            (4, _) => WaitRelation::AllOfAllByTimes,
            (2, root) => WaitRelation::AllOfRoot(root),
            (3, root) => WaitRelation::RootOfAll(root),
            _ => WaitRelation::Nothing,
        };
        let attendance = |(participant, rank, enter, exit): (u32, u32, i64, i64)| {
            let domain = domain_of.get(participant as usize).copied().flatten()?;
            Some(RankInterval { domain, rank, enter: LocalNs(enter), exit: LocalNs(exit) })
        };
        CollectiveObservation {
            needs,
            attendances: self.attendances.into_iter().filter_map(attendance).collect(),
        }
    }
}

/// First and last time of collectives on one clock.
#[derive(Clone, Copy, Debug)]
struct Span(i64, i64);

impl Span {
    fn part(&self, at: i64) -> i64 {
        let length = (i128::from(self.1) - i128::from(self.0)).max(1);
        let since = i128::from(at) - i128::from(self.0);
        (since * i128::from(PARTS) / (length + 1)) as i64
    }
}

/// Returns, by domain, the span of the collectives whose first rank belongs to the domain.
fn spans<'a>(
    comm: &impl Comm,
    shared: impl Iterator<Item = Shared<'a>>,
    domains: usize,
) -> Result<Vec<Option<Span>>, Failure> {
    let wider = |span: &mut Option<Span>, low: i64, high: i64| {
        let known = span.unwrap_or(Span(low, high));
        *span = Some(Span(known.0.min(low), known.1.max(high)));
    };
    let mut own: Vec<Option<Span>> = vec![None; domains];
    for one in shared {
        if let Some(span) = own.get_mut(one.domain as usize) {
            wider(span, one.at, one.at);
        }
    }
    let mine: Vec<Option<(i64, i64)>> = own.iter().map(|span| span.map(|s| (s.0, s.1))).collect();
    let mut all: Vec<Option<Span>> = vec![None; domains];
    for message in comm.all_gather(wire::encode(&mine)) {
        let theirs: Vec<Option<(i64, i64)>> = wire::decode_message(&message).map_err(Failure::message)?;
        for (span, theirs) in all.iter_mut().zip(theirs) {
            theirs.into_iter().for_each(|(low, high)| wider(span, low, high));
        }
    }
    Ok(all)
}
