//! Matches the n-th collective of each rank on a communicator with the n-th of all other ranks.
//!
//! Each call is sent to the merge rank that owns the hash of communicator and number. The result depends neither
//! on the number of merge ranks nor on the order of the inputs of one merge rank.

use super::absence::{self, IncompleteCollective, RankAbsence};
use super::exit_spread::ExitSpread;
use super::functions::CollectiveFunction;
use super::matched_call::{CallRecord, MatchVerdict, MatchedCollective, judge};
use super::own_time::note_own_times;
use super::participants::{self, JobMembers, JobParticipant};
use super::process_calls::ProcessCollectives;
use super::sample::{CallSample, JobSample};
use super::timing_proof::accept_by_timing;
use super::unnumbered;
use super::untimed::{CallTimes, UntimedCalls, time_in};
use rayon::prelude::*;
use rpd_comm::{Comm, all_gather_counts, all_gather_values, exchange_values};
use rpd_console::Failure;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of mismatches that are reported one by one.
const MAX_SHOWN_FAULTS: usize = 5;

/// Counts of the collectives of the job, by result of the matching.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CollectiveCounts {
    /// Calls of all processes.
    pub calls: u64,
    /// Sampling rate: one in this many collectives was compared.
    pub one_in: u64,
    /// Collectives in which all ranks took part with the same call.
    pub matched: u64,
    /// Matched collectives with times that show when ranks waited: they transfer data, and their ends wait for other
    /// ranks.
    pub timed: u64,
    /// Collectives for which the calls of some ranks are not recorded.
    pub incomplete: u64,
    /// Collectives with calls that differ between ranks.
    pub mismatched: u64,
    /// Collectives that one rank left before another rank of the same node entered. No clock error explains
    /// that.
    pub contradicted: u64,
    /// Calls that could not be compared, because no other process has their communicator or number.
    pub alone: u64,
    /// Unnumbered calls in which processes differ.
    pub different: u64,
    /// Unnumbered collectives that match by their order, but with times that do not show that all nodes took part in
    /// the same one. They are not used between nodes.
    #[serde(default)]
    pub unproven: u64,
    /// Exit spread of the timed collectives; `None` if no collective could be measured.
    #[serde(default)]
    pub spread: Option<ExitSpread>,
}

/// The matched collectives, each on one merge rank, and a description of the others.
#[derive(Debug, Default)]
pub struct MatchedCollectives {
    /// Collectives of this merge rank with times that show when ranks waited, ordered by communicator and
    /// number.
    pub timed: Vec<MatchedCollective>,
    /// All processes that take part in collectives.
    pub members: JobMembers,
    /// Counts of the whole job.
    pub counts: CollectiveCounts,
    /// Descriptions of the first collectives that do not match.
    pub faults: Vec<String>,
    /// Descriptions of the collectives that are not used between nodes, with the reason.
    pub unproven: Vec<String>,
    /// Whether some of the collectives in `unproven` are on communicators that have a name.
    pub has_unproven_names: bool,
    /// Time of this merge rank's calls that are not compared.
    pub untimed: UncomparedTime,
    /// The incomplete collective in which the other ranks waited longest for those that never entered it.
    pub absence: Option<RankAbsence>,
}

/// Calls of one merge rank in which ranks may have waited, and which are not compared.
#[derive(Debug, Default)]
pub struct UncomparedTime {
    /// Calls other than collectives, before and after the first synchronisation of each process.
    pub(super) before: CallTimes,
    pub(super) after: CallTimes,
    /// Collectives that this merge rank owns and that do not match or do not show when ranks waited.
    pub(super) calls: Vec<UntimedCalls>,
    /// Unnumbered collectives that the check of their times rejected.
    pub(super) unproven: CallTimes,
    /// Number of matched collectives without usable times, by function.
    pub(super) matched: BTreeMap<CollectiveFunction, u64>,
}

