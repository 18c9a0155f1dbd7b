//! Phase 1, and the reading part of phases 2 and 4: lists the inputs, surveys them and reads their rows.

pub(crate) mod best_clock_sets;
pub(crate) mod expand;
pub(crate) mod host_clocks;
pub(crate) mod listing;
pub(crate) mod memberships;
mod opened;
mod path_text;
mod piece_ref;
pub(crate) mod plan;
mod schema;
mod set_strings;
mod source;
pub(crate) mod survey;
mod vanished;

pub(crate) use expand::{BuiltinString, REGIONS, SAMPLES};
pub(crate) use host_clocks::{BoottimeOffset, HostClocks, to_boottime};
pub(crate) use opened::{
    InputTables, OpenInput, StringMap, StringPieces, block_rows, needed_rows, shard_source_id, shard_strings,
    text_of,
};
pub(crate) use path_text::path_text;
pub(crate) use piece_ref::PieceRef;
pub(crate) use schema::{JobSchema, PlannedSchema};
pub(crate) use set_strings::SetStrings;
pub(crate) use source::{
    ExpandedKeys, InputSource, KeySpace, NO_THREAD, RowLengthLimit, RowOrigin, SourcePiece, SourceTracks,
    StackSpace,
};
pub(crate) use vanished::vanished_input;
