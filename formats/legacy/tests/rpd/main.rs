//! Reads and writes `.rpd` files, and compares the output with SQL queries on the input.
#![allow(clippy::unwrap_used)]

mod hostile;
mod made;
mod real;
mod support;
mod written;