/// Compares the collectives of all processes. `own` are the processes of this merge rank, in merge order.
pub fn match_calls(
    comm: &impl Comm,
    sample: &CallSample,
    own: Vec<(JobParticipant, ProcessCollectives)>,
) -> Result<MatchedCollectives, Failure> {
    let (participants, mut processes): (Vec<JobParticipant>, Vec<ProcessCollectives>) =
        own.into_iter().unzip();
    let members = JobMembers::gather(comm, &participants)?;
    participants::separate_communicators(comm, &members, &mut processes)?;
    let JobSample { level, calls } = sample.of_job(&all_gather_counts(comm, &sample.counts())?);
    let differences = unnumbered::compare(comm, &members, &mut processes, level == 0)?;
    for (participant, process) in (members.first..).zip(&mut processes) {
        process.thin_out(level);
        process.communicators.retain(|hash, _| {
            !differences.communicators.contains(hash) && !differences.others.contains(&(participant, *hash))
        });
    }

    let last_entered = last_entered(comm, &processes)?;
    let mut untimed = UncomparedTime::default();
    for process in &processes {
        untimed.before.append(&process.untimed.before);
        untimed.after.append(&process.untimed.after);
    }
    let mut records = exchange(comm, &members, &mut processes, &mut untimed.calls)?;
    records.par_sort_unstable();
    let mut timed = Vec::new();
    let alone = processes.iter().map(|process| process.alone).sum();
    let mut counts = CollectiveCounts { alone, ..CollectiveCounts::default() };
    let mut faults: Vec<Fault> = Vec::new();
    let mut contradicted_unnumbered: BTreeMap<u64, u64> = BTreeMap::new();
    let mut longest: Option<IncompleteCollective> = None;
    for calls in records.chunk_by(|a, b| (a.comm, a.seq) == (b.comm, b.seq)) {
        let CallRecord { comm: communicator, seq, .. } = calls[0];
        let is_unnumbered = differences.unnumbered.contains(&communicator);
        let Some(verdict) = judge(calls, &members) else { continue };
        if !matches!(&verdict, MatchVerdict::Matched(one) if one.is_timed()) {
            untimed.calls.extend(CallRecord::untimed(calls, &members));
        }
        match &verdict {
            MatchVerdict::Matched(one) => {
                counts.matched += 1;
                counts.timed += u64::from(one.is_timed());
                if !one.is_timed() {
                    *untimed.matched.entry(one.function).or_default() += 1;
                }
            }
            // Processes that are still being recorded may not have written their calls yet.
            MatchVerdict::Incomplete if last_entered.get(&communicator).is_some_and(|last| seq > *last) => {
                continue;
            }
            MatchVerdict::Incomplete => {
                counts.incomplete += 1;
                longest = longest.max(IncompleteCollective::new(calls, &members));
            }
            MatchVerdict::Contradicted(..) => {
                counts.contradicted += 1;
                if is_unnumbered {
                    *contradicted_unnumbered.entry(communicator).or_default() += 1;
                }
            }
            MatchVerdict::Different(..) => counts.mismatched += 1,
        }
        match verdict {
            MatchVerdict::Matched(one) if one.is_timed() => {
                timed.push(MatchedCollective { is_unnumbered, ..one })
            }
            verdict => faults.extend(Fault::new(calls, verdict)),
        }
        if faults.len() > 64 {
            keep_first(&mut faults);
        }
    }
    drop(records);
    let unnumbered_times =
        |timed: &[MatchedCollective]| time_in(timed.iter().filter(|one| one.is_unnumbered));
    let before = unnumbered_times(&timed);
    let unproven =
        accept_by_timing(comm, &members, &differences.unnumbered, &contradicted_unnumbered, &mut timed)?;
    untimed.unproven = before.without(&unnumbered_times(&timed));
    let absence = absence::longest(comm, &members, &processes, longest)?;
    keep_first(&mut faults);
    let mut faults = all_gather_values::<Vec<Fault>>(comm, &faults)?.concat();
    keep_first(&mut faults);
    let communicators: BTreeSet<u64> = faults.iter().map(|fault| fault.comm).collect();
    let details = participants::details(comm, members.first, &processes, &communicators)?;
    let lines = faults.iter().map(|fault| {
        let (name, all) = details.get(&fault.comm).map_or(("", &[][..]), |(name, all)| (name, all));
        fault.line(name, all, &members)
    });
    let faults = differences.lines.into_iter().chain(lines).collect();
    let all: Vec<CollectiveCounts> = all_gather_values(comm, &counts)?;
    let sum = |count: fn(&CollectiveCounts) -> u64| all.iter().map(count).sum();
    let counts = CollectiveCounts {
        calls,
        one_in: 1u64.checked_shl(level as u32).unwrap_or(u64::MAX),
        matched: sum(|counts| counts.matched),
        timed: sum(|counts| counts.timed),
        incomplete: sum(|counts| counts.incomplete),
        mismatched: sum(|counts| counts.mismatched),
        contradicted: sum(|counts| counts.contradicted),
        alone: sum(|counts| counts.alone),
        different: differences.calls,
        unproven: unproven.calls,
        spread: None,
    };
    let has_unproven_names = !unproven.communicators.is_disjoint(&differences.named);
    let unproven = unproven.lines;
    Ok(MatchedCollectives { timed, members, counts, faults, unproven, has_unproven_names, untimed, absence })
}

