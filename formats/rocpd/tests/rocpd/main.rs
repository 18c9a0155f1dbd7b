//! All tests of rpd-rocpd in one binary.

mod amd;
mod read;
mod real;
mod schema;
mod verify;
mod views;
mod writer;
