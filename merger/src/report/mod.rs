//! What a merge tells: warnings, the closing summary, JSON.

pub mod inspect;
pub mod progress;
mod summary;

pub use summary::{ClockRow, LossRow, Report, RowCount, SHOWN};
