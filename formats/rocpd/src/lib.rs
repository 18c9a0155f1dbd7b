//! RocPD databases (ROCm 7): schema, views, writing.
//!
//! * [`schema`]: the statements that make the tables and views, generated from the data model.
//! * [`Writer`]: rows of the merged output into a new database.
//! * [`verify`]: whether a finished database keeps AMD's rules, and its most expensive operations.
//!
//! A database holds one job under one [`Guid`]. The version written is [`schema::VERSION`].

mod connect;
mod guid;
mod insert;
pub mod schema;
mod shape;
pub mod verify;
mod writer;

pub use guid::{Guid, NotAGuid};
pub use writer::{WriteError, Writer};
