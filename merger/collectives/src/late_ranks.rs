//! Finds the ranks that the others wait for. The wait time of all collectives in which every rank waits for all
//! ranks is summed up by cause. Start-up is excluded and reported separately.

use super::functions::FunctionWaits;
use super::late_rank_verdict::{LateCauses, LatenessVerdict, MissingCause, decide};
use super::matched_call::MatchedCollective;
use super::matching::MatchedCollectives;
use super::participant_clocks::ParticipantClocks;
use super::participants::{JobMembers, JobParticipant};
use super::start_up::{StartUp, find_start_up};
use super::untimed::{CallTimes, FINALIZE_SPREAD_NS, time_over_shortest};
use super::waiting::{CollectiveWait, waiting};
use rpd_clocks::DomainFit;
use rpd_comm::{Comm, broadcast_result, gather_values};
use rpd_console::Failure;
use rpd_shard::record::ClockDomain;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::num::Saturating;

/// Maximum number of late ranks that are reported.
const MAX_LATE_RANKS: usize = 5;
/// Maximum number of functions named among those that are not compared.
const MAX_FUNCTIONS: usize = 3;
/// Percentage of the wait time for a rank that the counted collectives must explain.
const COUNTED_PERCENT: i64 = 95;
/// Percentage of the shared wait time in which ranks must be among the late ones to be reported as late
/// together.
const TOGETHER_PERCENT: i64 = 75;

/// How long a rank kept the others waiting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LateRank {
    /// The rank; absent if the process has none.
    pub rank: Option<u32>,
    /// Process id.
    pub pid: i32,
    /// Host name of the node.
    pub host: String,
    /// Time that all other ranks together waited for it, ns.
    pub waited_ns: i64,
    /// `waited_ns` as a share of all wait time in collectives after start-up, from 0 to 1.
    pub waited_share: f64,
    /// Number of collectives in which its own time explains the wait time. Only those with the longest wait are
    /// counted, which add up to 95 % of it.
    pub last: u64,
    /// Number of collectives in which it took part.
    pub collectives: u64,
    /// How much more own time it spent than each other rank before the counted collectives: the median, ns.
    pub behind_ns: i64,
    /// The maximum of that excess, ns.
    pub worst_ns: i64,
    /// Median error bound between the clocks of the first and the last rank to enter, ns; `None` if it is not
    /// known.
    pub clock_bar_ns: Option<i64>,
}

/// How long ranks waited in collectives, and for which rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatenessSummary {
    /// The rank that others wait for, or why no rank is named.
    #[serde(flatten)]
    pub verdict: LatenessVerdict,
    /// Time that all ranks together waited in collectives after start-up, ns. It is an estimate if only a sample
    /// of the collectives was compared.
    pub waited_ns: i64,
    /// `waited_ns` per rank as a share of the run, from 0 to 1.
    pub waited_share_of_run: f64,
    /// Recorded duration of the run, ns.
    pub run_ns: i64,
    /// The part of `waited_ns` that no rank's own time explains, because messages delayed the ranks that entered
    /// late.
    pub held_up_ns: i64,
    /// The part of `waited_ns` that no rank's own time explains, because other collectives delayed the ranks
    /// that entered late.
    #[serde(default)]
    pub passed_on_ns: i64,
    /// Time that all ranks spent in calls in which they may also have waited, and which are not compared,
    /// ns.
    #[serde(default)]
    pub not_compared_ns: i64,
    /// The functions with the largest part of `not_compared_ns`.
    #[serde(default)]
    pub not_compared_calls: Vec<String>,
    /// `not_compared_ns` per rank as a share of the run, from 0 to 1.
    #[serde(default)]
    pub not_compared_share_of_run: f64,
    /// Start-up, where it is recorded.
    pub start_up: Option<StartUp>,
}

/// Sums for one participant.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Sum {
    waited: Saturating<i64>,
    collectives: u64,
    /// For each collective that it delayed: wait time of the others for it, excess of its own time, and error
    /// bound of the clocks. -1 is unknown.
    charges: Vec<(i64, i64, i64)>,
    /// Wait time for several ranks of which it was one.
    late_together: Saturating<i64>,
}

