//! Uses unnumbered collectives between clock domains only where their times show that the calls are one
//! collective, see [`super::timing_evidence`]. All merge ranks get the same result from rank 0.

use super::functions::FunctionWaits;
use super::matched_call::MatchedCollective;
use super::participants::JobMembers;
use super::sample::sample_key;
use super::timing_evidence::{DomainCall, MIN_CALLS, RejectionReason, TimedRound, evidence};
use rpd_comm::{Comm, broadcast_result, gather_values};
use rpd_console::Failure;
use rpd_console::wording::{duration, grouped};
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of calls of one communicator that are evaluated, and of intervals of all of them (about 8 MB).
const MAX_EVALUATED_CALLS: usize = 4_096;
const MAX_INTERVALS: usize = 1 << 18;
/// Maximum number of communicators that are reported one by one.
const MAX_SHOWN_COMMUNICATORS: usize = 5;
/// Maximum number of hosts of one communicator that a line names.
const MAX_NAMED_HOSTS: usize = 4;
/// If more than one call in this many is contradicted on one node, the ranks there belong to several
/// communicators.
const CONTRADICTED_PART: u64 = 20;

/// Unnumbered calls that the check of their times rejected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct RejectedByTiming {
    /// Number of matched calls that are not used between some domains.
    pub(super) calls: u64,
    /// One line for each communicator with its calls and the reason.
    pub(super) lines: Vec<String>,
    /// Communicators of the rejected calls.
    pub(super) communicators: BTreeSet<u64>,
}

/// Calls of one communicator: those that are evaluated, and the numbers of usable and of contradicted ones.
#[derive(Default, Serialize, Deserialize)]
struct CommunicatorCalls {
    rounds: Vec<TimedRound>,
    usable: u64,
    contradicted: u64,
}

/// Decision of rank 0: the groups of domains that may be compared, by communicator.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TimingDecision {
    parts: BTreeMap<u64, Vec<Vec<u32>>>,
    unproven: RejectedByTiming,
}

/// Splits calls of several domains that are not shown to be one collective. `unnumbered` are the communicators
/// with calls that are matched by order alone, `contradicted` the number of their contradicted calls.
pub(super) fn accept_by_timing(
    comm: &impl Comm,
    members: &JobMembers,
    unnumbered: &BTreeSet<u64>,
    contradicted: &BTreeMap<u64, u64>,
    matched: &mut Vec<MatchedCollective>,
) -> Result<RejectedByTiming, Failure> {
    let domains = Domains::new(members);
    if unnumbered.is_empty() || domains.hosts.len() < 2 {
        return Ok(RejectedByTiming::default());
    }
    let mut mine: BTreeMap<u64, CommunicatorCalls> = BTreeMap::new();
    let most =
        (MAX_INTERVALS / (domains.hosts.len() * unnumbered.len())).clamp(2 * MIN_CALLS, MAX_EVALUATED_CALLS);
    let for_all = matched.iter().filter(|one| one.waits == FunctionWaits::AllForAll);
    for one in for_all.filter(|one| unnumbered.contains(&one.comm)) {
        let stays = domains.stays(one);
        if stays.len() > 1 {
            let calls = mine.entry(one.comm).or_default();
            calls.usable += 1;
            calls.rounds.push(TimedRound { seq: one.seq, kind: one.kind, stays });
            if calls.rounds.len() > 2 * most {
                keep_lowest(one.comm, &mut calls.rounds, most);
            }
        }
    }
    contradicted.iter().for_each(|(hash, n)| mine.entry(*hash).or_default().contradicted += n);
    mine.iter_mut().for_each(|(hash, calls)| keep_lowest(*hash, &mut calls.rounds, most));
    let gathered = gather_values(comm, mine)?;
    let decision = broadcast_result(comm, || Ok(decide(gathered, most, &domains, members)))?;
    *matched = std::mem::take(matched).into_iter().flat_map(|one| split(one, &decision, &domains)).collect();
    Ok(decision.unproven)
}

fn keep_lowest(communicator: u64, rounds: &mut Vec<TimedRound>, most: usize) {
    rounds.sort_by_key(|round| sample_key(communicator, round.seq));
    rounds.truncate(most);
}

