//! Time slices: a view of a merged database.
//!
//! `rows` reads the database and says what is drawn (`item.rs`); whoever writes a trace knows nothing of the tables.

pub mod item;
pub mod open;
pub mod rows;
mod serve;
