//! What a merge tells: warnings, the closing summary, JSON.

mod amd_tools;
mod clock_table;
mod clocks;
mod collectives;
mod drawing;
mod endings;
pub mod former;
pub mod inspect;
mod inspect_other;
mod lateness;
mod losses;
mod metadata;
mod not_used;
pub mod plot;
mod processes;
mod running;
mod summary;

pub use clocks::ClockRow;
pub use losses::LossRow;
pub use metadata::metadata;
pub use not_used::NotUsed;
pub use summary::Report;
