//! Collective operations, as they are found in all inputs and matched between ranks: by communicator, number
//! of the call on it, function, root and size. What does not match is reported and never used.
//!
//! From the matched ones come meetings, by which clocks are aligned, and which ranks are late.
//!
//! * [`calls`]: which functions are collectives, and who waits for whom in them.
//! * [`gather`]: those of one process, from native rows; [`regions`]: from the regions of other formats, which
//!   have no numbers.
//! * [`sample`]: which of them are kept where they are too many.
//! * [`agree`]: who takes part; [`groups`]: whether calls without numbers are the same in all processes;
//!   `resync`: which of them are, where some have more than others.
//! * [`evidence`]: whether calls of several nodes that only their order brings together are one collective by their
//!   times; [`proof`]: what becomes of those that are not.
//! * [`matching`]: the exchange between merge ranks; [`meetings`]: what the clocks get; [`spread`]: how far apart ranks
//!   leave; `absence`: a collective that one rank never entered; `untimed`: time in calls that are not compared.
//! * [`own_time`]: what a rank spends outside of MPI between two synchronisations; `waiting`: what ranks wait in one
//!   collective, and which rank's own time explains it; [`start_up`]: when all had met; [`late`]: the sums over the job; [`verdict`]: the rank that
//!   others wait for, or why none is named.

pub mod absence;
pub mod agree;
pub mod calls;
mod evidence;
pub mod gather;
pub mod groups;
mod judge;
pub mod late;
pub mod matching;
pub mod meetings;
pub mod own_time;
mod proof;
pub mod regions;
mod resync;
pub mod sample;
pub mod spread;
pub mod start_up;
pub mod untimed;
pub mod verdict;
mod waiting;

pub use agree::{Members, Participant};
pub use gather::Said;
pub use judge::{Guest, Kept};
pub use matching::Matched;
pub use sample::Sample;
