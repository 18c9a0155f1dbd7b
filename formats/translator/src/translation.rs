use rpd_shard::model::TableId;
use std::collections::BTreeMap;

/// Result of translating a foreign file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// Rows in the shard per table, all processes together.
    pub rows: BTreeMap<TableId, u64>,
    /// Elements read from the file, if its format is a list of events.
    pub elements: u64,
    /// Counts of content that could not be read or kept, by its name. The loss ledger of the shard has them too.
    pub lost: BTreeMap<String, u64>,
    /// Counts of content that RocPD cannot represent, by its name.
    pub ignored: BTreeMap<String, u64>,
    /// Texts that were cut because they exceeded the limit of a shard or of the reader.
    pub cut_texts: u64,
    /// One line for each missing or invalid part of the file, without the name of the file.
    pub warnings: Vec<String>,
    /// One line for each fact that the user should know but that is not a fault of the file.
    pub notes: Vec<String>,
}

impl Translation {
    /// Returns the sum of all counted losses.
    pub fn total_lost(&self) -> u64 {
        self.lost.values().sum()
    }
}
