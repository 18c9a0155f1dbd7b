//! Units of work: consecutive pieces of this rank's sources, which one thread turns into pages.
//!
//! Where a unit ends depends on the inputs alone, never on ranks or threads, because leaf pages begin
//! anew in each unit.

use crate::input::piece_ref::PieceRef;
use crate::input::source::SourcePiece;
use crate::input::survey::InputSurvey;
use rpd_shard::file::BlockKind;
use std::ops::Range;

/// A unit is full when its rows come to so many bytes, by estimate. Small enough that its rows stay in
/// a core's cache, large enough that a last page that is half empty does not count.
const UNIT_BYTES: u64 = 2 << 20;
/// What a row of the output takes, about.
const ROW_BYTES: u64 = 64;
/// Rows that a native row becomes, about.
const EXPANDED_ROWS: u64 = 5;

/// The pieces of one unit, in the order of writing.
pub(crate) type PieceUnit = Vec<PieceRef>;

/// Deals the pieces of these inputs to units. `groups` are runs of inputs that stand together in the
/// plan: no unit has pieces of two of them.
pub(crate) fn units(surveys: &[InputSurvey], groups: &[Range<usize>]) -> Vec<PieceUnit> {
    let mut units = Vec::new();
    for group in groups {
        let mut unit = PieceUnit::new();
        let mut bytes = 0;
        for input in group.clone() {
            for (source, found) in surveys[input].sources.iter().enumerate() {
                for (piece, content) in found.pieces.iter().enumerate() {
                    unit.push(PieceRef { input, source, piece });
                    bytes += weight(content);
                    if bytes >= UNIT_BYTES {
                        units.push(std::mem::take(&mut unit));
                        bytes = 0;
                    }
                }
            }
        }
        if !unit.is_empty() {
            units.push(unit);
        }
    }
    units
}

/// Bytes that the rows of a piece take in the output, by estimate.
fn weight(piece: &SourcePiece) -> u64 {
    match piece {
        SourcePiece::Process | SourcePiece::Tail => 256,
        SourcePiece::Rows { piece, .. } => piece.rows * ROW_BYTES,
        SourcePiece::Block(block, keys) => match block.header.kind {
            BlockKind::Rows(_) if keys.is_some() => u64::from(block.header.rows) * EXPANDED_ROWS * ROW_BYTES,
            _ => u64::from(block.header.rows) * ROW_BYTES,
        },
    }
}
