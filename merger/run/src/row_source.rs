//! Where the rows of a run are read from.

use crate::units::RowUnit;
use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::model::{Cells, Local, Rows, TableId};
use std::fmt::Debug;

/// Callback that receives the rows of several pieces: the index of the piece in the request, and rows of it.
pub(crate) type TakePieceRows<'a> = dyn FnMut(usize, &Rows<Local>) -> Result<(), Failure> + 'a;

/// Rows of regions or samples with the events and args of the same calls.
#[derive(Clone, Copy, Debug)]
pub struct JoinedEvents<'a> {
    /// Id of the string that is the category of all events.
    pub category_id: Option<i64>,
    /// Stack id of each event; absent if it was not asked for.
    pub stack_ids: &'a Cells,
    /// Parent stack id of each event; absent if it was not asked for.
    pub parent_stack_ids: &'a Cells,
    /// Name of each arg that the events may have, with its value for each event: an integer, a text, or NULL for none.
    pub args: &'a [(&'static str, Cells)],
}

/// Callback that receives regions or samples: the index of the piece in the request, rows of it, and what is joined with
/// them.
type TakeJoinedRows<'a> =
    dyn FnMut(usize, &Rows<Local>, Option<JoinedEvents<'_>>) -> Result<(), Failure> + 'a;

/// A store of the rows of a run: a merged database, or the inputs of a merge that is not written.
///
/// Each table has pieces. Ids ascend in a piece, and from piece to piece. All ids and times are those of the run.
pub trait RowSource: Debug + Send + Sync {
    /// Returns a failure with this problem, which names the place and the next step.
    fn failure(&self, problem: &str) -> Failure;

    /// Returns the value of a metadata tag.
    fn tag(&self, name: &str) -> Option<&str>;

    /// Returns the merged database, if the rows are in one.
    fn database(&self) -> Option<&Database>;

    /// Divides large pieces further if the rows will be read in this many units.
    fn divide_pieces(&mut self, units: usize);

    /// Returns the number of pieces of a table.
    fn pieces(&self, table: TableId) -> usize;

    /// Returns the approximate number of rows in a piece.
    fn row_count(&self, table: TableId, piece: usize) -> u64;

    /// Returns the first id of a piece; `i64::MAX` if it has no rows.
    ///
    /// # Errors
    /// If it cannot be read.
    fn first_id(&self, table: TableId, piece: usize) -> Result<i64, Failure>;

    /// Returns the first and the last id of a table in the whole run; `None` if it has no rows.
    ///
    /// # Errors
    /// If they cannot be read.
    fn id_bounds(&self, table: TableId) -> Result<Option<(i64, i64)>, Failure>;

    /// Returns whether the rows of a unit can be read here. Merge ranks that survey inputs have the rows of their own.
    fn has_unit(&self, unit: &RowUnit) -> bool;

    /// Passes the rows of several pieces in order, with their keys. Columns that are not `wanted` may be absent.
    /// While `take` processes rows, another thread may read the next ones.
    ///
    /// # Errors
    /// If rows cannot be read, and those of `take`.
    fn read_pieces(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        take: &mut TakePieceRows<'_>,
    ) -> Result<(), Failure>;

    /// Returns whether the events or args in a piece are passed by [`RowSource::read_joined`] with the regions or samples
    /// to which they belong.
    fn is_joined(&self, _table: TableId, _piece: usize) -> bool {
        false
    }

    /// As [`RowSource::read_pieces`], for regions or samples, with their events and args where these are at hand. Only the
    /// category of events is needed if not `whole_events`.
    ///
    /// # Errors
    /// If rows cannot be read, and those of `take`.
    fn read_joined(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        _whole_events: bool,
        take: &mut TakeJoinedRows<'_>,
    ) -> Result<(), Failure> {
        self.read_pieces(table, pieces, wanted, &mut |piece, rows| take(piece, rows, None))
    }
}
