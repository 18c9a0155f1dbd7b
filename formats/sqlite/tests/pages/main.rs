#![allow(clippy::unwrap_used)]
//! Pages against SQLite itself.

mod support;
mod write;
