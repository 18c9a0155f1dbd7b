//! `--verify`: reads the finished file again before it is renamed.

use crate::input::JobSchema;
use rpd_console::{Exit, Failure};
use rpd_files::{open_input, output_place};
use rpd_rocpd::schema::NEWEST;
use rpd_rocpd::verify::{CheckError, Expected, check_against, table_rows};
use rpd_shard::model::TableId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read};
use std::path::Path;

/// Expected contents of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableAccount {
    /// Rows of the table that were read. Rows in the loss ledger are not included.
    pub read: u64,
    /// Placeholder rows.
    pub placeholders: u64,
    /// Rows that were numbered, including placeholder rows.
    pub numbered: u64,
}

/// Comparison of a table in the file with what was read.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct VerifiedTable {
    /// Name of the table.
    pub table: String,
    /// Rows of the table that were read.
    pub read: u64,
    /// Rows that were expanded from other rows, or repeated in several table sets.
    pub made: u64,
    /// Placeholder rows.
    pub placeholders: u64,
    /// Rows that existed already, for example strings and nodes.
    pub repeated: u64,
    /// Rows in the file.
    pub in_file: u64,
}

/// Result of verifying the file.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct OutputVerification {
    /// Each table that has rows, or should have rows.
    pub tables: Vec<VerifiedTable>,
    /// For a `.rpd`, the kinds of rows converted (calls, operations, values), with rows read from the database and
    /// rows written.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub converted: BTreeMap<String, (u64, u64)>,
    /// Version of the schema.
    pub version: String,
    /// Whether this release contains AMD's rules for that version.
    pub rules_known: bool,
    /// Reasons why AMD's strict validators reject the file although it is as planned, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_by_amd: Vec<String>,
    /// Tables beside those of RocPD, with names that RocPD does not define.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<String>,
    /// Number of table sets.
    pub sets: usize,
    /// Violated rules; empty for a valid file.
    pub problems: Vec<String>,
    /// Rows of every table by its full name, to compare them again after the file is renamed.
    #[serde(skip)]
    pub contents: BTreeMap<String, u64>,
}

/// Bytes that are read at once.
const READ_AHEAD: usize = 4 << 20;

/// Reads the file sequentially, from beginning to end. The file was written past the page cache, and pages of
/// different tables alternate in it. SQLite would read single pages from all over the disk, which takes fifty times
/// as long.
fn read_ahead(path: &Path) -> io::Result<()> {
    let mut file = open_input(path)?;
    let mut some = vec![0; READ_AHEAD];
    while file.read(&mut some)? > 0 {}
    Ok(())
}

/// Compares the file with what was read, and checks its integrity, its references and AMD's rules.
pub(crate) fn verify(
    path: &Path,
    schema: &JobSchema,
    sets: usize,
    accounts: &BTreeMap<TableId, TableAccount>,
) -> Result<OutputVerification, Failure> {
    read_ahead(path).map_err(|error| Failure::write(path, &error))?;
    let expected = Expected { schema: &schema.schema, version: schema.version, sets };
    let report = check_against(path, expected).map_err(|error| unreadable(&error))?;
    let mut found = OutputVerification {
        version: report.version,
        rules_known: schema.version <= NEWEST,
        sets: report.sets,
        problems: report.problems.iter().map(ToString::to_string).collect(),
        refused_by_amd: report.refused_by_amd.iter().map(ToString::to_string).collect(),
        extras: report.extras,
        contents: report.tables,
        ..OutputVerification::default()
    };
    for (table, account) in accounts {
        let name = schema.name(*table).into_owned();
        let in_file = report.rows.get(&name).copied().unwrap_or(0);
        let &TableAccount { read, placeholders, numbered } = account;
        if in_file != numbered {
            found.problems.push(format!("{name} has {in_file} rows instead of {numbered}"));
        }
        let own = numbered.saturating_sub(placeholders);
        let (made, repeated) = (own.saturating_sub(read), read.saturating_sub(own));
        if in_file > 0 || numbered > 0 {
            let row = VerifiedTable { table: name, read, made, placeholders, repeated, in_file };
            found.tables.push(row);
        }
    }
    Ok(found)
}

