//! Output of a merge for users: warnings, the closing summary, JSON.

mod amd_tools;
pub(crate) mod clock_plot;
mod clock_plot_svg;
mod clock_table;
mod clocks;
mod collectives;
mod exits;
pub(crate) mod inspect;
mod inspect_other;
mod lateness;
mod losses;
mod metadata;
mod not_used;
pub(crate) mod previous_merges;
mod processes;
mod report;
mod running;

pub(crate) use metadata::metadata;
pub(crate) use not_used::NotUsed;
pub use report::MergeReport;
