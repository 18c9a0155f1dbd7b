//! Start-up of a run: how long it takes until all ranks have taken part in a collective.

use super::matched_call::MatchedCollective;
use super::participant_clocks::ParticipantClocks;
use super::untimed::time_over_shortest;
use super::waiting::CollectiveWait;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
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

/// A collective of all ranks.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct FirstCollective {
    /// First entry and last exit, ns of the job.
    enter: i64,
    exit: i64,
    /// The last rank to enter.
    last: u32,
    /// Time between the first and the last entry, ns.
    apart_ns: i64,
}

/// Finds the end of start-up, ns of the job. The description lacks the wait time in collectives. `compared` are
/// the collectives of this merge rank with comparable times.
pub(super) fn find_start_up(
    comm: &impl Comm,
    clocks: &ParticipantClocks<'_>,
    compared: &[(&MatchedCollective, CollectiveWait)],
) -> Result<Option<(i64, StartUp)>, Failure> {
    let all = &clocks.members.all;
    let of_everyone = compared.iter().filter(|(one, _)| one.calls.len() == all.len());
    let first = |(_, wait): &(&MatchedCollective, CollectiveWait)| FirstCollective {
        enter: wait.first_enter,
        exit: wait.last_exit,
        last: wait.last,
        apart_ns: wait.apart_ns,
    };
    let firsts: Vec<Option<FirstCollective>> = all_gather_values(comm, &of_everyone.map(first).min())?;
    let starts = (0..).zip(all).map(|(number, one)| clocks.job_time(number, one.first_seen));
    let Some(start) = starts.min() else { return Ok(None) };
    let initialized =
        (0..).zip(all).filter_map(|(number, one)| Some(clocks.job_time(number, one.initialized?)));
    // The shortest call of MPI_Init is that of the last rank to start.
    let init_waited_ns = time_over_shortest(all.iter().filter_map(|one| one.initialization_ns), 0);
    let took = |end: i64| end.saturating_sub(start);
    let start_up = |end: i64, last_rank, apart_ns| {
        (end, StartUp { ns: took(end), waited_ns: 0, init_waited_ns, last_rank, apart_ns })
    };
    let is_early = |end: i64| took(end).saturating_mul(MAX_START_UP_PART) <= clocks.members.run_ns();
    let of_first = firsts.into_iter().flatten().min().filter(|first| is_early(first.exit));
    let of_first = of_first.map(|first| start_up(first.exit, Some(first.last), first.apart_ns));
    Ok(of_first.or_else(|| initialized.max().map(|end| start_up(end, None, 0))))
}