/// Sums over all collectives of a merge rank.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Sums {
    by_participant: BTreeMap<u32, Sum>,
    /// Wait time for all ranks of a node, by host.
    nodes: BTreeMap<String, Saturating<i64>>,
    /// Number of collectives with comparable times.
    compared: u64,
    /// Number of those after start-up.
    after_start_up: u64,
    /// Number of collectives in which every rank waits for all ranks, but clocks are not aligned.
    not_aligned: u64,
    waited: Saturating<i64>,
    shared: Saturating<i64>,
    held_up: Saturating<i64>,
    passed_on: Saturating<i64>,
    not_recorded: [Saturating<i64>; MissingCause::ALL.len()],
    clocks: Saturating<i64>,
    /// Error bounds of the collectives in `clocks`; -1 if not known.
    bounds: Vec<i64>,
    start_up_waited: Saturating<i64>,
    /// Time in calls that are not compared: in sampled calls, and in calls that are always counted.
    sampled_calls: CallTimes,
    other_calls: CallTimes,
    /// Number of matched collectives that do not show when ranks waited, by function.
    silent: BTreeMap<String, u64>,
    /// Number of those that are RCCL's.
    silent_of_rccl: u64,
}

impl MatchedCollectives {
    /// Returns the ranks that others waited for most, and the verdict; the same on all merge ranks. There is no
    /// verdict if nothing could be compared. `fits` are by clock domain.
    pub fn late_ranks(
        &self,
        comm: &impl Comm,
        fits: &BTreeMap<ClockDomain, DomainFit>,
    ) -> Result<(Vec<LateRank>, Option<LatenessSummary>), Failure> {
        let clocks = ParticipantClocks::new(&self.members, fits);
        let for_all = || self.timed.iter().filter(|one| one.waits == FunctionWaits::AllForAll);
        let compared: Vec<(&MatchedCollective, CollectiveWait)> =
            for_all().filter_map(|one| Some((one, waiting(one, &clocks)?))).collect();
        let start_up = find_start_up(comm, &clocks, &compared)?;
        let mut own = Sums { not_aligned: (for_all().count() - compared.len()) as u64, ..Sums::default() };
        let firsts = self.members.firsts();
        let first_of = |participant: u32| firsts.get(participant as usize).copied().unwrap_or(participant);
        for (collective, waiting) in &compared {
            own.add(collective, waiting, &self.members, &first_of, start_up.as_ref().map(|(end, _)| *end));
        }
        own.add_not_compared(self, &clocks, start_up.as_ref());
        drop(compared);
        let mut all = Sums::default();
        gather_values(comm, own)?.into_iter().for_each(|sums| all.append(sums));
        // The message is JSON, because bincode cannot decode flattened fields.
        let text = broadcast_result(comm, || {
            let outcome = all.outcome(self, &firsts, start_up.map(|(_, start_up)| start_up));
            serde_json::to_string(&outcome).map_err(|error| Failure::damaged_message(error.to_string()))
        })?;
        serde_json::from_str(&text).map_err(|error| Failure::damaged_message(error.to_string()))
    }
}

