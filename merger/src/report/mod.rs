//! What a merge tells: warnings, the closing summary, JSON.

mod clocks;
mod collectives;
pub mod former;
pub mod inspect;
pub mod plot;
pub mod progress;
mod summary;

pub use clocks::ClockRow;
pub use summary::{LossRow, Report, RowCount, SHOWN};