/// Returns, for each communicator with a process that is still being recorded, the last collective that all of
/// its processes may have entered.
fn last_entered(comm: &impl Comm, processes: &[ProcessCollectives]) -> Result<BTreeMap<u64, u64>, Failure> {
    let lowest = |all: Vec<BTreeMap<u64, u64>>| {
        let mut lowest: BTreeMap<u64, u64> = BTreeMap::new();
        for (communicator, seq) in all.into_iter().flatten() {
            lowest.entry(communicator).and_modify(|known| *known = seq.min(*known)).or_insert(seq);
        }
        lowest
    };
    let last_of = |process: &ProcessCollectives| {
        let mut last: BTreeMap<u64, u64> = process.communicators.keys().map(|hash| (*hash, 0)).collect();
        for call in &process.calls {
            last.entry(call.comm).and_modify(|last| *last = call.seq.max(*last));
        }
        last
    };
    let mine = lowest(processes.iter().filter(|process| process.is_running).map(last_of).collect());
    Ok(lowest(all_gather_values(comm, &mine)?))
}

/// Sends each call to the merge rank that owns it and returns the calls that this merge rank owns. Calls on
/// communicators that cannot be compared are added to `untimed`.
fn exchange(
    comm: &impl Comm,
    members: &JobMembers,
    processes: &mut [ProcessCollectives],
    untimed: &mut Vec<UntimedCalls>,
) -> Result<Vec<CallRecord>, Failure> {
    let sizes = participants::sizes(comm, processes)?;
    let (first, everyone) = (members.first, members.all.len() as u32);
    let mut outgoing: Vec<Vec<CallRecord>> = vec![Vec::new(); comm.size()];
    for ((participant, process), sizes) in (first..).zip(processes).zip(sizes) {
        note_own_times(process, &sizes, everyone);
        for call in std::mem::take(&mut process.calls) {
            let (Some(size), Some(known)) = (sizes.get(&call.comm), process.communicators.get(&call.comm))
            else {
                let alone = [CallRecord::new(&call, participant, 1, None)];
                untimed.extend(CallRecord::untimed(&alone, members));
                continue;
            };
            let record = CallRecord::new(&call, participant, *size, known.rank);
            outgoing[(call.key % comm.size() as u64) as usize].push(record);
        }
    }
    exchange_values(comm, outgoing)
}

/// A collective that does not match.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Fault {
    seq: u64,
    comm: u64,
    what: Wrong,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Wrong {
    /// Two participants and what each of them called.
    Different((u32, String), (u32, String)),
    /// The call, and the participants that made it.
    Missing(String, Vec<u32>),
    /// The participant that left too early, the one that entered after that, and the call.
    Early(u32, u32, String),
}

/// Maximum number of participants of one collective that a line names.
const MAX_NAMED_PARTICIPANTS: usize = 8;
/// Maximum number of participants that are exchanged for one mismatch. If there are more, the line does not name
/// the missing ones.
const MAX_REPORTED_PARTICIPANTS: usize = 4_096;

impl Fault {
    fn new(calls: &[CallRecord], verdict: MatchVerdict) -> Option<Fault> {
        let first = calls.first()?;
        let what = match verdict {
            MatchVerdict::Matched(_) => return None,
            MatchVerdict::Different(a, b) => {
                let call_of = |i: usize| calls.get(i).map(|call| (call.participant, call.describe()));
                Wrong::Different(call_of(a)?, call_of(b)?)
            }
            MatchVerdict::Incomplete => {
                let there = calls.iter().map(|call| call.participant).take(MAX_REPORTED_PARTICIPANTS + 1);
                Wrong::Missing(first.describe(), there.collect())
            }
            MatchVerdict::Contradicted(left, entered) => Wrong::Early(left, entered, first.describe()),
        };
        Some(Fault { seq: first.seq, comm: first.comm, what })
    }