impl Sums {
    /// Adds one collective. `start_up` is the end of start-up, ns of the job. Wait time before ranks first
    /// synchronised counts as start-up at any time.
    fn add(
        &mut self,
        collective: &MatchedCollective,
        waiting: &CollectiveWait,
        members: &JobMembers,
        first_of: &dyn Fn(u32) -> u32,
        start_up: Option<i64>,
    ) {
        self.compared += 1;
        for call in &collective.calls {
            self.by_participant.entry(first_of(call.participant)).or_default().collectives += 1;
        }
        if start_up.is_some_and(|end| waiting.last_exit <= end) {
            self.start_up_waited += waiting.waited_ns;
            return;
        }
        self.after_start_up += 1;
        let parts = &waiting.parts;
        // Ranks leave MPI_Init at different times, which their own times since then do not explain.
        let of_init = if waiting.had_synchronised == Some(false) { parts.held_up_ns } else { 0 };
        self.start_up_waited += of_init;
        self.waited += waiting.waited_ns.saturating_sub(of_init);
        if let Some(charge) = &parts.rank {
            let sum = self.by_participant.entry(first_of(charge.participant)).or_default();
            sum.waited += charge.waited_ns;
            sum.charges.push((charge.waited_ns, charge.margin_ns, waiting.bound_ns.unwrap_or(-1)));
        }
        if let Some(charge) = &parts.node
            && let Some(participant) = members.get(charge.participant)
        {
            *self.nodes.entry(participant.host.clone()).or_default() += charge.waited_ns;
        }
        self.shared += parts.shared_ns;
        let late_together: BTreeSet<u32> =
            parts.late_together.iter().map(|number| first_of(*number)).collect();
        for participant in late_together {
            self.by_participant.entry(participant).or_default().late_together += parts.shared_ns;
        }
        self.held_up += parts.held_up_ns.saturating_sub(of_init);
        self.passed_on += parts.passed_on_ns;
        self.not_recorded[MissingCause::Polls as usize] += parts.between_polls_ns;
        if let Some((why, ns)) = parts.not_recorded {
            self.not_recorded[why as usize] += ns;
        }
        if parts.clocks_ns > 0 {
            self.clocks += parts.clocks_ns;
            self.bounds.push(waiting.bound_ns.unwrap_or(-1));
        }
    }

    /// Adds this merge rank's time in calls that are not compared and lie after start-up. `start_up` is the end
    /// of start-up, ns of the job, and its description.
    fn add_not_compared(
        &mut self,
        collectives: &MatchedCollectives,
        clocks: &ParticipantClocks<'_>,
        start_up: Option<&(i64, StartUp)>,
    ) {
        let untimed = &collectives.untimed;
        let is_after = |participant: u32, enter: i64| {
            start_up.is_none_or(|(end, _)| clocks.job_time(participant, enter) >= *end)
        };
        let calls = untimed.calls.iter().filter(|calls| is_after(calls.participant, calls.enter));
        calls.for_each(|calls| self.sampled_calls.add(&calls.function.name(), calls.ns));
        let is_compared =
            |one: &MatchedCollective| one.waits == FunctionWaits::AllForAll && clocks.can_compare(one);
        for one in collectives.timed.iter().filter(|one| !is_compared(one)) {
            if one.calls.first().is_some_and(|first| is_after(first.participant, first.enter)) {
                self.sampled_calls.add(&one.function.name(), one.time_inside());
            }
            if one.waits != FunctionWaits::AllForAll {
                *self.silent.entry(one.function.name().into_owned()).or_default() += 1;
            }
        }
        self.sampled_calls.append(&untimed.unproven);
        self.other_calls.append(&untimed.after);
        // Calls before the first synchronisation of their process belong to start-up if a collective of all
        // ranks ends it.
        if start_up.is_none_or(|(_, start_up)| start_up.last_rank.is_none()) {
            self.other_calls.append(&untimed.before);
        }
        for (function, count) in &untimed.matched {
            *self.silent.entry(function.name().into_owned()).or_default() += count;
            self.silent_of_rccl += if function.is_rccl() { *count } else { 0 };
        }
    }

    /// Adds the sums of another merge rank.
    fn append(&mut self, other: Sums) {
        for (participant, sum) in other.by_participant {
            let known = self.by_participant.entry(participant).or_default();
            known.waited += sum.waited;
            known.collectives += sum.collectives;
            known.charges.extend(sum.charges);
            known.late_together += sum.late_together;
        }
        for (host, waited) in other.nodes {
            *self.nodes.entry(host).or_default() += waited;
        }
        for (function, count) in other.silent {
            *self.silent.entry(function).or_default() += count;
        }
        for (sum, more) in self.not_recorded.iter_mut().zip(other.not_recorded) {
            *sum += more;
        }
        self.sampled_calls.append(&other.sampled_calls);
        self.other_calls.append(&other.other_calls);
        self.waited += other.waited;
        self.held_up += other.held_up;
        self.passed_on += other.passed_on;
        self.shared += other.shared;
        self.clocks += other.clocks;
        self.start_up_waited += other.start_up_waited;
        self.compared += other.compared;
        self.after_start_up += other.after_start_up;
        self.not_aligned += other.not_aligned;
        self.silent_of_rccl += other.silent_of_rccl;
        self.bounds.extend(other.bounds);
    }

