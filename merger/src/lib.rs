//! The merger: plan, agree, number, write, seal. `merge.rs` reads as the algorithm.

pub mod agree;
pub mod allocator;
pub mod budget;
pub mod cli;
pub mod epilog;
pub mod input;
mod job_user;
pub mod merge;
pub mod number;
pub mod output;
mod output_file;
pub mod report;
pub mod run;
mod strings;
pub mod trace_inputs;
