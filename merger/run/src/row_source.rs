//! Where the rows of a run are read from.

use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::model::{Local, Rows, TableId};
use std::fmt::Debug;

/// Callback that receives the rows of several pieces: the index of the piece in the request, and rows of it.
pub type TakePieceRows<'a> = dyn FnMut(usize, &Rows<Local>) -> Result<(), Failure> + 'a;

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

    /// Returns the last id of a table; `None` if it has no rows.
    ///
    /// # Errors
    /// If it cannot be read.
    fn last_id(&self, table: TableId) -> Result<Option<i64>, Failure>;

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
}
