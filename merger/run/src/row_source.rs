//! Where the rows of a run are read from.

use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_shard::model::{Cells, Local, Rows, TableId, rocpd};
use std::fmt::Debug;
use std::ops::Range;

/// Callback that receives the rows of several pieces: the index of the piece in the request, and rows of it.
pub type TakePieceRows<'a> = dyn FnMut(usize, &Rows<Local>) -> Result<(), Failure> + 'a;

/// Args of events.
#[derive(Clone, Debug)]
pub enum EventArgs<'a> {
    /// These rows of `rocpd_arg`, with the columns [`EventArgs::COLUMNS`].
    Rows(&'a Rows<Local>, Range<usize>),
    /// The arg with the same name of each of consecutive events. Values may be integers; those that are NULL are missing.
    Column {
        /// Id of the first event.
        first_event: i64,
        /// Number of events.
        events: usize,
        /// Name of the arg.
        name: &'static str,
        /// Value of each event.
        values: &'a Cells,
    },
}

impl EventArgs<'_> {
    /// The columns of rows.
    pub const COLUMNS: [&'static str; 3] = ["event_id", "name", "value"];
}

/// Callback that receives args: the index of the piece in the request, and args of it.
pub type TakePieceArgs<'a> = dyn FnMut(usize, EventArgs<'_>) -> Result<(), Failure> + 'a;

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

    /// Passes the args in several pieces of `rocpd_arg`, without the texts of numbers if the store has these as numbers.
    /// Within a piece they are in any order.
    ///
    /// # Errors
    /// If rows cannot be read, and those of `take`.
    fn read_args(&self, pieces: &[usize], take: &mut TakePieceArgs<'_>) -> Result<(), Failure> {
        self.read_pieces(rocpd::ARG, pieces, &EventArgs::COLUMNS, &mut |piece, rows| {
            take(piece, EventArgs::Rows(rows, 0..rows.len))
        })
    }
}
