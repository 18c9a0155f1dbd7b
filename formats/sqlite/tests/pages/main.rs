#![allow(clippy::unwrap_used)]
//! Pages against SQLite itself.

mod damage;
mod large;
mod open;
mod read;
mod support;
mod write;
