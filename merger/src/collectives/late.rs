//! Which ranks the others wait for: the waiting of all collectives in which everyone waits for everyone, summed up by
//! its cause. Start-up is left out and has a line of its own.

use super::agree::{Members, Participant};
use super::calls::Waits;
use super::judge::Kept;
use super::matching::Matched;
use super::verdict::{Causes, LatenessVerdict, decide};
use super::waiting::{Cause, FitOf, Waiting, waiting};
use crate::clock::{DomainFit, Method};
use crate::comm::Comm;
use crate::failure::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, wire};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Ranks that are reported.
const SHOWN: usize = 5;
/// The first collective of all ranks ends start-up only if it is over in the first fifth of the run.
const MAX_START_UP_PART: i64 = 5;

/// How a rank kept others waiting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LateRank {
    /// The rank; absent where the process has none.
    pub rank: Option<u32>,
    /// Its process id.
    pub pid: i32,
    /// Its node.
    pub host: String,
    /// How long others waited for it, all together, ns.
    pub waited_ns: i64,
    /// That as a part of all waiting in collectives after start-up, from 0 to 1.
    pub waited_share: f64,
    /// Collectives in which its own time explains the waiting.
    pub last: u64,
    /// Collectives in which it took part.
    pub collectives: u64,
    /// How much more own time it spent before those than the lower median of the other ranks: the median, ns.
    pub behind_ns: i64,
    /// The most of that, ns.
    pub worst_ns: i64,
    /// By how much the clocks of the first and the last rank to enter may be off, ns: the median. `None` if that is
    /// not known.
    pub clock_bar_ns: Option<i64>,
}

/// What ranks waited in collectives, and for which rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lateness {
    /// The rank that others wait for, or why none is named.
    #[serde(flatten)]
    pub verdict: LatenessVerdict,
    /// What all ranks waited in collectives after start-up, all together, ns; an estimate where only some collectives
    /// were compared.
    pub waited_ns: i64,
    /// That for each rank, as a part of the run, from 0 to 1.
    pub waited_share_of_run: f64,
    /// How long the run was recorded, ns.
    pub run_ns: i64,
    /// Of `waited_ns`, what no rank's own time explains.
    pub held_up_ns: i64,
    /// Start-up, where it was recorded.
    pub start_up: Option<StartUp>,
}

/// From the start of the run to the end of the first collective of all ranks, or of `MPI_Init`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StartUp {
    /// How long it took, ns.
    pub ns: i64,
    /// What all ranks waited in collectives in it, all together, ns.
    pub waited_ns: i64,
    /// The last rank to enter the first collective; absent where that is not its end.
    pub last_rank: Option<u32>,
    /// How long after the first one that was, ns.
    pub apart_ns: i64,
}

/// What is summed up of one participant.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Sum {
    waited: i64,
    collectives: u64,
    /// For each collective of which it is the cause: the excess of its own time, and what the clocks may be off; -1 for
    /// not known.
    excess: Vec<(i64, i64)>,
}

/// What is summed up of all collectives of a merge rank.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Sums {
    by_participant: BTreeMap<u32, Sum>,
    /// Collectives whose times can be compared.
    compared: u64,
    waited: i64,
    held_up: i64,
    not_recorded: i64,
    clocks: i64,
    /// Error bounds of the last, -1 for not known.
    bounds: Vec<i64>,
    start_up_waited: i64,
}

/// The ranks that others waited for most, and the verdict, the same in all merge ranks. No verdict where nothing could
/// be compared. `fits` are by domain.
pub fn late_ranks(
    comm: &impl Comm,
    matched: &Matched,
    fits: &BTreeMap<ClockDomain, DomainFit>,
) -> Result<(Vec<LateRank>, Option<Lateness>), Failure> {
    let members = &matched.members;
    let fit_of: Vec<Option<&DomainFit>> =
        members.all.iter().map(|participant| fits.get(&participant.domain)).collect();
    let for_all = matched.kept.iter().filter(|kept| kept.waits == Waits::AllForAll);
    let compared: Vec<(&Kept, Waiting)> =
        for_all.filter_map(|kept| Some((kept, waiting(kept, &members.all, &fit_of)?))).collect();
    let run = RunTimes::new(&members.all, &fit_of);
    let start_up = run.start_up(comm, &compared)?;
    let mut own = Sums::default();
    let firsts = members.firsts();
    for (kept, waiting) in &compared {
        let first_of = |participant: u32| firsts.get(participant as usize).copied().unwrap_or(participant);
        own.add(kept, waiting, &first_of, start_up.as_ref().map(|(end, _)| *end));
    }
    let mut outgoing = vec![Vec::new(); comm.size()];
    if let Some(to_first) = outgoing.first_mut() {
        *to_first = wire::encode(&own);
    }
    drop((own, compared));
    let mut all = Sums::default();
    for message in comm.all_to_all(outgoing).iter().filter(|_| comm.rank() == 0) {
        all.append(wire::decode_message(message).map_err(Failure::message)?);
    }
    let start_up = start_up.map(|(_, start_up)| start_up);
    let outcome = all.outcome(members, &firsts, run.run_ns, matched.counts.one_in, start_up);
    let text = serde_json::to_vec(&outcome).map_err(|error| Failure::message(error.to_string()))?;
    let messages = comm.all_gather(if comm.rank() == 0 { text } else { Vec::new() });
    let first = messages.first().map(Vec::as_slice).unwrap_or_default();
    serde_json::from_slice(first).map_err(|error| Failure::message(error.to_string()))
}

