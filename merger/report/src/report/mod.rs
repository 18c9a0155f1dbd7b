//! The data of a report, independent of the format in which it is printed.

mod cell;

pub(crate) use cell::Cell;

use serde_json::{Map, Value as Json};

/// Key of the table with the calls of `--explain`.
pub(crate) const EVIDENCE_TABLE: &str = "explain";

/// A report.
#[derive(Debug)]
pub(crate) struct Report {
    /// Name of the subcommand; `overview` without one.
    pub(crate) subject: &'static str,
    pub(crate) run: RunHead,
    pub(crate) tables: Vec<ReportTable>,
    /// Facts that may surprise the reader.
    pub(crate) notes: Vec<String>,
    pub(crate) unavailable: Vec<Unavailable>,
    /// What people see instead of the tables.
    pub(crate) screen: Option<VerdictScreen>,
}

/// The verdict on a run.
#[derive(Debug)]
pub(crate) struct VerdictScreen {
    /// Lines of a label and a text, the first of them the verdict.
    pub(crate) lines: Vec<(&'static str, String)>,
    /// Commands that continue from here.
    pub(crate) next: Vec<NextCommand>,
    /// Keys of the tables that people see below the lines.
    pub(crate) tables: Vec<&'static str>,
    /// Keys of the JSON object.
    pub(crate) json: Map<String, Json>,
}

/// A command that continues from the first screen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NextCommand {
    /// What it reports.
    pub(crate) purpose: &'static str,
    /// The command without its selection and inputs.
    pub(crate) command: String,
    /// The options that select a part of the run, each after a space. `None` if they cannot be printed on a line.
    pub(crate) selection: Option<String>,
    /// The inputs as a shell reads them. `None` if they cannot be printed on a line.
    pub(crate) inputs: Option<String>,
}

/// What is reported about the run itself.
#[derive(Debug, Default)]
pub(crate) struct RunHead {
    pub(crate) id: String,
    pub(crate) ranks: u64,
    pub(crate) nodes: u64,
    pub(crate) processes: u64,
    /// First and last time of the reported rows, ns in job time; `None` if no row was read.
    pub(crate) span: Option<(i64, i64)>,
    /// Whether the clocks of all nodes were compared, so that their times can be.
    pub(crate) has_comparable_clocks: bool,
}

/// What the report cannot answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unavailable {
    pub(crate) subject: String,
    pub(crate) reason: String,
    /// An option of rpd-collect, or what the program can do; `None` if nothing helps.
    pub(crate) how_to_record: Option<&'static str>,
}

impl Unavailable {
    /// Creates an entry that no recording would change.
    pub(crate) fn new(subject: impl Into<String>, reason: impl Into<String>) -> Unavailable {
        Unavailable { subject: subject.into(), reason: reason.into(), how_to_record: None }
    }

    /// Says how it can be recorded.
    pub(crate) fn recorded_by(self, how: Option<&'static str>) -> Unavailable {
        Unavailable { how_to_record: how, ..self }
    }

    /// Returns the entry as a sentence without its end.
    pub(crate) fn text(&self) -> String {
        let how = self.how_to_record.map_or(String::new(), |how| format!("; to record: {how}"));
        format!("{}: {}{how}", self.subject, self.reason)
    }
}

/// A table of the report.
#[derive(Debug)]
pub(crate) struct ReportTable {
    /// Key in JSON.
    pub(crate) key: &'static str,
    pub(crate) columns: Vec<TableColumn>,
    /// Rows, each with a cell for every column.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Number of rows beyond `--top`.
    pub(crate) omitted: u64,
    /// Sums of the cells of these rows; empty if there are none.
    pub(crate) omitted_sums: Vec<Cell>,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableColumn {
    /// Key in JSON and CSV, with the unit: `total_ns`.
    pub(crate) key: &'static str,
    /// Heading in text.
    pub(crate) title: &'static str,
}

impl ReportTable {
    /// Creates a table without rows. Each column has a key and a title.
    pub(crate) fn new(key: &'static str, columns: &[(&'static str, &'static str)]) -> ReportTable {
        let columns = columns.iter().map(|&(key, title)| TableColumn { key, title }).collect();
        ReportTable { key, columns, rows: Vec::new(), omitted: 0, omitted_sums: Vec::new() }
    }

    /// Returns an entry for each column with unknown values, with the reason of that column.
    pub(crate) fn unknown_values(&self, reasons: &[(&str, &str)]) -> Vec<Unavailable> {
        let is_unknown = |place: usize| self.rows.iter().any(|row| row.get(place) == Some(&Cell::Unknown));
        let columns = self.columns.iter().enumerate().filter(|(place, _)| is_unknown(*place));
        let entry = |(_, column): (usize, &TableColumn)| {
            let reason = reasons.iter().find(|(key, _)| *key == column.key).map(|(_, reason)| *reason);
            Unavailable::new(
                format!("{}.{}", self.key, column.key),
                reason.unwrap_or("the merge did not store it"),
            )
        };
        columns.map(entry).collect()
    }

    /// Adds a row, or adds up its cells with those of others if the table has `max_rows` rows.
    pub(crate) fn push_up_to(&mut self, max_rows: usize, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        if self.rows.len() < max_rows {
            self.rows.push(row);
            return;
        }
        self.omitted += 1;
        match self.omitted_sums.is_empty() {
            true => self.omitted_sums = row,
            false => self.omitted_sums.iter_mut().zip(&row).for_each(|(sum, cell)| *sum = sum.added(cell)),
        }
    }
}
