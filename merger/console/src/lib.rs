//! Console output of the merger's programs, and their exit.
//!
//! [`Failure`] ends a program with an [`Exit`] code and one line. [`Progress`] shows long work, [`wording`]
//! formats numbers and durations, and [`TimeWindow`] parses the part of a run that a user selects.

mod failure;
mod progress;
mod time_window;
mod vanished_input;
mod wall_clock;
pub mod wording;

pub use failure::{Exit, Failure};
pub use progress::{PhaseTime, Progress};
pub use time_window::{TimeWindow, WindowError};
pub use vanished_input::VanishedInput;
pub use wall_clock::WallClock;