/// Decides on rank 0 which domains of each communicator took part in the same collectives.
fn decide(
    gathered: Vec<BTreeMap<u64, CommunicatorCalls>>,
    most: usize,
    domains: &Domains<'_>,
    members: &JobMembers,
) -> TimingDecision {
    let mut all: BTreeMap<u64, CommunicatorCalls> = BTreeMap::new();
    for (communicator, mut theirs) in gathered.into_iter().flatten() {
        let calls = all.entry(communicator).or_default();
        calls.rounds.append(&mut theirs.rounds);
        calls.usable += theirs.usable;
        calls.contradicted += theirs.contradicted;
    }
    let mut decision = TimingDecision::default();
    let mut more = 0;
    for (communicator, calls) in all.into_iter().filter(|(_, calls)| calls.usable > 0) {
        let CommunicatorCalls { mut rounds, usable, contradicted } = calls;
        keep_lowest(communicator, &mut rounds, most);
        rounds.sort_by_key(|round| round.seq);
        let domains_of = |round: &TimedRound| round.stays.iter().map(|stay| stay.domain).collect();
        let here: Vec<u32> = rounds.first().map_or(Vec::new(), domains_of);
        rounds.retain(|round| domains_of(round) == here);
        let all = usable + contradicted;
        let (parts, why): (Vec<Vec<u32>>, _) = if contradicted * CONTRADICTED_PART > all {
            let (some, all) = (grouped(contradicted), grouped(all));
            let why = format!("in {some} of {all} calls a rank left before another one on its node came");
            (Vec::new(), Some(why))
        } else {
            let found = evidence(&rounds, here.len());
            let part = |places: &Vec<usize>| places.iter().map(|place| here[*place]).collect();
            let why = found.rejected.first().map(|reason| describe_reason(*reason, &here, domains));
            (found.parts.iter().map(part).collect(), why)
        };
        let first = here.first().copied().unwrap_or(0);
        let reached = parts.iter().find(|part| part.contains(&first)).cloned().unwrap_or_default();
        decision.parts.insert(communicator, parts);
        let Some(why) = why else { continue };
        decision.unproven.calls += usable;
        decision.unproven.communicators.insert(communicator);
        if decision.unproven.lines.len() == MAX_SHOWN_COMMUNICATORS {
            more += 1;
            continue;
        }
        let out: Vec<u32> = here.iter().copied().filter(|d| *d != first && !reached.contains(d)).collect();
        let which = format!("{} calls of {}", grouped(usable), domains.describe(&out, &here, first, members));
        decision.unproven.lines.push(format!("{which}: {why}"));
    }
    if more > 0 {
        decision.unproven.lines.push(format!("and calls on {more} more communicators"));
    }
    decision
}

/// Describes the reason of a rejection.
fn describe_reason(
    (domain, other, reason): (usize, usize, RejectionReason),
    here: &[u32],
    domains: &Domains<'_>,
) -> String {
    let host = |place: usize| here.get(place).map_or("?", |domain| domains.host(*domain));
    let (domain, other) = (host(domain), host(other));
    let ns = |ns: f64| duration(ns as i64);
    match reason {
        RejectionReason::Few(_) => format!("too few to tell, it takes {MIN_CALLS}"),
        RejectionReason::Apart { exits, entries } => format!(
            "ends on {other} and {domain} are {} apart, beginnings {}: neither seems to have waited for the other",
            ns(exits),
            ns(entries)
        ),
        RejectionReason::Follows { parted, of } => format!(
            "in {} of {} calls ranks left one after the other, as they had come",
            grouped(parted as u64),
            grouped(of as u64)
        ),
        RejectionReason::NeverLast => {
            format!("{domain} waited for {other}, and no rank waited for {domain}, or too seldom")
        }
        RejectionReason::AlwaysLast => {
            format!("{other} waited for {domain}, and {domain} for no rank, or too seldom")
        }
        RejectionReason::LastWaits { last, .. } => format!(
            "the last rank to enter stayed for times that are {} apart: it waited for a rank that is not among the inputs",
            ns(last)
        ),
    }
}

