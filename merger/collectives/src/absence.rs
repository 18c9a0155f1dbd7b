//! Finds a collective that some ranks never entered while the others waited in it. A job hangs like this if one
//! of its ranks raised an error or died. The same holds for ranks that wait for messages of such a rank.

use super::matched_call::CallRecord;
use super::participants::{self, JobMembers, JobParticipant};
use super::process_calls::ProcessCollectives;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_console::wording::rank_ranges;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of participants of such a collective; larger ones are ignored.
const MAX_PRESENT: usize = 1 << 16;

/// A collective that some ranks never entered, and that at least as many ranks did enter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankAbsence {
    /// The missing rank; absent if several processes are missing or the process has no rank.
    pub rank: Option<u32>,
    /// The missing ranks, ascending, of the processes that have one.
    #[serde(default)]
    pub ranks: Vec<u32>,
    /// Description of the missing processes.
    pub name: String,
    /// The function that the other ranks called.
    pub call: String,
    /// Number of the collective on the communicator, from 1.
    pub number: u64,
    /// The communicator.
    pub communicator: String,
    /// Longest time that one of the other ranks spent in the collective, ns.
    pub each_ns: i64,
    /// Time that all other ranks together spent in the collective, ns.
    pub all_ns: i64,
}

/// A collective that some processes of its communicator did not enter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct IncompleteCollective {
    all_ns: i64,
    each_ns: i64,
    comm: u64,
    seq: u64,
    call: String,
    present: BTreeSet<u32>,
}

impl IncompleteCollective {
    /// Sums up `calls`, which are the recorded calls of the collective.
    pub(super) fn new(calls: &[CallRecord], members: &JobMembers) -> Option<IncompleteCollective> {
        let first = calls.first().filter(|_| calls.len() <= MAX_PRESENT)?;
        let times = || calls.iter().map(|call| call.time_inside(members));
        Some(IncompleteCollective {
            all_ns: times().fold(0, i64::saturating_add),
            each_ns: times().max()?,
            comm: first.comm,
            seq: first.seq,
            call: first.function.name().into_owned(),
            present: calls.iter().map(|call| call.participant).collect(),
        })
    }
}

/// Returns, among the incomplete collectives of all merge ranks, the one in which the other ranks waited
/// longest. Returns `None` if more processes are missing than entered it, or if calls of a missing process may
/// be lost.
pub(super) fn longest(
    comm: &impl Comm,
    members: &JobMembers,
    processes: &[ProcessCollectives],
    own: Option<IncompleteCollective>,
) -> Result<Option<RankAbsence>, Failure> {
    let longest = all_gather_values::<Option<IncompleteCollective>>(comm, &own)?.into_iter().flatten().max();
    let communicators = longest.iter().map(|longest| longest.comm).collect();
    let details = participants::details(comm, members.first, processes, &communicators)?;
    Ok(longest.and_then(|longest| {
        let (communicator, expected) = details.get(&longest.comm)?;
        let absent = expected.iter().filter(|number| !longest.present.contains(number));
        let absent: Vec<&JobParticipant> = absent.filter_map(|number| members.get(*number)).collect();
        let is_known = absent.iter().all(|one| !one.lacks_calls && !one.is_cut);
        if absent.is_empty() || absent.len() > longest.present.len() || !is_known {
            return None;
        }
        let mut ranks: Vec<u32> = absent.iter().filter_map(|one| one.rank).collect();
        ranks.sort_unstable();
        let name = match absent.as_slice() {
            [one] => one.name(),
            several if ranks.len() == several.len() => format!("ranks {}", rank_ranges(&ranks)),
            several => format!("{} processes", several.len()),
        };
        Some(RankAbsence {
            rank: ranks.first().copied().filter(|_| absent.len() == 1),
            ranks,
            name,
            call: longest.call,
            number: longest.seq,
            communicator: communicator.clone(),
            each_ns: longest.each_ns,
            all_ns: longest.all_ns,
        })
    }))
}
