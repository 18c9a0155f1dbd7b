//! Jobs on emulated nodes with clocks of their own, under Slurm and `mpirun`: real collectors, real probes, and a truth
//! to compare with, since the clocks of all nodes are one clock and what was added to it.
#![allow(clippy::unwrap_used)] // clippy takes only functions marked as tests for tests

mod aligned;
mod batch;
mod bounds;
mod drift;
mod troubles;
mod truth;
