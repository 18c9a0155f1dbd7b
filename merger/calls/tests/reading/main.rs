//! Reading of calls from databases.
#![allow(clippy::unwrap_used)] // clippy takes only functions marked as tests for tests

mod call_files;
mod damaged_runs;
mod python_samples;
mod small_run;
mod small_runs;
