//! Phases 4 and 5: writes rows into the database and completes it.

pub(crate) mod base;
mod block_rows;
pub(crate) mod counts;
pub(crate) mod encode;
pub(crate) mod index;
pub(crate) mod legacy;
pub(crate) mod loaded_strings;
pub(crate) mod package_index;
pub(crate) mod piece_reader;
pub(crate) mod piece_rows;
pub(crate) mod place;
pub(crate) mod planned_size;
pub(crate) mod processes;
pub(crate) mod provenance;
mod rank_names;
pub(crate) mod row_context;
pub(crate) mod rows;
pub(crate) mod seal;
pub(crate) mod sets;
pub(crate) mod size_limit;
pub(crate) mod stream;
mod string_rows;
pub(crate) mod turns;
pub(crate) mod units;
pub(crate) mod verify;
mod write_failure;
pub(crate) mod written_rows;
pub(crate) mod written_strings;

pub(crate) use write_failure::write_failure;
