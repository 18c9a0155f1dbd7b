//! Start-up of a run: how long it takes until all ranks have met.

use super::matched_call::MatchedCollective;
use super::participants::JobParticipant;
use super::untimed::waited_in_init;
use super::waiting::{CollectiveWait, FitOf};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::wire;
use serde::{Deserialize, Serialize};

/// The first collective of all ranks ends start-up if it is over in the first fifth of the run.
const MAX_START_UP_PART: i64 = 5;

/// From the start of the run to the end of the first collective of all ranks, or of `MPI_Init`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StartUp {
    /// How long it took, ns.
    pub ns: i64,
    /// What all ranks waited in collectives in it, all together, ns.
    pub waited_ns: i64,
    /// Wait time of all ranks in `MPI_Init` for the last rank to start, summed up, ns.
    #[serde(default)]
    pub init_waited_ns: i64,
    /// The last rank to enter the first collective; absent where that is not its end.
    pub last_rank: Option<u32>,
    /// How long after the first one that was, ns.
    pub apart_ns: i64,
}

/// When the first rank entered a collective of all ranks and the last one left it, ns of the job; the last one to enter, and how
/// long after the first one that was, ns.
type FirstCollective = (i64, i64, u32, i64);

/// When the run was.
pub(super) struct RunTimes {
    /// Its start, ns of the job; `None` if nobody took part.
    start: Option<i64>,
    /// How long it was recorded, ns.
    pub(super) run_ns: i64,
    /// The end of the last `MPI_Init`, ns of the job.
    initialized: Option<i64>,
    /// Wait time of all ranks in it, summed up, ns.
    init_waited_ns: i64,
    /// Ranks that took part.
    participants: usize,
}

impl RunTimes {
    pub(super) fn new(all: &[JobParticipant], fit_of: &FitOf<'_>) -> RunTimes {
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
            init_waited_ns: waited_in_init(all.iter().filter_map(|one| one.initialization_ns)),
            participants: all.len(),
        }
    }

    /// The end of start-up, ns of the job, and what there is to say of it, without the waiting.
    pub(super) fn start_up(
        &self,
        comm: &impl Comm,
        compared: &[(&MatchedCollective, CollectiveWait)],
    ) -> Result<Option<(i64, StartUp)>, Failure> {
        let of_everyone = compared.iter().filter(|(kept, _)| kept.guests.len() == self.participants);
        let first = of_everyone.map(|(_, w)| (w.first_enter, w.last_exit, w.last, w.apart_ns)).min();
        let mut firsts: Vec<FirstCollective> = Vec::new();
        for message in comm.all_gather(wire::encode(&first)) {
            let theirs: Option<FirstCollective> = wire::decode_message(&message).map_err(Failure::message)?;
            firsts.extend(theirs);
        }
        let Some(start) = self.start else { return Ok(None) };
        let took = |end: i64| end.saturating_sub(start);
        let start_up = |end: i64, last_rank, apart_ns| {
            let init_waited_ns = self.init_waited_ns;
            (end, StartUp { ns: took(end), waited_ns: 0, init_waited_ns, last_rank, apart_ns })
        };
        let is_early = |end: i64| took(end).saturating_mul(MAX_START_UP_PART) <= self.run_ns;
        let of_first = firsts.into_iter().min().filter(|(_, end, ..)| is_early(*end));
        let of_first = of_first.map(|(_, end, last, apart_ns)| start_up(end, Some(last), apart_ns));
        let of_init = self.initialized.map(|end| start_up(end, None, 0));
        Ok(of_first.or(of_init))
    }
}
