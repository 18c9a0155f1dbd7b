use crate::content::DatabaseContent;
use rpd_shard::model::RPD_TABLE_PREFIX;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Metadata tags of which AMD's checks want exactly one row each.
pub const AMD_TAGS: [&str; 6] = [
    "uuid",
    "guid",
    "schema_version",
    "schema_version_major",
    "schema_version_minor",
    "schema_version_patch",
];

/// A finished database, read-only. All methods panic with the SQL where SQLite refuses.
#[derive(Debug)]
pub struct Database {
    /// The connection.
    pub connection: Connection,
}

impl Database {
    /// Opens a file that nobody writes any more.
    ///
    /// # Panics
    /// If it cannot be opened, or has a journal beside it.
    pub fn open(path: &Path) -> Database {
        for end in ["-journal", "-wal"] {
            let mut journal = path.as_os_str().to_owned();
            journal.push(end);
            assert!(!Path::new(&journal).exists(), "{} is beside the database", journal.display());
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        Database { connection }
    }

    /// All rows of a query, each value as text: numbers as they are, text quoted.
    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let refuse = |error| -> rusqlite::Statement<'_> { panic!("{sql}: {error}") };
        let mut statement = self.connection.prepare(sql).unwrap_or_else(refuse);
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut out = Vec::new();
        while let Some(row) = rows.next().unwrap_or_else(|error| panic!("{sql}: {error}")) {
            out.push((0..columns).map(|i| row.get_ref(i).map_or("?".into(), as_text)).collect());
        }
        out
    }

    /// The rows of queries, sorted, by a name for each query.
    pub fn answers(&self, queries: &[(&str, &str)]) -> DatabaseContent {
        let sorted = |sql: &str| {
            let mut rows: Vec<String> = self.rows(sql).iter().map(|row| row.join(" | ")).collect();
            rows.sort();
            rows
        };
        queries.iter().map(|(name, sql)| ((*name).to_owned(), sorted(sql))).collect()
    }

    /// The number that a query gives.
    pub fn number(&self, sql: &str) -> i64 {
        self.connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Number of rows of a table or view.
    pub fn count(&self, table: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {table}"))
    }

    /// How often each value of the first column stands there.
    pub fn counts(&self, sql: &str) -> BTreeMap<String, i64> {
        let mut statement = self.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut rows = statement.query([]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut counts = BTreeMap::new();
        while let Some(row) = rows.next().unwrap_or_else(|error| panic!("{sql}: {error}")) {
            let value: Option<String> = row.get(0).unwrap_or_else(|error| panic!("{sql}: {error}"));
            *counts.entry(value.unwrap_or_default()).or_insert(0) += 1;
        }
        counts
    }

    /// Metadata, all values of each tag.
    pub fn metadata(&self) -> BTreeMap<String, Vec<String>> {
        let sql = "SELECT tag, value FROM rocpd_metadata ORDER BY id";
        let mut statement = self.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        let mut tags: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tag, value) in rows.unwrap_or_else(|error| panic!("{sql}: {error}")).flatten() {
            tags.entry(tag).or_default().push(value);
        }
        tags
    }

    /// Names of all tables or all views.
    pub fn names(&self, kind: &str) -> Vec<String> {
        let sql = format!("SELECT name FROM sqlite_master WHERE type = '{kind}' ORDER BY name");
        self.counts(&sql).into_keys().collect()
    }

    /// Everything that must be right in any merged database.
    ///
    /// # Panics
    /// If it is not.
    pub fn assert_sound(&self) {
        assert_eq!(self.rows("PRAGMA integrity_check"), [["'ok'"]], "integrity_check");
        assert_eq!(self.rows("PRAGMA quick_check"), [["'ok'"]], "quick_check");
        assert_eq!(self.rows("PRAGMA foreign_key_check"), Vec::<Vec<String>>::new(), "foreign_key_check");
        for view in self.names("view") {
            self.rows(&format!("SELECT * FROM \"{view}\""));
        }
        let metadata = self.metadata();
        for tag in AMD_TAGS {
            assert_eq!(metadata.get(tag).map_or(0, Vec::len), 1, "rows of metadata tag {tag}");
        }
        let (uuid, guid) = (&metadata["uuid"][0], &metadata["guid"][0]);
        assert_eq!(*uuid, format!("_{}", guid.replace('-', "_")), "uuid and guid");
        let version: Vec<&str> = AMD_TAGS[3..].iter().map(|tag| metadata[*tag][0].as_str()).collect();
        assert_eq!(metadata["schema_version"][0], version.join("."), "schema_version");
        for table in self.names("table").iter().filter(|name| !name.starts_with("sqlite_")) {
            assert!(
                ["rocpd_", RPD_TABLE_PREFIX].iter().any(|begin| table.starts_with(begin))
                    && table.ends_with(uuid.as_str()),
                "table {table} of uuid {uuid}"
            );
        }
        let foreign_guids =
            |table: &&String| table.ends_with(uuid.as_str()) && !table.starts_with("rocpd_metadata");
        for table in self.names("table").iter().filter(foreign_guids) {
            let others = self.number(&format!("SELECT count(*) FROM \"{table}\" WHERE guid IS NOT '{guid}'"));
            assert_eq!(others, 0, "rows of {table} with another guid");
        }
    }

    /// All tables and views as text: tables by rowid, views in the order of their rows' text.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for table in self.names("table") {
            let _ = writeln!(out, "table {table}");
            for row in self.rows(&format!("SELECT * FROM \"{table}\" ORDER BY rowid")) {
                let _ = writeln!(out, "{}", row.join("|"));
            }
        }
        for view in self.names("view") {
            let _ = writeln!(out, "view {view}");
            let mut rows: Vec<String> =
                self.rows(&format!("SELECT * FROM \"{view}\"")).iter().map(|row| row.join("|")).collect();
            rows.sort();
            rows.iter().for_each(|row| {
                let _ = writeln!(out, "{row}");
            });
        }
        out
    }
}

fn as_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(v) => v.to_string(),
        ValueRef::Real(v) => format!("{v:?}"),
        ValueRef::Text(v) => format!("'{}'", String::from_utf8_lossy(v)),
        ValueRef::Blob(v) => format!("x{v:02x?}"),
    }
}

/// The first line in which two dumps differ; `None` where they are the same.
pub fn dump_difference(left: &str, right: &str) -> Option<String> {
    let mut section = "";
    let mut pairs = left.lines().zip(right.lines());
    let found = pairs.find(|(a, b)| {
        if a == b && (a.starts_with("table ") || a.starts_with("view ")) {
            section = a;
        }
        a != b
    });
    match found {
        Some((a, b)) => Some(format!("in {section}:\n  {a}\n  {b}")),
        None if left.len() != right.len() => {
            Some(format!("one has {} bytes, the other {}", left.len(), right.len()))
        }
        None => None,
    }
}
