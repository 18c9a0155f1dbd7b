//! Strings of a source that has its own table set.

use crate::input::BuiltinString;
use crate::strings::StringHash;

/// Properties of a source's strings that its table set needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetStrings {
    /// Builtin strings in use.
    pub builtins: Vec<BuiltinString>,
    /// Number of distinct strings, including builtin ones.
    pub distinct: u64,
}

impl SetStrings {
    /// Builds the properties from position and hash of each string of a table.
    pub(crate) fn new(hashes: &[(u32, StringHash)]) -> SetStrings {
        let builtins = hashes.iter().filter_map(|(index, _)| BuiltinString::at(*index)).collect();
        let mut distinct: Vec<StringHash> = hashes.iter().map(|(_, hash)| *hash).collect();
        distinct.sort_unstable();
        distinct.dedup();
        SetStrings { builtins, distinct: distinct.len() as u64 }
    }
}
