#![allow(clippy::unwrap_used)]
//! Compares the page reader and writer with SQLite itself.

mod damage;
mod large;
mod open;
mod read;
mod support;
mod write;
