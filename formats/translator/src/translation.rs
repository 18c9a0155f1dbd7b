use rpd_shard::model::TableId;
use std::collections::BTreeMap;

/// What became of a foreign file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// Rows of the shard, per table, of all processes together.
    pub rows: BTreeMap<TableId, u64>,
    /// Elements of the file that were read, where its format is a list of events.
    pub elements: u64,
    /// What could not be read or kept, by what it was, and how often. The loss ledger of the shard has it too.
    pub lost: BTreeMap<String, u64>,
    /// What is in the file and has no place in RocPD, by what it is, and how often.
    pub ignored: BTreeMap<String, u64>,
    /// Texts that were longer than a shard or the reader allows, and were cut.
    pub cut_texts: u64,
    /// One line for each thing that is missing or wrong, without the name of the file.
    pub warnings: Vec<String>,
    /// One line for each thing that the user should know and that is no fault of the file.
    pub notes: Vec<String>,
}

impl Translation {
    /// Everything that is lost, as far as it was counted.
    pub fn total_lost(&self) -> u64 {
        self.lost.values().sum()
    }
}
