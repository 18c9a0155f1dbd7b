//! Phase 2: what the ranks agree on: strings, nodes, clocks, what was found.

pub(crate) mod align;
pub mod apart;
pub mod clocks;
mod domains;
pub mod findings;
pub mod logs;
pub mod nodes;
mod observations;
mod process_places;
pub mod processes;
