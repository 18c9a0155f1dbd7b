use crate::model::TextCells;

/// Maximum number of strings of one shard.
pub const MAX_STRINGS: usize = 4 << 20;
/// Maximum bytes of one string.
pub const MAX_STRING_LENGTH: usize = 1 << 20;
/// Maximum bytes of all strings of one shard.
pub const MAX_STRING_BYTES: usize = 256 << 20;

/// The string table of a shard. Ids count from 1; the strings of lost blocks are missing.
#[derive(Clone, Debug, Default)]
pub struct ShardStrings {
    cells: TextCells,
}

impl ShardStrings {
    /// Returns the highest id plus one.
    pub fn next_id(&self) -> i64 {
        self.cells.codes.len() as i64 + 1
    }

    /// Returns the string with this id, or `None` if it is missing.
    pub fn get(&self, id: i64) -> Option<&[u8]> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        match *self.cells.codes.get(index)? {
            TextCells::NULL => None,
            code => Some(self.cells.entry(code)),
        }
    }

    /// Returns whether the ids from `low` to `high` are those of strings. False if any string of the table is missing.
    pub fn has_all(&self, low: i64, high: i64) -> bool {
        let is_complete = self.cells.ends.len() == self.cells.codes.len();
        is_complete && low >= 1 && high < self.next_id()
    }

    /// Iterates over the present strings by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &[u8])> {
        (1..self.next_id()).filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Returns whether a block of `rows` strings with ids from `first` on and `bytes` bytes is within the limits.
    pub(super) fn is_within_limits(&self, first: i64, rows: usize, bytes: usize) -> bool {
        first >= self.next_id()
            && first as usize + rows <= MAX_STRINGS + 1
            && self.cells.bytes.len() + bytes <= MAX_STRING_BYTES
    }

    /// Adds a string after the last one. Skipped ids become missing strings.
    pub fn add(&mut self, id: i64, text: &[u8]) {
        self.cells.codes.resize(id as usize - 1, TextCells::NULL);
        let code = self.cells.add_entry(text);
        self.cells.codes.push(code);
    }
}