    /// Derives the late ranks and the summary from the sums of all merge ranks.
    fn outcome(
        self,
        collectives: &MatchedCollectives,
        firsts: &[u32],
        start_up: Option<StartUp>,
    ) -> (Vec<LateRank>, Option<LatenessSummary>) {
        let members = &collectives.members;
        let run_ns = members.run_ns();
        let one_in = i64::try_from(collectives.counts.one_in.max(1)).unwrap_or(i64::MAX);
        let of_job = |ns: Saturating<i64>| ns.0.saturating_mul(one_in);
        let ranks: BTreeSet<u32> = firsts.iter().copied().collect();
        if ranks.len() < 2 {
            return (Vec::new(), None);
        }
        let recorded_ns = i64::try_from(ranks.len()).unwrap_or(i64::MAX).saturating_mul(run_ns.max(1));
        let share_of_run = |ns: i64| ns as f64 / recorded_ns as f64;
        let first_processes = || ranks.iter().filter_map(|number| members.get(*number));
        let mut ranks_of: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for participant in first_processes() {
            ranks_of.entry(participant.host.clone()).or_default().extend(participant.rank);
        }
        ranks_of.values_mut().for_each(|ranks| ranks.sort_unstable());
        let late_together = self.ranks_late_together(members);
        let reason = self.reason_without_verdict();
        let mut not_compared = self.sampled_calls.times(one_in);
        not_compared.append(&self.other_calls);
        let finalizations = first_processes().filter_map(|one| one.finalization_ns);
        not_compared.add("MPI_Finalize", time_over_shortest(finalizations, FINALIZE_SPREAD_NS));
        let mut late: Vec<LateRank> = (self.by_participant.into_iter())
            .filter(|(_, sum)| !sum.charges.is_empty())
            .filter_map(|(number, sum)| Some(sum.late_rank(members.get(number)?, self.waited.0, one_in)))
            .collect();
        late.sort_by_key(|late| std::cmp::Reverse(late.waited_ns));
        let start_up = start_up.map(|start_up| StartUp {
            waited_ns: of_job(self.start_up_waited),
            last_rank: start_up.last_rank.and_then(|number| members.get(number)?.rank),
            ..start_up
        });
        let waited_ns = of_job(self.waited);
        let is_start_up =
            start_up.as_ref().is_some_and(|one| one.ns > run_ns / 2 && one.waited_ns >= waited_ns);
        let (held_up_ns, passed_on_ns) = (of_job(self.held_up), of_job(self.passed_on));
        let causes = LateCauses {
            waited_ns,
            recorded_ns,
            sizes: (ranks.len(), ranks_of.len()),
            ranks: late.iter().map(|late| (late.rank, late.waited_ns)).collect(),
            nodes: self.nodes.into_iter().map(|(host, waited)| (host, of_job(waited))).collect(),
            shared_ns: of_job(self.shared),
            late_together,
            held_up_ns,
            passed_on_ns,
            clocks_ns: of_job(self.clocks),
            not_recorded_ns: self.not_recorded.map(of_job),
            bound_ns: median(self.bounds),
            not_compared_ns: (not_compared.total(), not_compared.in_collectives()),
            poll_gaps_ns: first_processes().fold(0, |sum: i64, one| sum.saturating_add(one.poll_gaps_ns)),
            absence: collectives.absence.clone(),
            is_start_up,
            ranks_of,
        };
        let verdict = match (decide(&causes), reason) {
            (LatenessVerdict::Nobody, Reason::Unknown(reason)) => LatenessVerdict::NoCollectives { reason },
            (LatenessVerdict::Nobody | LatenessVerdict::StartUp, Reason::NotRecorded) => {
                return (Vec::new(), None);
            }
            (verdict, _) => verdict,
        };
        late.truncate(MAX_LATE_RANKS);
        let lateness = LatenessSummary {
            verdict,
            waited_ns,
            waited_share_of_run: share_of_run(waited_ns),
            run_ns,
            held_up_ns,
            passed_on_ns,
            not_compared_ns: not_compared.total(),
            not_compared_calls: not_compared.longest(MAX_FUNCTIONS),
            not_compared_share_of_run: share_of_run(not_compared.total()),
            start_up,
        };
        (late, Some(lateness))
    }

