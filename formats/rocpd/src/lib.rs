//! RocPD databases (ROCm 7): schema, views, reading and writing.
//!
//! * [`schema`]: the statements that create the tables and views, generated from the data model.
//! * [`amd`]: the tables of each version of AMD's schema.
//! * [`read`]: databases of any version 3.x as input of a merge.
//! * [`translate()`]: translates a database to a shard with one source per process.
//! * [`Writer`]: writes rows of the merged output to a new database.
//! * [`verify`]: checks a finished database against AMD's rules, and reads the most expensive operations of its job.
//!
//! A database has one job under one [`Guid`], or one [`TableSet`] per process, as AMD's merge writes it. The
//! written version is [`schema::VERSION`], or that of the newest input.

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
pub use translate::translate;
pub use writer::{WriteError, Writer};