/// When the run was.
struct RunTimes {
    /// Its start, ns of the job; `None` if nobody took part.
    start: Option<i64>,
    run_ns: i64,
    /// The end of the last `MPI_Init`, ns of the job.
    initialized: Option<i64>,
    /// Ranks that took part.
    participants: usize,
}

impl RunTimes {
    fn new(all: &[Participant], fit_of: &FitOf<'_>) -> RunTimes {
        let map = |place: usize, time: i64| match fit_of.get(place).copied().flatten() {
            Some(fit) => fit.map.map(LocalNs(time)).ns(),
            None => time,
        };
        let starts = all.iter().enumerate().map(|(place, one)| map(place, one.first_seen));
        let initialized =
            all.iter().enumerate().filter_map(|(place, one)| Some(map(place, one.initialized?)));
        RunTimes {
            start: starts.min(),
            run_ns: all.iter().map(|one| one.seen_ns).max().unwrap_or(0),
            initialized: initialized.max(),
            participants: all.len(),
        }
    }

    /// The end of start-up, ns of the job, and what there is to say of it, without the waiting.
    fn start_up(
        &self,
        comm: &impl Comm,
        compared: &[(&Kept, Waiting)],
    ) -> Result<Option<(i64, StartUp)>, Failure> {
        let of_everyone = compared.iter().filter(|(kept, _)| kept.guests.len() == self.participants);
        let first = of_everyone.map(|(_, w)| (w.first_enter, w.last_exit, w.last, w.apart_ns)).min();
        let mut firsts: Vec<(i64, i64, u32, i64)> = Vec::new();
        for message in comm.all_gather(wire::encode(&first)) {
            let theirs: Option<(i64, i64, u32, i64)> =
                wire::decode_message(&message).map_err(Failure::message)?;
            firsts.extend(theirs);
        }
        let Some(start) = self.start else { return Ok(None) };
        let took = |end: i64| end.saturating_sub(start);
        let is_early = |end: i64| took(end).saturating_mul(MAX_START_UP_PART) <= self.run_ns;
        let of_first =
            firsts.into_iter().min().filter(|(_, end, ..)| is_early(*end)).map(|(_, end, last, apart_ns)| {
                (end, StartUp { ns: took(end), waited_ns: 0, last_rank: Some(last), apart_ns })
            });
        let of_init = self
            .initialized
            .map(|end| (end, StartUp { ns: took(end), waited_ns: 0, last_rank: None, apart_ns: 0 }));
        Ok(of_first.or(of_init))
    }
}

impl Sums {
    /// Adds one collective. `start_up` is the end of start-up, ns of the job.
    fn add(&mut self, kept: &Kept, waiting: &Waiting, first_of: &dyn Fn(u32) -> u32, start_up: Option<i64>) {
        self.compared += 1;
        for guest in &kept.guests {
            self.by_participant.entry(first_of(guest.participant)).or_default().collectives += 1;
        }
        let add = |sum: &mut i64| *sum = sum.saturating_add(waiting.waited_ns);
        if start_up.is_some_and(|end| waiting.first_enter < end) {
            return add(&mut self.start_up_waited);
        }
        add(&mut self.waited);
        match waiting.cause {
            Cause::Participant(participant, excess) => {
                let sum = self.by_participant.entry(first_of(participant)).or_default();
                add(&mut sum.waited);
                sum.excess.push((excess, waiting.bound_ns.unwrap_or(-1)));
            }
            Cause::HeldUp => add(&mut self.held_up),
            Cause::NotRecorded(_) => add(&mut self.not_recorded),
            Cause::Clocks(bound) => {
                add(&mut self.clocks);
                self.bounds.push(bound.unwrap_or(-1));
            }
        }
    }