    fn line(&self, communicator: &str, all: &[u32], members: &JobMembers) -> String {
        let at = format!("collective {} on {communicator}", self.seq);
        match &self.what {
            Wrong::Different((a, x), (b, y)) if a == b => {
                format!("{at}: {} made two calls with this number, {x} and {y}", members.name(*a))
            }
            Wrong::Different((a, x), (b, y)) => {
                format!("{at}: {} calls {y}, {} calls {x}", members.name(*b), members.name(*a))
            }
            Wrong::Missing(call, there) if there.len() > MAX_REPORTED_PARTICIPANTS => {
                format!("{at}, {call}: not recorded for some of its {} ranks", all.len())
            }
            Wrong::Missing(call, there) => {
                let there: BTreeSet<u32> = there.iter().copied().collect();
                let mut missing = all.iter().filter(|n| !there.contains(n));
                let named: Vec<String> =
                    missing.by_ref().take(MAX_NAMED_PARTICIPANTS).map(|n| members.name(*n)).collect();
                let more = missing.count();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("{at}, {call}: not recorded for {}{more}", named.join(", "))
            }
            Wrong::Early(left, entered, call) => {
                let (left, entered) = (members.name(*left), members.name(*entered));
                format!("{at}, {call}: {left} left before {entered}, on the same node, entered")
            }
        }
    }
}

