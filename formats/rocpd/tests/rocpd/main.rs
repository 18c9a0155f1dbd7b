//! The tests of rpd-rocpd, one binary.

mod read;
mod real;
mod schema;
mod verify;
mod views;
mod writer;
