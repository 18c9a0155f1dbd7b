//! The strings of a source, for a set of tables of its own.

use super::expand::Word;
use crate::strings::Hash;

/// What a set needs to know of the strings of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetStrings {
    /// Words in use.
    pub words: Vec<Word>,
    /// Different strings, the words among them.
    pub distinct: u64,
}

impl SetStrings {
    /// From the place and hash of each string of a table.
    pub(crate) fn new(hashes: &[(u32, Hash)]) -> SetStrings {
        let words = hashes.iter().filter_map(|(index, _)| Word::at(*index)).collect();
        let mut distinct: Vec<Hash> = hashes.iter().map(|(_, hash)| *hash).collect();
        distinct.sort_unstable();
        distinct.dedup();
        SetStrings { words, distinct: distinct.len() as u64 }
    }
}