    /// Adds those of another merge rank.
    fn append(&mut self, other: Sums) {
        for (participant, sum) in other.by_participant {
            let known = self.by_participant.entry(participant).or_default();
            known.waited = known.waited.saturating_add(sum.waited);
            known.collectives += sum.collectives;
            known.excess.extend(sum.excess);
        }
        let pairs = [
            (&mut self.waited, other.waited),
            (&mut self.held_up, other.held_up),
            (&mut self.not_recorded, other.not_recorded),
            (&mut self.clocks, other.clocks),
            (&mut self.start_up_waited, other.start_up_waited),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.compared += other.compared;
        self.bounds.extend(other.bounds);
    }

    /// What comes of all of them together. Of `one_in` collectives one was compared.
    fn outcome(
        self,
        members: &Members,
        firsts: &[u32],
        run_ns: i64,
        one_in: u64,
        start_up: Option<StartUp>,
    ) -> (Vec<LateRank>, Option<Lateness>) {
        if self.compared == 0 {
            return (Vec::new(), None);
        }
        let of_job = |ns: i64| ns.saturating_mul(i64::try_from(one_in).unwrap_or(i64::MAX));
        let ranks: BTreeSet<u32> = firsts.iter().copied().collect();
        let hosts: BTreeSet<&str> = members.all.iter().map(|one| one.host.as_str()).collect();
        let waited_ns = of_job(self.waited);
        let waited_share_of_run = waited_ns as f64 / (ranks.len().max(1) as f64 * run_ns.max(1) as f64);
        let mut late: Vec<LateRank> = (self.by_participant.into_iter())
            .filter(|(_, sum)| !sum.excess.is_empty())
            .filter_map(|(number, sum)| Some(sum.late_rank(members.get(number)?, self.waited, one_in)))
            .collect();
        late.sort_by_key(|late| std::cmp::Reverse(late.waited_ns));
        let causes = Causes {
            waited_ns,
            sizes: (ranks.len(), hosts.len()),
            ranks: late.iter().map(|late| (late.rank, late.host.clone(), late.waited_ns)).collect(),
            held_up_ns: of_job(self.held_up),
            clocks_ns: of_job(self.clocks),
            not_recorded_ns: of_job(self.not_recorded),
            bound_ns: median(self.bounds),
        };
        let verdict = decide(&causes, waited_share_of_run);
        late.truncate(SHOWN);
        let start_up = start_up.map(|start_up| StartUp {
            waited_ns: of_job(self.start_up_waited),
            last_rank: start_up.last_rank.and_then(|number| members.get(number)?.rank),
            ..start_up
        });
        let held_up_ns = causes.held_up_ns;
        (late, Some(Lateness { verdict, waited_ns, waited_share_of_run, run_ns, held_up_ns, start_up }))
    }
}

impl Sum {
    fn late_rank(self, participant: &Participant, waited_in_all: i64, one_in: u64) -> LateRank {
        let Participant { rank, pid, host, .. } = participant.clone();
        let (excess, bounds): (Vec<i64>, Vec<i64>) = self.excess.into_iter().unzip();
        LateRank {
            rank,
            pid,
            host,
            waited_ns: self.waited.saturating_mul(i64::try_from(one_in).unwrap_or(i64::MAX)),
            waited_share: self.waited as f64 / waited_in_all.max(1) as f64,
            last: excess.len() as u64,
            collectives: self.collectives,
            worst_ns: excess.iter().copied().max().unwrap_or(0),
            behind_ns: median(excess).unwrap_or(0),
            clock_bar_ns: median(bounds),
        }
    }
}

/// The median; `None` if there is none, or if one of them is not known.
fn median(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    let known = values.first().is_some_and(|first| *first >= 0);
    values.get(values.len() / 2).copied().filter(|_| known)
}

/// Whether the times of all ranks are of one clock, or of clocks that are aligned.
pub(super) fn is_comparable(kept: &Kept, all: &[Participant], fit_of: &FitOf<'_>) -> bool {
    let domain = |participant: u32| all.get(participant as usize).map(|p| &p.domain);
    let is_aligned = |participant: u32| {
        let fit = fit_of.get(participant as usize).copied().flatten();
        fit.is_some_and(|fit| fit.method != Method::None)
    };
    let Some(first) = kept.guests.first() else { return false };
    kept.guests.iter().all(|guest| domain(guest.participant) == domain(first.participant))
        || kept.guests.iter().all(|guest| is_aligned(guest.participant))
}
