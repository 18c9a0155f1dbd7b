//! One time for all nodes: how far off it is, how honest its bar is, and what must not move it.
#![allow(clippy::unwrap_used)]

mod causality;
mod crowded;
mod errors;
mod garbage;
mod laws;
mod noisy;
mod parts;
mod recorded;
mod short;
mod sparse;
