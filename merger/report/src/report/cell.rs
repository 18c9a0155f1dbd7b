//! A value of a table.

use rpd_console::wording::{grouped, rank_ranges};
use rpd_verdict::shown_time;
use serde_json::{Value as Json, json};

/// A value of a table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cell {
    /// A value that is not known.
    Unknown,
    Text(String),
    Texts(Vec<String>),
    Count(u64),
    /// A duration or an offset.
    Nanoseconds(i64),
    Bytes(u64),
    BytesPerSecond(u64),
    /// Key of a row in the database.
    RowKey(i64),
    /// A part of 1.
    Ratio(f64),
    /// Parts per million.
    Ppm(f64),
    /// A value in a unit of its own, which another column states.
    Amount(f64),
    Ranks(Vec<u32>),
    Flag(bool),
}

impl Cell {
    /// Creates the cell of a value that may be unknown.
    pub(crate) fn known<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::Unknown, cell)
    }

    /// Creates the cell of a sum of durations. No clock shows as much as the maximum.
    pub(crate) fn sum(ns: i128) -> Cell {
        Cell::Nanoseconds(ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// Returns the sum of two amounts of the same kind; unknown of anything else.
    pub(crate) fn added(&self, other: &Cell) -> Cell {
        match (self, other) {
            (Cell::Count(one), Cell::Count(other)) => Cell::Count(one.saturating_add(*other)),
            (Cell::Bytes(one), Cell::Bytes(other)) => Cell::Bytes(one.saturating_add(*other)),
            (Cell::Nanoseconds(one), Cell::Nanoseconds(other)) => {
                Cell::Nanoseconds(one.saturating_add(*other))
            }
            (Cell::Ratio(one), Cell::Ratio(other)) => Cell::Ratio(one + other),
            _ => Cell::Unknown,
        }
    }

    /// Returns whether the value is aligned to the right.
    pub(crate) fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_) | Cell::Texts(_) | Cell::Ranks(_) | Cell::Flag(_))
    }

    /// Returns the value for machines: times in ns, ratios from 0 to 1, unknown as null.
    pub(crate) fn json(&self) -> Json {
        match self {
            Cell::Unknown => Json::Null,
            Cell::Text(text) => json!(text),
            Cell::Texts(texts) => json!(texts),
            Cell::Count(n) | Cell::Bytes(n) | Cell::BytesPerSecond(n) => json!(n),
            Cell::Nanoseconds(n) | Cell::RowKey(n) => json!(n),
            Cell::Ratio(value) | Cell::Ppm(value) | Cell::Amount(value) => json!(value),
            Cell::Ranks(ranks) => json!(ranks),
            Cell::Flag(flag) => json!(flag),
        }
    }

    /// Returns the same as one text; empty if it is unknown.
    pub(crate) fn plain(&self) -> String {
        match self {
            Cell::Unknown => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Texts(texts) => texts.join(", "),
            Cell::Ranks(ranks) => rank_ranges(ranks),
            number => number.json().to_string(),
        }
    }

    /// Returns the value for people, with its unit.
    pub(crate) fn shown(&self) -> String {
        match self {
            Cell::Unknown => "-".to_owned(),
            Cell::Count(n) => grouped(*n),
            Cell::Nanoseconds(ns) => shown_time(*ns),
            Cell::Bytes(n) => shown_bytes(*n),
            Cell::BytesPerSecond(n) => format!("{}/s", shown_bytes(*n)),
            Cell::Ratio(value) => format!("{:.1} %", value * 100.0),
            Cell::Ppm(value) => format!("{value:.3}"),
            Cell::Amount(value) => value.to_string(),
            Cell::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            text => text.plain(),
        }
    }
}

fn shown_bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", grouped(bytes / unit)),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null_and_empty() {
        let unknown = Cell::known(None, Cell::Count);
        assert_eq!(
            (unknown.json(), unknown.plain(), unknown.shown()),
            (Json::Null, String::new(), "-".to_owned())
        );
        assert_eq!(Cell::Bytes(1536).shown(), "1.5 KiB");
        assert_eq!(Cell::BytesPerSecond(5 << 20).shown(), "5 MiB/s");
        assert_eq!(Cell::RowKey(1_234_567).shown(), "1234567", "as SQL takes it");
        assert_eq!(Cell::Ranks(vec![0, 1, 2, 7]).shown(), "0-2,7");
        assert_eq!(Cell::sum(i128::MAX), Cell::Nanoseconds(i64::MAX));
    }
}