/// Keeps a call that is shown to be one collective. Splits any other call into one collective for each group of
/// domains and for each remaining domain.
fn split(one: MatchedCollective, decision: &TimingDecision, domains: &Domains<'_>) -> Vec<MatchedCollective> {
    let Some(parts) = decision.parts.get(&one.comm) else {
        // The call has a number, or the communicator is on one node only.
        return vec![one];
    };
    let part_of = |participant: u32| {
        let domain = domains.of.get(participant as usize).copied().unwrap_or(u32::MAX);
        parts.iter().find(|part| part.contains(&domain)).map_or(domain, |part| part[0])
    };
    let mut by_part: BTreeMap<u32, MatchedCollective> = BTreeMap::new();
    for call in &one.calls {
        let part = by_part.entry(part_of(call.participant));
        part.or_insert_with(|| MatchedCollective { calls: Vec::new(), ..one.clone() }).calls.push(*call);
    }
    by_part.into_values().filter(|part| part.calls.len() > 1).collect()
}

/// The clock domains of all participants.
struct Domains<'a> {
    /// A host name of each domain.
    hosts: Vec<&'a str>,
    /// Domain index by participant.
    of: Vec<u32>,
}

impl<'a> Domains<'a> {
    /// Collects the domains in order of first occurrence.
    fn new(members: &'a JobMembers) -> Domains<'a> {
        let mut places: BTreeMap<&ClockDomain, u32> = BTreeMap::new();
        let mut domains = Domains { hosts: Vec::new(), of: Vec::with_capacity(members.all.len()) };
        for participant in &members.all {
            let place = *places.entry(&participant.domain).or_insert(domains.hosts.len() as u32);
            if place as usize == domains.hosts.len() {
                domains.hosts.push(&participant.host);
            }
            domains.of.push(place);
        }
        domains
    }

    fn host(&self, domain: u32) -> &str {
        self.hosts.get(domain as usize).copied().unwrap_or("?")
    }

    /// Returns the interval of each domain in a call, in order of the domains.
    fn stays(&self, one: &MatchedCollective) -> Vec<DomainCall> {
        let mut by_domain: BTreeMap<u32, (i64, Vec<i64>)> = BTreeMap::new();
        for call in &one.calls {
            let Some(domain) = self.of.get(call.participant as usize) else { continue };
            let (enter, exits) = by_domain.entry(*domain).or_insert((call.enter, Vec::new()));
            *enter = call.enter.max(*enter);
            exits.push(call.exit);
        }
        let stay = |(domain, (enter, mut exits)): (u32, (i64, Vec<i64>))| {
            exits.sort_unstable();
            let exit = exits.get(exits.len().saturating_sub(1) / 2).copied()?;
            Some(DomainCall { domain, enter, exit, first_exit: exits.first().copied()? })
        };
        by_domain.into_iter().filter_map(stay).collect()
    }

    /// Names the domains of calls that are not compared, with their ranks, and the domain with which they are not
    /// compared.
    fn describe(&self, out: &[u32], here: &[u32], first: u32, members: &JobMembers) -> String {
        let out = if out.is_empty() { here } else { out };
        let mut hosts: Vec<&str> =
            out.iter().take(MAX_NAMED_HOSTS).map(|domain| self.host(*domain)).collect();
        let more = out.len() - hosts.len();
        let more_hosts = format!("{more} more nodes");
        if more > 0 {
            hosts.push(&more_hosts);
        }
        let all: BTreeSet<u32> = out.iter().copied().collect();
        let ranks = members.all.iter().zip(&self.of).filter(|(_, domain)| all.contains(domain));
        let ranks: Vec<u32> = ranks.filter_map(|(participant, _)| participant.rank).collect();
        let ranks = match ranks.iter().min().zip(ranks.iter().max()) {
            Some((low, high)) if low == high => format!(" (rank {low})"),
            Some((low, high)) => format!(" (ranks {low} to {high})"),
            None => String::new(),
        };
        format!("{}{ranks} and {}", hosts.join(", "), self.host(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::functions::CollectiveFunction;
    use super::super::matched_call::RankCall;
    use super::super::participants::JobParticipant;
    use super::*;
    use rpd_comm::threads;

    const CALLS: u64 = 200;

    fn members() -> JobMembers {
        JobMembers { all: (0..6).map(JobParticipant::for_test).collect(), first: 0 }
    }

    /// Calls of three nodes with two ranks each. The calls of the last node are on a separate communicator.
    fn calls(comm: u64) -> Vec<MatchedCollective> {
        let call = |seq: u64| {
            let enter =
                |rank: u64| (sample_key(sample_key(comm, seq), rank) % 1_000_000 + seq * 5_000_000) as i64;
            let last = |ranks: std::ops::Range<u64>| ranks.map(enter).max().unwrap_or(0);
            let exit = |rank: u64| if rank < 4 { last(0..4) } else { last(4..6) + 700_000 } + 9_000;
            let rank_call = |rank: u64| RankCall {
                participant: rank as u32,
                rank: None,
                enter: if rank < 4 { enter(rank) } else { enter(rank) + 700_000 },
                exit: exit(rank) + (sample_key(seq, rank) % 2_000) as i64,
                own_time: None,
            };
            let calls = (0..6).map(rank_call).collect();
            let function = CollectiveFunction::named(b"MPI_Allreduce").unwrap();
            MatchedCollective {
                comm,
                seq,
                function,
                kind: 0,
                is_unnumbered: true,
                waits: FunctionWaits::AllForAll,
                root: None,
                calls,
            }
        };
        (1..=CALLS).map(call).collect()
    }

    /// Returns the remaining calls and the rejections with this number of merge ranks.
    fn outcome(ranks: usize, contradicted: u64) -> (Vec<MatchedCollective>, RejectedByTiming) {
        let outcomes = threads::run(ranks, |comm| {
            let mine = |one: &MatchedCollective| {
                sample_key(one.comm, one.seq) % comm.size() as u64 == comm.rank() as u64
            };
            let mut matched: Vec<MatchedCollective> =
                calls(7).into_iter().chain(calls(8)).filter(mine).collect();
            let here = if comm.rank() == 0 { contradicted } else { 0 };
            let wrong = BTreeMap::from([(7, here)]);
            let unproven =
                accept_by_timing(comm, &members(), &BTreeSet::from([7, 9]), &wrong, &mut matched).unwrap();
            (matched, unproven)
        });
        let unproven = outcomes[0].1.clone();
        assert!(outcomes.iter().all(|outcome| outcome.1 == unproven), "all ranks are told the same");
        let mut matched: Vec<MatchedCollective> =
            outcomes.into_iter().flat_map(|outcome| outcome.0).collect();
        matched.sort_by_key(|one| (one.comm, one.seq, one.calls[0].participant));
        (matched, unproven)
    }

    #[test]
    fn calls_are_taken_apart_in_the_same_way_by_any_number_of_merge_ranks() {
        let (matched, unproven) = outcome(1, 0);
        assert_eq!(unproven.calls, CALLS);
        assert_eq!(unproven.lines.len(), 1, "{unproven:?}");
        assert!(
            unproven.lines[0].starts_with("200 calls of h2 (ranks 4 to 5) and h0: ends on"),
            "{unproven:?}"
        );
        let sizes = |comm| {
            matched.iter().filter(|one| one.comm == comm).map(|one| one.calls.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(7), [4, 2].repeat(CALLS as usize));
        assert_eq!(sizes(8), [6].repeat(CALLS as usize), "others are left alone");
        assert_eq!(outcome(3, 0), (matched, unproven));
    }

    #[test]
    fn ranks_of_a_node_that_are_on_several_communicators_tell_nothing_of_other_nodes() {
        let (matched, unproven) = outcome(2, 20);
        assert!(matched.iter().filter(|one| one.comm == 7).all(|one| one.calls.len() == 2));
        let why = "in 20 of 220 calls a rank left before another one on its node came";
        assert!(unproven.lines[0].ends_with(why), "{unproven:?}");
        assert!(outcome(2, 5).0.iter().any(|one| one.comm == 7 && one.calls.len() == 4));
    }
}
