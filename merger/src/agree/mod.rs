//! Phase 3: exchanges strings, nodes, clocks and findings between the ranks.

pub(crate) mod align;
pub(crate) mod apart;
pub(crate) mod clocks;
mod domains;
pub(crate) mod findings;
pub(crate) mod job_clocks;
pub(crate) mod logs;
pub(crate) mod nodes;
mod observations;
mod process_places;
pub(crate) mod processes;
pub(crate) mod recorded_clocks;
