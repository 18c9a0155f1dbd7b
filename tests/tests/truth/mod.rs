//! The model of MPI ranks, and what the analysis of waits says about its scenarios.

mod answers;
mod laws;
mod model;
mod shards;
mod windows;
