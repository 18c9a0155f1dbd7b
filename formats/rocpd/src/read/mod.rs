//! RocPD databases of version 3 as input: of one process, of AMD's merge of several, and merged databases of rpd.
//!
//! A file is untrusted: every number and length in it is bounded, and no code of its schema is executed. Reading
//! creates no files beside it.
//!
//! * [`Database`]: an open file. Opening reads the schema and the processes, but no events.
//! * [`StoredTableSet`]: the tables of one uuid, described by the data model. Unknown columns and tables are carried
//!   with their declaration.
//! * [`Piece`]: rows that are read at once, by any number of threads.
//! * [`redacted_environment`]: removes secrets from a recorded environment.
//!
//! The `guid` of a row is not examined: all rows of a table belong to that of the table.

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
mod stored;
mod table_set;
mod tags;
mod wanted;

pub use database::{Database, TakeRows};
pub use error::ReadError;
pub use piece::Piece;
pub use process::ProcessFacts;
pub use redact::{Keep, redact_extdata, redacted_command, redacted_environment};
pub use sniff::{FileKind, sniff};
pub use table_set::{LeftOut, StoredTable, StoredTableSet};
pub use wanted::Wanted;