/// Opens the output under its final name, as its users do. Compares the rows of each table with those found before it
/// was renamed. Removes an output that differs, because files beside it change what SQLite reads.
///
/// # Errors
/// Exit code 1 if it differs or cannot be read.
pub fn verify_published(
    output: &Path,
    published: (u64, u64),
    contents: &BTreeMap<String, u64>,
) -> Result<(), Failure> {
    let difference = match table_rows(output) {
        Ok(found) => contents.iter().find_map(|(table, rows)| match found.get(table) {
            Some(found) if found == rows => None,
            Some(found) => Some(format!("{table} has {found} rows instead of {rows}")),
            None => Some(format!("{table} is not there")),
        }),
        Err(error) => Some(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    };
    let Some(difference) = difference else { return Ok(()) };
    // Another file may have replaced the output.
    let _ = output_place(output).and_then(|(folder, name)| folder.remove_if(name, published));
    let output = output.display();
    Err(Failure::new(
        Exit::Internal,
        format!(
            "{output} reads otherwise under its name than before it got that ({difference}), and is removed; close \
             programs that have {output} open, and merge again"
        ),
    ))
}

/// Returns an internal failure: a file that was just written but cannot be read is broken.
fn unreadable(error: &CheckError) -> Failure {
    let cause = error.source().map_or(String::new(), |source| format!(" ({source})"));
    Failure::internal(format!("the output cannot be read again: {error}{cause}"))
}

impl OutputVerification {
    /// Returns the result, one line each, with control characters in table names escaped.
    pub fn lines(&self) -> Vec<String> {
        let width = self.tables.iter().map(|row| row.table.len()).max().unwrap_or(0);
        let line = |row: &VerifiedTable| {
            let VerifiedTable { table, read, made, placeholders, repeated, in_file } = row;
            let mut line = format!("{table:width$} {in_file:>12} rows = {read} read");
            for (sign, rows, what) in [
                ("+", made, "made of others"),
                ("+", placeholders, "for lost ones"),
                ("-", repeated, "repeated"),
            ] {
                if *rows > 0 {
                    line += &format!(" {sign} {rows} {what}");
                }
            }
            line
        };
        let mut lines: Vec<String> = self.tables.iter().map(line).collect();
        let converted = self.converted.iter();
        lines.extend(converted.map(|(what, (read, written))| {
            format!("{what:width$} {written:>12} in the .rpd, of {read} in the database")
        }));
        lines.extend(self.problems.iter().map(|problem| format!("problem: {problem}")));
        if self.problems.is_empty() {
            lines.push(self.verdict());
            lines.extend(
                self.refused_by_amd.iter().map(|why| format!("AMD's strict validators refuse: {why}")),
            );
        }
        lines.extend(self.extras.iter().map(|extra| format!("beside RocPD's tables: {extra}")));
        for line in lines.iter_mut().filter(|line| line.contains(char::is_control)) {
            *line = line.escape_debug().to_string();
        }
        lines
    }

    /// Returns the line about everything that was compared without problems.
    fn verdict(&self) -> String {
        let OutputVerification { version, sets, .. } = self;
        let (rules, unknown) = match (self.rules_known, self.refused_by_amd.is_empty()) {
            (true, true) => (", foreign_key_check and AMD's rules", ""),
            (true, false) => (" and foreign_key_check", ""),
            (false, _) => (" and foreign_key_check", ", of which AMD's rules are not known"),
        };
        let plural = if *sets == 1 { "" } else { "s" };
        format!("integrity_check{rules}: ok, schema {version}{unknown}, {sets} table set{plural}")
    }

    /// Returns why the file must not be used, if there are problems. All problems are printed on stderr.
    pub fn failure(&self) -> Option<Failure> {
        let first = self.problems.first()?;
        let more = match self.problems.len() {
            1 => String::new(),
            n => format!(" and {} more problems", n - 1),
        };
        Some(Failure::internal(format!(
            "the output is not what was read: {first}{more}; nothing is kept of it"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryBudget;
    use crate::input::PlannedSchema;
    use rpd_rocpd::{Guid, TableSet, Writer};
    use rpd_shard::model::{Keys, RowsBuilder, Schema, Value, rocpd};

    /// Writes events with these ids, and a track of a node that exists if `node`.
    fn write(path: &Path, events: &[i64], node: bool) {
        let sets: [TableSet; 1] = [(&Guid::from_bits(7)).into()];
        let mut writer = Writer::create_of(path, &sets, [3, 0, 0], Schema::builtin()).unwrap();
        let mut add = |table, keys: Vec<i64>, row: &[Value<'_>]| {
            let mut rows = RowsBuilder::new(Schema::builtin().get(table).unwrap());
            keys.iter().for_each(|_| rows.push(row));
            let rows = rows.finish(1);
            let columns = rows.columns.clone();
            writer.append(&rows.into_merged(Keys::Sparse(keys), columns)).unwrap();
        };
        add(rocpd::EVENT, events.to_vec(), &[]);
        add(rocpd::TRACK, vec![1], &[Value::Int(1)]);
        if node {
            add(rocpd::INFO_NODE, vec![1], &[Value::Int(1), Value::Text(b"m")]);
        }
        writer.commit().unwrap();
    }

    fn accounts() -> BTreeMap<TableId, TableAccount> {
        let account = |read, placeholders, numbered| TableAccount { read, placeholders, numbered };
        BTreeMap::from([
            (rocpd::EVENT, account(2, 1, 4)),
            (rocpd::TRACK, account(1, 0, 1)),
            (rocpd::INFO_NODE, account(3, 0, 1)),
            (rocpd::REGION, account(0, 0, 0)),
        ])
    }

    #[test]
    fn a_file_with_all_rows_is_accounted_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.db.partial");
        write(&path, &[1, 2, 3, 4], true);
        let schema = JobSchema::new(&PlannedSchema::default(), MemoryBudget::default());
        let found = verify(&path, &schema, 1, &accounts()).unwrap();
        assert!(found.failure().is_none(), "{found:?}");
        let lines = found.lines();
        let expected = [
            "rocpd_info_node            1 rows = 3 read - 2 repeated",
            "rocpd_track                1 rows = 1 read",
            "rocpd_event                4 rows = 2 read + 1 made of others + 1 for lost ones",
            "integrity_check, foreign_key_check and AMD's rules: ok, schema 3.0.0, 1 table set",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_broken_file_is_an_internal_fault_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let schema = JobSchema::new(&PlannedSchema::default(), MemoryBudget::default());
        let broken = |name: &str, events: &[i64], node: bool, damage: &dyn Fn(&Path)| {
            let path = folder.path().join(name);
            write(&path, events, node);
            damage(&path);
            match verify(&path, &schema, 1, &accounts()) {
                Ok(found) => found.failure().unwrap(),
                Err(failure) => failure,
            }
        };
        let keep = |_: &Path| {};
        let cut = |path: &Path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() - 8192).unwrap();
        };
        let zeros = |path: &Path| std::fs::write(path, [0; 8192]).unwrap();
        for (failure, expected) in [
            (broken("row", &[1, 2, 4], true, &keep), "rocpd_event has 3 rows instead of 4"),
            (
                broken("node", &[1, 2, 3, 4], false, &keep),
                "references from rocpd_track to rocpd_info_node lead nowhere",
            ),
            (broken("cut", &[1, 2, 3, 4], true, &cut), ""),
            (broken("zeros", &[1, 2, 3, 4], true, &zeros), "cannot be read again"),
        ] {
            assert_eq!(failure.exit(), Exit::Internal);
            assert!(failure.to_string().contains(expected), "{failure}");
        }
        let path = folder.path().join("sets");
        write(&path, &[1, 2, 3, 4], true);
        let found = verify(&path, &schema, 2, &accounts()).unwrap();
        assert!(found.failure().unwrap().to_string().contains("1 sets of tables instead of 2"));
    }
}
