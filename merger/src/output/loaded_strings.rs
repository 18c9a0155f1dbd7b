//! Strings of an input while its rows are written.

use crate::input::{OpenInput, StringMap, shard_strings};
use crate::strings::StringIds;
use rpd_console::Failure;
use rpd_shard::file::ShardStrings;

/// Texts and output ids of an input's strings.
#[derive(Debug, Default)]
pub(crate) struct LoadedStrings {
    /// Texts of a shard, for expanded rows; empty for a database.
    pub(crate) texts: ShardStrings,
    /// Output ids, per string table of the input.
    pub(crate) maps: Vec<StringMap>,
}

impl LoadedStrings {
    /// Reads the strings of an input.
    pub(crate) fn of(input: &OpenInput, ids: &StringIds) -> Result<LoadedStrings, Failure> {
        Ok(match input {
            OpenInput::None => LoadedStrings::default(),
            OpenInput::Shard(shard) => {
                let texts = shard_strings(shard)?;
                let maps = vec![StringMap::of_shard(&texts, ids)];
                LoadedStrings { texts, maps }
            }
            OpenInput::Database(open) => {
                LoadedStrings { maps: StringMap::of_database(open, ids)?, ..LoadedStrings::default() }
            }
        })
    }
}
