//! Phase 2: what the ranks agree on: strings, nodes, clocks, what was found.

pub(crate) mod align;
pub(crate) mod apart;
pub(crate) mod clocks;
mod domains;
pub(crate) mod findings;
pub(crate) mod logs;
pub(crate) mod nodes;
mod observations;
mod process_places;
pub(crate) mod processes;
