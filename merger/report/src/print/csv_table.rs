//! A table as CSV, with the quoting of RFC 4180.

use crate::report::{Cell, ReportTable};
use rpd_console::Failure;
use rpd_verdict::{MAX_TEXT_CHARS, cut_middle};

/// Returns a header with the keys of the columns, and a line for each row. Unknown values are empty.
pub(super) fn csv_table(table: &ReportTable) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: &dyn std::fmt::Display| Failure::internal(format!("the table is no CSV: {error}"));
    writer.write_record(table.columns.iter().map(|column| column.key)).map_err(|error| failed(&error))?;
    for row in &table.rows {
        writer.write_record(row.iter().map(field)).map_err(|error| failed(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

fn field(cell: &Cell) -> String {
    cut_middle(&cell.plain(), MAX_TEXT_CHARS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hostile_names_are_quoted() {
        let mut table = ReportTable::new("t", &[("name", "name"), ("ns", "time")]);
        table.push_up_to(9, vec![Cell::Text("a,\"b\"\nc\x1b[1m".to_owned()), Cell::Nanoseconds(-5)]);
        table.push_up_to(9, vec![Cell::Text("x".repeat(1 << 20)), Cell::Unknown]);
        let text = csv_table(&table).unwrap();
        assert!(text.starts_with("name,ns\n\"a,\"\"b\"\"\nc\x1b[1m\",-5\n"), "{text:?}");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(&rows[0][0], "a,\"b\"\nc\x1b[1m");
        assert_eq!((rows[1][0].len(), &rows[1][1]), (MAX_TEXT_CHARS, ""));
    }
}
