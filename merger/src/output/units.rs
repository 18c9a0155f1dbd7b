//! Units of work: consecutive pieces of this rank's sources, which one thread encodes into pages.
//!
//! The limits of a unit depend only on the inputs, never on ranks or threads, because each unit starts new leaf
//! pages.

use crate::input::piece_ref::PieceRef;
use crate::input::source::SourcePiece;
use crate::input::survey::input_survey::InputSurvey;
use rpd_shard::file::BlockKind;
use std::ops::Range;

/// Estimated bytes of rows at which a unit ends. Small enough for a core's cache, large enough that a half-empty last
/// page does not matter.
const UNIT_BYTES: u64 = 2 << 20;
/// Approximate bytes of a row in the output.
const ROW_BYTES: u64 = 64;
/// Approximate number of rows that a native row becomes.
const EXPANDED_ROWS: u64 = 5;

/// Pieces of one unit, in the order of writing.
pub(crate) type PieceUnit = Vec<PieceRef>;

/// Divides the pieces of these inputs into units. `groups` are contiguous runs of inputs in the plan; no unit has
/// pieces of two groups.
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

/// Returns the estimated bytes of a piece's rows in the output.
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
