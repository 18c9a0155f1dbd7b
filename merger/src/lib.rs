//! The merger: plan, agree, number, write, seal. `merge.rs` reads as the algorithm.

pub mod agree;
pub mod allocator;
pub mod budget;
pub mod cli;
pub mod clock;
pub mod collectives;
pub mod comm;
pub mod epilog;
pub mod failure;
pub mod input;
mod interrupt;
mod listing;
pub mod merge;
pub mod number;
pub mod output;
pub mod report;
pub mod run;
mod together;
pub mod trace;
pub mod wall_clock;
