//! Jobs of which there are RocPD databases, to be damaged and merged.

use crate::content::{ContentTables, DatabaseContent, content, differences};
use crate::harness::{Database, JobOutcome, rpd_merge};
use crate::synthetic::{SyntheticRun, write_rocpd};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with the databases of a job, and room beside it. Panics where something cannot be done.
#[derive(Debug)]
pub struct DatabaseJob {
    folder: TempDir,
    /// The databases, in the order of the ranks.
    pub inputs: Vec<PathBuf>,
}

impl DatabaseJob {
    /// Writes the databases of a run.
    pub fn new(run: &SyntheticRun) -> DatabaseJob {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("temporary folder: {error}"));
        let inputs = write_rocpd(&run.plan(), &folder.path().join("in"));
        DatabaseJob { folder, inputs: inputs.unwrap_or_else(|error| panic!("databases: {error}")) }
    }

    /// Four small databases of two nodes.
    pub fn small() -> DatabaseJob {
        DatabaseJob::new(&SyntheticRun { events_per_rank: 60, ..SyntheticRun::default() })
    }

    /// The folder with nothing but the inputs.
    pub fn place(&self) -> PathBuf {
        self.folder.path().join("in")
    }

    /// A path beside that folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where [`DatabaseJob::merge`] writes.
    pub fn output(&self) -> PathBuf {
        self.beside("out.db")
    }

    /// Merges everything in the folder, over an output that is there.
    pub fn merge(&self, arguments: &[&str]) -> JobOutcome {
        rpd_merge().args(["--force", "-o"]).arg(self.output()).args(arguments).arg(self.place()).run()
    }

    /// The output, which must be sound.
    pub fn database(&self) -> Database {
        let database = Database::open(&self.output());
        database.assert_sound();
        database
    }

    /// All inputs but one.
    pub fn without(&self, bad: &Path) -> Vec<PathBuf> {
        self.inputs.iter().filter(|path| *path != bad).cloned().collect()
    }

    /// Asserts that these files, and nothing else, are in the output.
    ///
    /// # Panics
    /// If it is not so.
    pub fn assert_holds(&self, paths: &[PathBuf]) {
        self.database();
        assert_eq!(differences(&content_of(paths), &content_of(&[self.output()])), "");
    }
}

/// What a merge of files holds, if all of them are in it and no other. Strings and nodes are in a merge
/// once.
pub fn content_of(paths: &[PathBuf]) -> DatabaseContent {
    let of = |path: &PathBuf| {
        let tables = ContentTables::of_database(&Database::open(path).connection);
        content(&tables.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    let mut all = DatabaseContent::new();
    for (table, rows) in paths.iter().flat_map(of) {
        all.entry(table).or_default().extend(rows);
    }
    for (table, rows) in &mut all {
        rows.sort();
        if ["rocpd_string", "rocpd_info_node"].contains(&table.as_str()) {
            rows.dedup();
        }
    }
    all
}

/// Runs statements on a database in place. `<uuid>` and `<guid>` in them stand for those of the file.
///
/// # Panics
/// Where SQLite refuses one, or an UPDATE changes nothing.
pub fn change(path: &Path, statements: &[&str]) {
    let refused = |sql: &str, error| -> String { panic!("{}: {sql}: {error}", path.display()) };
    let database = Connection::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let tag = |tag: &str| -> String {
        let sql = "SELECT value FROM rocpd_metadata WHERE tag = ?";
        database.query_row(sql, [tag], |row| row.get(0)).unwrap_or_else(|error| refused(sql, error))
    };
    let (uuid, guid) = (tag("uuid"), tag("guid"));
    for sql in ["PRAGMA foreign_keys = OFF"].iter().chain(statements) {
        let sql = sql.replace("<uuid>", &uuid).replace("<guid>", &guid);
        if let Err(error) = database.execute_batch(&sql) {
            refused(&sql, error);
        }
        assert!(!sql.starts_with("UPDATE") || database.changes() > 0, "nothing to change: {sql}");
    }
}

/// The last part of a path.
pub fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("?")
}

/// The warnings that name a file.
pub fn warnings_about<'a>(outcome: &'a JobOutcome, path: &Path) -> Vec<&'a str> {
    outcome.stderr.lines().filter(|line| line.starts_with("warning:") && line.contains(name(path))).collect()
}

/// How many inputs a database says were left out.
pub fn left_out(database: &Database) -> i64 {
    let metadata = database.metadata();
    let told = metadata.iter().filter(|(tag, _)| tag.starts_with("rpd.unreadable")).map(|(_, values)| values);
    told.flatten().filter_map(|value| value.parse::<i64>().ok()).sum()
}
