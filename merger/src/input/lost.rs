//! Rows that are lost with whole inputs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why the rows of an input are not in the output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum LostCause {
    /// It could not be read any more while it was merged.
    InputVanished,
    /// Another input claims to be the same, has other rows, and is merged instead.
    OtherContents,
}

impl LostCause {
    /// Short name for reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            LostCause::InputVanished => "input_vanished",
            LostCause::OtherContents => "other_contents",
        }
    }
}

/// Rows of inputs that are not merged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LostRows {
    /// Name of the table, where it is known.
    pub table: Option<String>,
    /// Why.
    pub cause: LostCause,
    /// How many, where it is known.
    pub rows: Option<u64>,
}

/// One entry per table and cause.
pub fn sum(lost: impl IntoIterator<Item = LostRows>) -> Vec<LostRows> {
    let mut sums: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for LostRows { table, cause, rows } in lost {
        let sum = sums.entry((table, cause)).or_insert(Some(0));
        *sum = sum.zip(rows).map(|(a, b)| a.saturating_add(b));
    }
    sums.into_iter().map(|((table, cause), rows)| LostRows { table, cause, rows }).collect()
}
