#![allow(clippy::unwrap_used)]
//! Pages against SQLite itself.

mod read;
mod support;
mod write;
