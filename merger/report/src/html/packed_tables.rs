//! The tables of a page: columns as arrays of numbers, names as places in a list of distinct texts.

use crate::report::{Cell, ReportTable};
use rpd_console::wording::one_line;
use rpd_verdict::{MAX_TEXT_CHARS, cut_middle};
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// Alignment of an array, bytes.
const ALIGNMENT: usize = 8;
/// Columns of which the sum over rows has a meaning.
const ADDITIVE: [&str; 14] = [
    "calls",
    "matched",
    "total_ns",
    "share",
    "count",
    "kernels",
    "copies",
    "late_sender_ns",
    "late_receiver_ns",
    "unmatched_ends",
    "direct_ns",
    "caused_direct_ns",
    "caused_propagated_ns",
    "bytes_sum",
];

/// Arrays and texts that the tables of a page refer to.
#[derive(Debug, Default)]
pub(super) struct PackedTables {
    /// The arrays one after another, little-endian, each at a multiple of [`ALIGNMENT`].
    pub(super) arrays: Vec<u8>,
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl PackedTables {
    /// Adds an array of bytes. Returns its place in the page.
    pub(super) fn bytes(&mut self, values: &[u8]) -> Json {
        self.arrays.resize(self.arrays.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.arrays.len();
        self.arrays.extend_from_slice(values);
        json!(["u1", start, values.len()])
    }

    /// Adds an array of numbers; NaN for unknown ones.
    pub(super) fn numbers(&mut self, values: impl Iterator<Item = f64>) -> Json {
        let bytes: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        let place = self.bytes(&bytes);
        json!(["f8", place[1], bytes.len() / 8])
    }

    /// Adds an array of texts.
    fn texts(&mut self, values: impl Iterator<Item = String>) -> Json {
        let numbers: Vec<u8> = values.flat_map(|text| self.text(text).to_le_bytes()).collect();
        let place = self.bytes(&numbers);
        json!(["u4", place[1], numbers.len() / 4])
    }

    /// Returns the number of a text.
    fn text(&mut self, text: String) -> u32 {
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// Returns the distinct texts.
    pub(super) fn take_texts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.texts)
    }

    /// Adds a table. Returns its description. `titles` replace titles of columns, by their keys.
    pub(super) fn table(&mut self, table: &ReportTable, titles: &[(&str, String)]) -> Json {
        let mut columns = Vec::new();
        for (place, column) in table.columns.iter().enumerate() {
            let cells = || table.rows.iter().filter_map(move |row| row.get(place));
            let kind = column_kind(cells());
            let values = match kind {
                "text" => self.texts(cells().map(shown_text)),
                _ => self.numbers(cells().map(number)),
            };
            let title = titles.iter().find(|(key, _)| *key == column.key).map(|(_, title)| title.as_str());
            let rest = table.omitted_sums.get(place).filter(|_| ADDITIVE.contains(&column.key));
            columns.push(json!({
                "key": column.key, "title": title.unwrap_or(column.title), "kind": kind, "values": values,
                "rest": rest.map(number).filter(|sum| sum.is_finite()),
            }));
        }
        json!({"rows": table.rows.len(), "omitted": table.omitted, "columns": columns})
    }
}

/// Returns how the page shows the values of a column.
fn column_kind<'c>(cells: impl Iterator<Item = &'c Cell>) -> &'static str {
    let mut found = None;
    for cell in cells {
        let kind = match cell {
            Cell::Unknown => continue,
            Cell::Count(_) => "count",
            Cell::RowKey(_) => "key",
            Cell::Nanoseconds(_) => "ns",
            Cell::Bytes(_) => "bytes",
            Cell::BytesPerSecond(_) => "rate",
            Cell::Ratio(_) => "ratio",
            Cell::Ppm(_) => "ppm",
            Cell::Amount(_) => "amount",
            Cell::Text(_) | Cell::Texts(_) | Cell::Ranks(_) | Cell::Flag(_) => "text",
        };
        match found {
            None => found = Some(kind),
            Some(known) if known != kind => return "text",
            Some(_) => {}
        }
    }
    found.unwrap_or("text")
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Count(n) | Cell::Bytes(n) | Cell::BytesPerSecond(n) => *n as f64,
        Cell::Nanoseconds(n) | Cell::RowKey(n) => *n as f64,
        Cell::Ratio(value) | Cell::Ppm(value) | Cell::Amount(value) => *value,
        _ => f64::NAN,
    }
}

fn shown_text(cell: &Cell) -> String {
    one_line(&cut_middle(&cell.shown(), MAX_TEXT_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_kind_of_their_cells() {
        let mut table = ReportTable::new("t", &[("name", "name"), ("total_ns", "total"), ("mixed", "mixed")]);
        let row = |name: &str, ns: Option<i64>, mixed: Cell| {
            vec![Cell::Text(name.to_owned()), Cell::known(ns, Cell::Nanoseconds), mixed]
        };
        table.push_up_to(2, row("</script>", Some(5), Cell::Count(1)));
        table.push_up_to(2, row("b", None, Cell::Ratio(0.5)));
        table.push_up_to(2, row("c", Some(7), Cell::Unknown));
        table.push_up_to(2, row("d", Some(8), Cell::Unknown));
        let mut packed = PackedTables::default();
        let described = packed.table(&table, &[("mixed", "of rank 3".to_owned())]);
        assert_eq!((&described["rows"], &described["omitted"]), (&json!(2), &json!(2)));
        let kinds: Vec<&Json> = (0..3).map(|place| &described["columns"][place]["kind"]).collect();
        assert_eq!(kinds, ["text", "ns", "text"]);
        assert_eq!(described["columns"][1]["rest"], json!(15.0));
        assert_eq!(described["columns"][0]["rest"], Json::Null);
        assert_eq!(described["columns"][2]["title"], "of rank 3");
        let place = described["columns"][1]["values"][1].as_u64().unwrap_or_default() as usize;
        assert_eq!(packed.arrays[place..place + 8], 5f64.to_le_bytes());
        assert_eq!(packed.take_texts(), ["</script>", "b", "1", "50.0 %"]);
    }
}
