//! Phase 1, and the reading part of phases 2 and 4: lists the inputs, surveys them and reads their rows.

pub(crate) mod best_clock_sets;
pub(crate) mod expand;
pub(crate) mod host_clocks;
pub(crate) mod listing;
pub(crate) mod opened;
pub(crate) mod path_text;
pub(crate) mod piece_ref;
pub(crate) mod plan;
pub(crate) mod schema;
pub(crate) mod set_strings;
pub(crate) mod source;
pub(crate) mod survey;
pub(crate) mod vanished;
