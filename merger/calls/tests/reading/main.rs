//! Reading of calls from databases.

mod damaged_runs;
mod small_run;
mod small_runs;
