//! RocPD databases as input, of version 3: one process's, AMD's merges of several, and our own.
//!
//! A file is untrusted: every number and length in it is bounded, and nothing that its schema states is
//! run. Nothing is made beside it.
//!
//! * [`Database`]: an open file. Opening reads the schema and the processes, but no events.
//! * [`Space`]: the tables of one uuid, described by the data model; unknown columns and tables are
//!   carried by their declaration.
//! * [`Piece`]: the rows that are read at once, by any number of threads.
//! * [`redacted_environment`]: what of a recorded environment may be passed on.
//!
//! The `guid` of a row is not examined: all rows of a table belong to the space of the table.

mod catalog;
mod connections;
mod database;
mod declaration;
mod describe;
mod error;
mod piece;
mod process;
mod redact;
mod shared;
mod sniff;
mod space;
mod stored;
mod tags;
mod wanted;

pub use database::{Database, TakeRows};
pub use error::ReadError;
pub use piece::Piece;
pub use process::ProcessFacts;
pub use redact::{Keep, redact_extdata, redacted_command, redacted_environment};
pub use sniff::{FileKind, sniff};
pub use space::{LeftOut, Space, SpaceTable};
pub use wanted::Wanted;
