//! Decodes the tables of a database that no process writes into columns.
//!
//! [`PageDatabase::open`] rejects databases that only SQLite itself can read: those with a hot journal or a WAL, or
//! with texts in UTF-16. [`PageDatabase::leaves`] lists the leaf pages of a table. [`PageDatabase::rows`] decodes
//! any of them, so that independent threads can share a table. Files are read by position and never mapped: if a
//! file is truncated during a read, the result is an error, whereas a mapping would raise SIGBUS.
//!
//! The reader trusts nothing in a file. It checks every offset, length, count and depth before use, and reports an
//! inconsistency as a [`PageError`] of the page that contains it.

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
