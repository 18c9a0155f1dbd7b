//! The rows of a database in a form that does not depend on ids.
//!
//! Every reference is replaced by what it refers to, stack ids by everything that shares them, ids in
//! JSON by the rows that they name. Two databases hold the same if their contents are equal; how their
//! rows are numbered makes no difference.

mod canonical;
mod difference;
mod tables;

pub use canonical::{DatabaseContent, content};
pub use difference::differences;
pub use tables::{ContentTables, RowsById};
