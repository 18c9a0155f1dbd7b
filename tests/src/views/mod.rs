//! The rows of AMD's views in a form that does not depend on ids, of one database or of several
//! together.
//!
//! What the views of a merge show must be what the inputs' own views show: each is asked through the
//! statements in its own `sqlite_master`. A column that holds an id is replaced by a few words about
//! the row that it refers to, or left out, as `treatment.rs` lists it; every other column is
//! compared as it is. The summary views of several databases are computed from those of each.

mod referred;
mod rows;
mod summaries;
mod treatment;

pub use rows::view_rows;
