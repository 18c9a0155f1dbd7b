//! Start-up of a run: how long it takes until all ranks have taken part in a collective.

use super::matched_call::MatchedCollective;
use super::participants::JobParticipant;
use super::untimed::waited_in_init;
use super::waiting::{CollectiveWait, FitOf};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::wire;
use serde::{Deserialize, Serialize};

/// The first collective of all ranks ends start-up if it ends within the first fifth of the run.
const MAX_START_UP_PART: i64 = 5;

/// From the start of the run to the end of the first collective of all ranks, or of `MPI_Init`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StartUp {
    /// Duration, ns.
    pub ns: i64,
    /// Time that all ranks together waited in collectives during start-up, ns.
    pub waited_ns: i64,
    /// Wait time of all ranks in `MPI_Init` for the last rank to start, summed up, ns.
    #[serde(default)]
    pub init_waited_ns: i64,
    /// The last rank to enter the first collective; absent if start-up does not end with a collective.
    pub last_rank: Option<u32>,
    /// Time between the first and the last entry into that collective, ns.
    pub apart_ns: i64,
}

/// A collective of all ranks. Fields: first entry and last exit, ns of the job; the last rank to enter; time
/// between the first and the last entry, ns.
type FirstCollective = (i64, i64, u32, i64);

/// Times of the run that delimit its start-up.
pub(super) struct RunTimes {
    /// Start of the run, ns of the job; `None` if there are no participants.
    start: Option<i64>,
    /// Recorded duration of the run, ns.
    pub(super) run_ns: i64,
    /// End of the last `MPI_Init`, ns of the job.
    initialized: Option<i64>,
    /// Wait time of all ranks in `MPI_Init`, summed up, ns.
    init_waited_ns: i64,
    /// Number of participants.
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

    /// Returns the end of start-up, ns of the job, and its description without the wait time in collectives.
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
