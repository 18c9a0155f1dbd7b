//! End-to-end tests, synthetic runs and benchmarks.
//!
//! * [`amd`] asks databases as AMD's `rocpd` does;
//! * [`synthetic`] makes runs with known rows, and writes them as shards and as databases;
//! * [`content`] brings the rows of a model and of a database into one form that does not depend on ids;
//! * [`plain`] merges databases with SQL alone;
//! * [`views`] does the same with the rows of AMD's views;
//! * [`fixtures`] are real files of other tools;
//! * [`clocks`] makes jobs with known clocks, and what a collector sees of them;
//! * [`cluster`] is a cluster of emulated nodes, with clocks of their own;
//! * [`crafted`] makes shards with given rows, given bytes or given damage;
//! * [`databases`] are jobs of databases, to be damaged;
//! * [`harness`] starts the built programs with a time limit, under `mpirun` where there is one;
//! * [`measure`] is what benchmarks need besides;
//! * [`truth`] runs modelled programs of which it is known which rank the others wait for;
//! * [`truth_real`] runs programs with a known slow rank, and judges reports on them.
//!
//! The promises themselves are in `tests/`, a module each.
pub mod amd;
pub mod clocks;
pub mod cluster;
pub mod content;
pub mod crafted;
pub mod databases;
pub mod fixtures;
pub mod harness;
pub mod measure;
pub mod plain;
pub mod synthetic;
pub mod truth;
pub mod truth_real;
pub mod views;
