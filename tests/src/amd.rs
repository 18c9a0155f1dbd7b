//! What AMD's `rocpd` asks of databases, as SQL: read in its public Python of November 2025.
//!
//! Every command attaches its databases, puts a temporary view over each table `rocpd_<x>` of all of them, and asks
//! through data views that are temporary, too.

use crate::content::DatabaseContent;
use crate::harness::{Database, repository};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// Views with a duration that `rocpd summary` sums up, and the column that names an operation. Regions it takes by
/// the category, up to the first `_`.
const SUMMED: [(&str, &str); 4] = [
    ("kernels", "name"),
    ("memory_copies", "name"),
    ("memory_allocations", "type"),
    ("scratch_memory", "operation"),
];

/// Databases as `rocpd query` and `rocpd summary` see them together, through the data views of the first one.
///
/// # Panics
/// If SQLite refuses something.
pub fn session(databases: &[&Path]) -> Database {
    let session = attached(databases);
    let views = "SELECT sql FROM db0.sqlite_master WHERE type = 'view' AND name NOT LIKE 'rocpd_%'
                    AND name NOT LIKE 'rpd_ext_%' ORDER BY rowid";
    create_views(&session, texts(&session, views));
    session
}

/// The same through AMD's own data views, as a database of rocprofv3 has them. AMD's commands bring these along and
/// read none from the databases that they open.
///
/// # Panics
/// If SQLite refuses something.
pub fn session_with_views_of(rocprofv3: &Path, databases: &[&Path]) -> Database {
    let views =
        "SELECT sql FROM sqlite_master WHERE type = 'view' AND name NOT LIKE 'rocpd_%' ORDER BY rowid";
    let session = attached(databases);
    create_views(&session, texts(&Database::open(rocprofv3), views));
    session
}

/// A temporary view over each table of all databases.
fn attached(databases: &[&Path]) -> Database {
    let connection = Connection::open_in_memory().unwrap_or_else(|error| panic!("a session: {error}"));
    let session = Database { connection };
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (number, path) in databases.iter().enumerate() {
        run(&session, &format!("ATTACH '{}' AS db{number}", path.display()));
        let sql = format!(
            "SELECT DISTINCT replace(t.name, m.value, '') FROM db{number}.sqlite_master t, db{number}.rocpd_metadata m
              WHERE t.type = 'table' AND t.name LIKE 'rocpd_%' AND m.tag = 'uuid' AND instr(t.name, m.value)"
        );
        for table in texts(&session, &sql) {
            let select = format!("SELECT * FROM db{number}.\"{table}\"");
            tables.entry(table).or_default().push(select);
        }
    }
    for (table, selects) in tables {
        run(&session, &format!("CREATE TEMPORARY VIEW \"{table}\" AS {}", selects.join(" UNION ALL ")));
    }
    session
}

fn create_views(session: &Database, views: Vec<String>) {
    for view in views {
        run(session, &view.replacen("CREATE VIEW", "CREATE TEMPORARY VIEW", 1));
    }
}

fn run(session: &Database, sql: &str) {
    session.connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn texts(session: &Database, sql: &str) -> Vec<String> {
    let read = || -> rusqlite::Result<Vec<String>> {
        session.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    read().unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The query by rank that docs/MERGING.md shows.
///
/// # Panics
/// If it is not there.
pub fn query_by_rank() -> String {
    let docs = std::fs::read_to_string(repository().join("docs/MERGING.md"));
    let docs = docs.unwrap_or_else(|error| panic!("docs/MERGING.md: {error}"));
    let from = docs.find("    select P.rank, K.name, count(*)").unwrap_or_else(|| panic!("no query by rank"));
    docs[from..].lines().take_while(|line| line.starts_with("    ")).collect::<Vec<_>>().join("\n")
}

/// What `rocpd summary` takes for one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummaryGrouping {
    /// All of them together: without `--summary-by-rank`.
    Nothing,
    /// A guid, as `--summary-by-rank` does: averages are of the guid and name, calls of these and the node; of their
    /// processes one is named, and looked for by its process id alone.
    Guid,
    /// A process: what it should take.
    Process,
}

/// The rows of `rocpd summary`, sorted, by what is summed up.
///
/// # Panics
/// If SQLite refuses something.
pub fn summary(session: &Database, by: SummaryGrouping) -> DatabaseContent {
    let mut content = DatabaseContent::new();
    let mut add = |what: &str, source: &str, name: &str| {
        let mut rows: Vec<String> =
            session.rows(&summary_of(source, name, by)).iter().map(|row| row.join(" | ")).collect();
        rows.sort();
        content.insert(what.to_owned(), rows);
    };
    for (view, name) in SUMMED {
        add(view, view, name);
    }
    let categories = "SELECT DISTINCT lower(substr(category, 1, instr(category || '_', '_') - 1))
                        FROM regions_and_samples WHERE category IS NOT NULL";
    for category in texts(session, categories) {
        let own = format!(
            "(SELECT * FROM regions_and_samples WHERE lower(category) = '{category}' OR lower(category) LIKE '{category}~_%' ESCAPE '~')"
        );
        add(&category, &own, "name");
    }
    content
}

/// The query of one summary. Reals are rounded: sums depend on the order of the rows in the last digit.
fn summary_of(source: &str, name: &str, by: SummaryGrouping) -> String {
    let (mean_of, group, who, join) = match by {
        SummaryGrouping::Nothing => ("''", "''", "", ""),
        SummaryGrouping::Guid => {
            ("t.guid", "t.guid, t.nid", "g.pid, p.hostname,", "JOIN processes p ON p.pid = g.pid")
        }
        SummaryGrouping::Process => (
            "t.guid || t.nid || ' ' || t.pid",
            "t.guid, t.nid, t.pid",
            "g.pid, p.hostname,",
            "JOIN processes p ON p.guid = g.guid AND p.nid = g.nid AND p.pid = g.pid",
        ),
    };
    format!(
        "WITH t AS MATERIALIZED (SELECT guid, nid, pid, {name} AS name, duration FROM {source}),
              m AS MATERIALIZED (SELECT {mean_of} AS whose, name, avg(duration) AS ns FROM t GROUP BY 1, 2),
              g AS (SELECT t.guid, t.nid, t.pid, t.name, count(*) AS calls, sum(t.duration) AS ns, m.ns AS mean,
                           min(t.duration) AS least, max(t.duration) AS most,
                           sum((t.duration - m.ns) * (t.duration - m.ns)) / (count(*) - 1) AS variance
                      FROM t JOIN m ON m.whose = {mean_of} AND m.name IS t.name GROUP BY {group}, t.name)
         SELECT {who} g.name, g.calls, g.ns, printf('%.9e', g.mean), g.least, g.most, printf('%.9e', g.variance)
           FROM g {join}"
    )
}
