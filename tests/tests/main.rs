//! What the software promises, a module for each kind of promise. It is one program, since most of the time of a build
//! goes into linking.
#![allow(missing_docs, clippy::unwrap_used)] // clippy takes only functions marked as tests for tests

mod amd_views;
mod bad_input;
mod bulk;
mod clock_tables;
mod clocks;
mod cluster;
mod collectives;
mod collector_words;
mod costly_shards;
mod database_inputs;
mod database_interruptions;
mod database_shards;
mod drawn_rows;
mod file_nodes;
mod hostile_shards;
mod kept_values;
mod kept_versions;
mod kineto;
mod linkage;
mod lost_rows;
mod merged_rows;
mod mpi_calls;
mod mpi_end_to_end;
mod mpi_merge;
mod odd_databases;
mod one_axis;
mod one_time;
mod other_formats;
mod output_forms;
mod perfetto_packets;
mod profiler_files;
mod refused_outputs;
mod rocpd_input;
mod rpd_again;
mod run_folders;
mod same_inputs;
mod scale;
mod slices;
mod synthetic_runs;
mod system_metrics;
mod torch_backend;
mod trace_files;
mod vanishing_inputs;
