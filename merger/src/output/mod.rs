//! Phases 4 and 5: rows into the database, and the database into its place.

pub mod partial;
pub mod provenance;
pub mod write;
