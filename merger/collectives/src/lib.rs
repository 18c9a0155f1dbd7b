//! Finds the collective operations in all inputs, matches them between ranks, and evaluates the matched ones.
//!
//! Calls are matched by communicator, sequence number on it, function, root and size. Calls that do not match
//! are reported and never used. [`MatchedCollectives`] yield observations of the clocks and the ranks that the
//! others wait for.
//!
//! [`ProcessCollectives::of_block`] and [`RegionNames::find_collectives`] find the calls of a process, and
//! [`CallSample`] limits how many are kept. [`match_calls`] exchanges them between merge ranks.
//! `timing_evidence` decides by their times whether unnumbered calls are one collective.

mod absence;
mod clock_observations;
mod exit_spread;
mod from_regions;
mod functions;
mod late_rank_verdict;
mod late_ranks;
mod matched_call;
mod matching;
mod own_time;
mod participant_clocks;
mod participants;
mod process_calls;
mod resync;
mod sample;
mod start_up;
mod timing_evidence;
mod timing_proof;
mod unnumbered;
mod untimed;
mod waiting;

pub use absence::RankAbsence;
pub use from_regions::RegionNames;
pub use functions::CollectiveFunction;
pub use late_rank_verdict::{LatenessVerdict, MissingCause};
pub use late_ranks::{LateRank, LatenessSummary};
pub use matching::{CollectiveCounts, MatchedCollectives, match_calls};
pub use participants::JobParticipant;
pub use process_calls::{ProcessCollectives, is_shared_communicator};
pub use sample::CallSample;
pub use start_up::StartUp;
