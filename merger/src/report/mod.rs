//! What a merge tells: warnings, the closing summary, JSON.

mod clock_table;
mod clocks;
mod collectives;
mod drawing;
pub mod former;
pub mod inspect;
pub mod plot;
pub mod progress;
mod summary;
pub mod words;

pub use clocks::ClockRow;
pub use summary::{LossRow, Report, RowCount, SHOWN};
