use super::writer::{ShardWriter, WriteError};
use crate::model::row_types::TableRow;
use std::io::Write;

impl<W: Write> ShardWriter<W> {
    /// Adds a typed row of a process. Returns its key.
    ///
    /// # Errors
    /// Fails in the same cases as [`ShardWriter::push`].
    #[inline]
    pub fn push_row<R: TableRow>(&mut self, source: u32, row: &R) -> Result<R::Key, WriteError> {
        row.with_values(|values| self.push(source, R::TABLE, values)).map(R::key)
    }
}
