//! Phases 4 and 5: rows into the database, and the database into its place.

pub mod base;
pub mod encode;
pub mod index;
pub mod partial;
pub mod place;
pub mod provenance;
pub mod rows;
pub mod seal;
pub mod stream;
pub mod turns;
pub mod units;
