//! The guarantees of the collector, with real programs below it. One test program, because linking takes most
//! of the build time.
#![allow(clippy::unwrap_used)] // clippy takes only functions marked as tests for tests

mod backends;
mod doctor;
mod event_times;
mod exit_statuses;
mod faults;
mod first_moments;
mod interruptions;
mod kill_points;
mod limits;
mod manners;
mod mpi_stand_in;
mod odd_programs;
mod preloads;
mod probes;
mod process_tree;
mod processes;
mod python_samples;
mod quiet;
mod rccl;
mod recording;
mod ring_handover;
mod ring_memory;
mod roctx_api;
mod support;
mod system;
mod thread_counters;
mod torchrun;
mod unseen_programs;
mod unwritable;
mod valgrind;
mod volume;
