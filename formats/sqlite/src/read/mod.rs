//! Tables of a quiet file, decoded to columns.
//!
//! [`PageDatabase::open`] refuses what only SQLite itself can read: a file with a hot journal or with a WAL beside it, or with texts in
//! UTF-16. [`PageDatabase::leaves`] lists the leaf pages of a table, and [`PageDatabase::rows`] decodes any of them, so
//! that threads share a table without knowing of each other. Files are read by position and never mapped: a
//! file that is cut while it is read is an error, where a mapping would be a SIGBUS.
//!
//! Nothing in a file is trusted: every offset, length, count and depth is checked before it is used, and what
//! does not fit together is a [`PageError`] of the page where it was found.

mod cell;
mod columns;
mod database;
mod error;
mod file;
mod leaves;
mod rows;
mod schema;

pub use database::PageDatabase;
pub use error::{OpenError, PageError, PageProblem};
pub use leaves::Leaves;
pub use rows::{TableRows, Wanted};
pub use schema::SchemaRow;
