//! Phases 4 and 5: rows into the database, and the database into its place.

pub mod base;
pub mod counts;
pub mod encode;
pub mod index;
pub mod legacy;
pub mod place;
pub mod planned_size;
pub mod processes;
pub mod provenance;
pub mod rows;
pub mod seal;
pub mod sets;
pub mod size_limit;
pub mod stream;
pub mod turns;
pub mod units;
pub mod verify;
mod write_failure;

pub(crate) use write_failure::write_failure;
