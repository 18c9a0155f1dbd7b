//! The strings of a source, for a set of tables of its own.

use super::expand::BuiltinString;
use crate::strings::StringHash;

/// What a set needs to know of the strings of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetStrings {
    /// Words in use.
    pub words: Vec<BuiltinString>,
    /// Different strings, the words among them.
    pub distinct: u64,
}

impl SetStrings {
    /// From the place and hash of each string of a table.
    pub(crate) fn new(hashes: &[(u32, StringHash)]) -> SetStrings {
        let words = hashes.iter().filter_map(|(index, _)| BuiltinString::at(*index)).collect();
        let mut distinct: Vec<StringHash> = hashes.iter().map(|(_, hash)| *hash).collect();
        distinct.sort_unstable();
        distinct.dedup();
        SetStrings { words, distinct: distinct.len() as u64 }
    }
}
