//! RocPD databases (ROCm 7): schema, views, reading, writing.
//!
//! * [`schema`]: the statements that make the tables and views, generated from the data model.
//! * [`amd`]: the tables of each version of AMD's schema.
//! * [`read`]: databases of any 3.x as input of a merge.
//! * [`translate()`]: a database as a shard, a source for each process.
//! * [`Writer`]: rows of the merged output into a new database.
//! * [`verify`]: whether a finished database keeps AMD's rules, and its most expensive operations.
//!
//! A database holds one job under one [`Guid`], or in one [`TableSet`] for each process, as AMD's merge has it.
//! The version written is [`schema::VERSION`], or that of the newest input.

pub mod amd;
mod connect;
mod create_table;
mod guid;
mod insert;
pub mod read;
pub mod schema;
mod set;
mod shape;
mod translate;
pub mod verify;
mod writer;

pub use guid::{Guid, NotAGuid};
pub use set::{MAX_SETS, TableSet};
pub use translate::{TranslateError, Translation, translate};
pub use writer::{WriteError, Writer};
