//! Output of a merge for users: warnings, the closing summary, JSON.

mod amd_tools;
mod clock_table;
mod clocks;
mod collectives;
mod drawing;
mod endings;
pub(crate) mod former;
pub(crate) mod inspect;
mod inspect_other;
mod lateness;
mod losses;
mod metadata;
mod not_used;
pub(crate) mod plot;
mod processes;
mod running;
mod summary;

pub(crate) use clocks::ClockRow;
pub(crate) use metadata::metadata;
pub(crate) use not_used::NotUsed;
pub use summary::MergeReport;