    /// Returns the ranks that were late together in most of the shared wait time.
    fn ranks_late_together(&self, members: &JobMembers) -> Vec<u32> {
        let is_most = |sum: &Sum| {
            sum.late_together.0 > 0
                && sum.late_together.0.saturating_mul(100) >= self.shared.0.saturating_mul(TOGETHER_PERCENT)
        };
        let most = self.by_participant.iter().filter(|(_, sum)| is_most(sum));
        let mut ranks: Vec<u32> = most.filter_map(|(number, _)| members.get(*number)?.rank).collect();
        ranks.sort_unstable();
        if ranks.len() > 1 { ranks } else { Vec::new() }
    }

    /// Returns whether the collectives suffice to state that no rank was late, or why they do not.
    fn reason_without_verdict(&self) -> Reason {
        const RCCL: &str = "calls of RCCL return early: rocprofv3 records their kernels";
        let silent = |names: &str| {
            Reason::Unknown(format!("the collectives that match do not say when ranks waited ({names})"))
        };
        if self.compared == 0 && self.not_aligned > 0 {
            return Reason::Unknown("the clocks of the nodes are not aligned".to_owned());
        }
        if self.silent_of_rccl > self.after_start_up {
            return silent(RCCL);
        }
        // Calls that are not recorded, such as file access or one-sided calls, may be in a phase without
        // collectives.
        if self.compared > 0 && self.after_start_up == 0 {
            return Reason::Unknown("no collective after start-up shows when ranks waited".to_owned());
        }
        if self.compared > 0 {
            return Reason::None;
        }
        let mut functions: Vec<(&String, &u64)> = self.silent.iter().collect();
        functions.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let names: Vec<&str> = functions.iter().take(MAX_FUNCTIONS).map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { Reason::NotRecorded } else { silent(&names.join(", ")) }
    }
}

/// Why the absence of a late rank cannot be stated.
enum Reason {
    /// It can be stated.
    None,
    /// The matched collectives do not show it.
    Unknown(String),
    /// No collective matches.
    NotRecorded,
}

impl Sum {
    fn late_rank(mut self, participant: &JobParticipant, waited_in_all: i64, one_in: i64) -> LateRank {
        let JobParticipant { rank, pid, host, .. } = participant.clone();
        // The longest waits are counted, until the remaining ones are negligible.
        self.charges.sort_unstable_by(|a, b| b.cmp(a));
        let enough = (i128::from(self.waited.0) * i128::from(COUNTED_PERCENT) / 100) as i64;
        let mut sum = 0i64;
        let counted = self.charges.into_iter().take_while(|(waited, ..)| {
            let is_needed = sum < enough;
            sum = sum.saturating_add(*waited);
            is_needed
        });
        let (margins, bounds): (Vec<i64>, Vec<i64>) =
            counted.map(|(_, margin, bound)| (margin, bound)).unzip();
        LateRank {
            rank,
            pid,
            host,
            waited_ns: self.waited.0.saturating_mul(one_in),
            waited_share: self.waited.0 as f64 / waited_in_all.max(1) as f64,
            last: margins.len() as u64,
            collectives: self.collectives,
            worst_ns: margins.iter().copied().max().unwrap_or(0),
            behind_ns: median(margins).unwrap_or(0),
            clock_bar_ns: median(bounds),
        }
    }
}

/// Returns the median; `None` if there are no values or one of them is not known.
fn median(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    let known = values.first().is_some_and(|first| *first >= 0);
    values.get(values.len() / 2).copied().filter(|_| known)
}