fn keep_first(faults: &mut Vec<Fault>) {
    faults.sort_unstable();
    faults.truncate(MAX_SHOWN_FAULTS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::{CollectiveFunction, DataPattern, FunctionWaits};
    use crate::process_calls::CollectiveCall;
    use proptest::prelude::*;
    use rpd_comm::threads;
    use std::collections::BTreeMap;

    const FUNCTIONS: [&str; 6] =
        ["MPI_Allreduce", "MPI_Barrier", "MPI_Bcast", "MPI_Iallreduce", "MPI_Alltoallv", "MPI_Allgatherv"];

    /// How one call of one process deviates from the others.
    #[derive(Clone, Copy, Debug)]
    enum Mishap {
        None,
        Lost,
        OtherFunction,
        OtherSize,
        OtherRoot,
        Open,
        Twice,
    }

    fn mishap() -> impl Strategy<Value = Mishap> {
        use Mishap::*;
        prop_oneof![
            30 => Just(None), 1 => Just(Lost), 1 => Just(OtherFunction), 1 => Just(OtherSize),
            1 => Just(OtherRoot), 1 => Just(Open), 1 => Just(Twice)
        ]
    }

    fn call(name: &str, comm: u64, seq: u64, enter: i64) -> CollectiveCall {
        let function = CollectiveFunction::named(name.as_bytes()).unwrap();
        let root = (name == "MPI_Bcast").then_some(0);
        let size = (name != "MPI_Barrier").then_some(64);
        let exit = (!function.only_starts()).then_some(enter + 1_000);
        CollectiveCall { root, size, ..CollectiveCall::new(function, enter, exit).numbered(comm, seq) }
    }

    fn participant(rank: u32) -> JobParticipant {
        JobParticipant { host: "h".into(), ..JobParticipant::for_test(rank) }
    }

    /// Calls on one communicator: index of the function, and the mishap in each of 4 processes.
    type Plan = Vec<Vec<(usize, [Mishap; 4])>>;

    fn plan() -> impl Strategy<Value = Plan> {
        let one = (0..FUNCTIONS.len(), proptest::array::uniform4(mishap()));
        proptest::collection::vec(proptest::collection::vec(one, 0..8), 1..4)
    }

    /// The n-th communicator has the first n + 2 processes.
    fn job(plan: &Plan) -> Vec<ProcessCollectives> {
        let mut job = vec![ProcessCollectives::default(); 4];
        for (n, calls) in plan.iter().enumerate() {
            for (rank, process) in job.iter_mut().enumerate().take(n + 2) {
                let comm = process.note_communicator(&format!("comm {n}")).unwrap();
                process.communicators.get_mut(&comm).unwrap().rank = Some(rank as u32);
                for (i, (function, mishaps)) in calls.iter().enumerate() {
                    let mut one = call(FUNCTIONS[*function], comm, i as u64 + 1, i as i64 * 10_000);
                    match mishaps[rank] {
                        Mishap::None => {}
                        Mishap::Lost => continue,
                        Mishap::OtherFunction => {
                            one.function = CollectiveFunction::named(b"MPI_Scan").unwrap()
                        }
                        Mishap::OtherSize => one.size = Some(128),
                        Mishap::OtherRoot => one.root = Some(1),
                        Mishap::Open => one.exit = None,
                        Mishap::Twice => process.calls.push(one),
                    }
                    process.calls.push(one);
                }
            }
        }
        job
    }

    /// Reference result with all calls at hand: numbers of matched, timed, incomplete and mismatched
    /// collectives.
    fn naive(job: &[ProcessCollectives]) -> (u64, u64, u64, u64) {
        let mut by_call: BTreeMap<(u64, u64), Vec<(usize, CollectiveCall)>> = BTreeMap::new();
        let mut members: BTreeMap<u64, usize> = BTreeMap::new();
        for (rank, process) in job.iter().enumerate() {
            process.communicators.keys().for_each(|comm| *members.entry(*comm).or_default() += 1);
            for call in &process.calls {
                by_call.entry((call.comm, call.seq)).or_default().push((rank, *call));
            }
        }
        let (mut matched, mut timed, mut incomplete, mut mismatched) = (0, 0, 0, 0);
        for ((comm, _), calls) in by_call {
            let all = || calls.iter().flat_map(|a| calls.iter().map(move |b| (a, b)));
            let twice = all().any(|(a, b)| a.0 == b.0 && !std::ptr::eq(a, b));
            let differ = all().any(|((_, a), (_, b))| {
                let sizes = a.size.is_some() && b.size.is_some() && a.size != b.size;
                let roots = a.root.is_some() && b.root.is_some() && a.root != b.root;
                a.function != b.function || roots || sizes && a.function.data() == DataPattern::Same
            });
            if twice || differ {
                mismatched += 1;
            } else if calls.len() < members[&comm] {
                incomplete += 1;
            } else {
                matched += 1;
                let says = calls.iter().all(|(_, c)| c.exit.is_some())
                    && calls[0].1.function.waits() != FunctionWaits::Unknown;
                timed += u64::from(says);
            }
        }
        (matched, timed, incomplete, mismatched)
    }

    /// Result with the given number of merge ranks, each with consecutive processes: counts, faults, matched
    /// collectives.
    fn outcome(
        job: &[ProcessCollectives],
        ranks: usize,
        most: u64,
    ) -> (CollectiveCounts, Vec<String>, Vec<MatchedCollective>) {
        let piece = job.len().div_ceil(ranks);
        let results = threads::run(ranks, |comm| {
            let low = (comm.rank() * piece).min(job.len());
            let own = low..(low + piece).min(job.len());
            let sample = CallSample::new(most);
            let processes = job[own.clone()].iter().cloned();
            let own: Vec<_> = own.map(|rank| participant(rank as u32)).zip(processes).collect();
            sample.count(own.iter().flat_map(|(_, process)| &process.calls).map(|call| call.key));
            match_calls(comm, &sample, own).unwrap()
        });
        let first = &results[0];
        let mut timed: Vec<MatchedCollective> = results.iter().flat_map(|r| r.timed.clone()).collect();
        timed.sort_by_key(|one| (one.comm, one.seq));
        assert!(results.iter().all(|r| (&r.counts, &r.faults) == (&first.counts, &first.faults)));
        (first.counts.clone(), first.faults.clone(), timed)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn matching_is_what_one_who_sees_everything_would_do(plan in plan(), reverse in any::<bool>()) {
            let mut job = job(&plan);
            let (matched, timed, incomplete, mismatched) = naive(&job);
            let alone = outcome(&job, 1, 1 << 20);
            let counts = &alone.0;
            prop_assert_eq!(
                (counts.matched, counts.timed, counts.incomplete, counts.mismatched),
                (matched, timed, incomplete, mismatched)
            );
            prop_assert_eq!(counts.contradicted, 0);
            prop_assert_eq!(alone.2.len() as u64, timed);
            prop_assert_eq!(alone.1.is_empty(), incomplete + mismatched == 0);
            if reverse {
                job.iter_mut().for_each(|process| process.calls.reverse());
            }
            for ranks in 2..4 {
                prop_assert_eq!(&outcome(&job, ranks, 1 << 20), &alone);
            }
        }

        #[test]
        fn a_sample_is_the_same_for_any_number_of_ranks(plan in plan(), most in 1u64..20) {
            let job = job(&plan);
            let alone = outcome(&job, 1, most);
            let all = outcome(&job, 1, 1 << 20);
            prop_assert!(alone.2.iter().all(|one| all.2.contains(one)));
            prop_assert_eq!(&outcome(&job, 3, most), &alone);
        }
    }

    #[test]
    fn faults_are_told_with_ranks_and_calls() {
        let mut plan: Plan = vec![vec![(0, [Mishap::None; 4]); 3]];
        plan[0][1].1[1] = Mishap::OtherSize;
        plan[0][2].1[0] = Mishap::Lost;
        let (_, faults, _) = outcome(&job(&plan), 2, 1 << 20);
        assert_eq!(
            faults,
            [
                "collective 2 on comm 0: rank 1 calls MPI_Allreduce of 128 B, rank 0 calls MPI_Allreduce of 64 B",
                "collective 3 on comm 0, MPI_Allreduce of 64 B: not recorded for rank 0",
            ]
        );
    }

    #[test]
    fn a_collective_that_a_running_process_has_not_written_yet_is_no_mismatch() {
        let mut plan: Plan = vec![vec![(0, [Mishap::None; 4]); 3]];
        plan[0][2].1[0] = Mishap::Lost;
        let mut job = job(&plan);
        job[0].is_running = true;
        let (counts, faults, _) = outcome(&job, 2, 1 << 20);
        assert_eq!((counts.matched, counts.incomplete, faults.len()), (2, 0, 0));
        // A call that the process skipped before its last recorded call is missing.
        plan[0][1].1[0] = Mishap::Lost;
        plan[0][2].1[0] = Mishap::None;
        let mut job = self::job(&plan);
        job[0].is_running = true;
        let (counts, ..) = outcome(&job, 2, 1 << 20);
        assert_eq!((counts.matched, counts.incomplete), (2, 1));
    }

    #[test]
    fn a_rank_that_alone_never_entered_a_collective_is_found() {
        let mut plan: Plan = vec![Vec::new(), vec![(1, [Mishap::None; 4]); 3]];
        plan[1][2].1[1] = Mishap::Lost;
        let absence = |is_cut: bool| {
            let job = job(&plan);
            let results = threads::run(2, |comm| {
                let low = comm.rank() * 2;
                let process =
                    |rank: usize| (JobParticipant { is_cut, ..participant(rank as u32) }, job[rank].clone());
                match_calls(comm, &CallSample::new(1 << 20), (low..low + 2).map(process).collect())
                    .unwrap()
                    .absence
            });
            assert_eq!(results[0], results[1]);
            results.into_iter().next().unwrap()
        };
        let found = absence(false).unwrap();
        assert_eq!((found.rank, found.number, found.each_ns, found.all_ns), (Some(1), 3, 1_000, 2_000));
        assert_eq!((found.call.as_str(), found.communicator.as_str()), ("MPI_Barrier", "comm 1"));
        assert_eq!(absence(true), None, "its last calls may be missing");
    }

    #[test]
    fn who_leaves_before_others_of_the_node_enter_is_not_believed() {
        let mut job = job(&vec![vec![(0, [Mishap::None; 4]); 2]]);
        // Ranks 0 and 1 are on one node.
        job[1].calls[1].enter += 1_001;
        job[1].calls[1].exit = Some(40_000);
        // The clock of ranks 2 and 3 is 5 ms slow.
        for call in job[2..].iter_mut().flat_map(|process| &mut process.calls) {
            call.enter -= 5_000_000;
            call.exit = call.exit.map(|exit| exit - 5_000_000);
        }
        let (counts, faults, timed) = outcome(&job, 1, 1 << 20);
        assert_eq!((counts.matched, counts.contradicted, timed.len()), (1, 1, 1));
        assert!(faults[0].contains("rank 0 left before rank 1, on the same node, entered"), "{faults:?}");
    }
}
