//! Phase 2: strings and nodes that are the same in all ranks.

pub mod nodes;
pub mod strings;
