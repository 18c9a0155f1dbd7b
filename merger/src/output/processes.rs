//! Writes the rows of `rocpd_info_process` with SQLite. Their ids do not ascend in the order of the inputs, as leaf
//! pages would require, and there are few of them.

use super::piece_reader::PieceReader;
use super::piece_rows::PieceRows;
use super::seal::{OpenWriter, in_rank_order};
use super::sets::TableSets;
use super::written_rows::WrittenRows;
use crate::input::PieceRef;
use crate::input::survey::InputSurvey;
use crate::output::write_failure;
use rpd_comm::Comm;
use rpd_console::Failure;

/// Adds the processes of each rank's inputs, one rank after the other, in merge order. The file does not depend on
/// which rank wrote them. Returns the rows that this rank wrote.
pub(crate) fn write_in_rank_order(
    comm: &impl Comm,
    open: &OpenWriter<'_>,
    sets: &TableSets,
    rows: &PieceReader<'_>,
    surveys: &[InputSurvey],
) -> Result<WrittenRows, Failure> {
    let parts = process_parts(surveys);
    rows.expect(parts.iter());
    let mut own = WrittenRows::default();
    in_rank_order(comm, !parts.is_empty(), || {
        let mut writer = open()?;
        for part in &parts {
            let set = sets.of(part.input, part.source);
            rows.rows(*part, PieceRows::Processes, &mut own, &mut |rows| {
                writer.append_to(set, &rows).map(drop).map_err(write_failure)
            })?;
        }
        writer.commit().map_err(write_failure)
    })?;
    Ok(own)
}

/// Returns the pieces that can contain process rows.
fn process_parts(surveys: &[InputSurvey]) -> Vec<PieceRef> {
    let mut parts = Vec::new();
    for (input, survey) in surveys.iter().enumerate() {
        for (source, found) in survey.sources.iter().enumerate() {
            let pieces = found.pieces.iter().enumerate();
            let own = pieces.filter(|(_, piece)| survey.input.has_processes(found, piece));
            parts.extend(own.map(|(piece, _)| PieceRef { input, source, piece }));
        }
    }
    parts
}
