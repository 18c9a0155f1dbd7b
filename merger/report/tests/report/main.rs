//! `rpd-report` on merged databases of every kind of input.
#![allow(clippy::unwrap_used, clippy::panic)]

mod against_sql;
mod errors;
mod formats;
mod hostile_names;
mod inputs;
mod program;
mod runs;
mod schema;
mod sql;
