//! Converts RocPD to `.rpd`: a merged database becomes a file of schema 3 with AMD's ids for several nodes.
//!
//! Nodes are numbered from 0 in the order of `rocpd_info_node`. For node n, n times [`PID_STRIDE`] is added to
//! process and thread ids, and n times [`GPU_STRIDE`] to the numbers of GPUs and queues. The views `napi` and `nop`
//! separate them again.
//!
//! | RocPD | `.rpd` |
//! |---|---|
//! | region; sample of a thread | `rocpd_api`: the category is RocPD's; the domain is `hip`, `hsa`, `roctx` or `rccl`, else the category. A range is called `UserMarker`, and its message is in the args. Args of other calls are `NAME=VALUE`, joined by ` \| ` |
//! | args that were a row of `rocpd_kernelapi` or `rocpd_copyapi` | that row again, with `''` for columns without an arg |
//! | kernel dispatch | `rocpd_op`, and `rocpd_kernelapi` of the call with its stack id, if the call launched one |
//! | memory copy | `rocpd_op`, and `rocpd_copyapi` of the call with its stack id |
//! | GPU | its number among the GPUs, `type_index` |
//! | queue | its number in the original `.rpd`, else a sequential number on its node, or in its process if the node has a thousand queues |
//! | counter value of a dispatch or copy | `rocpd_counter` |
//! | counter value at a sample | `rocpd_monitor`, from the sample to the next value of the counter |
//! | call stack with `$.frames` | `rocpd_stackframe` |
//!
//! A `.rpd` cannot represent anything else, which is counted in [`WrittenRpd::left_out`].

mod error;

pub use error::RpdWriteError;

use crate::quiet;
use crate::{CLOCK_TAG, CLOCKS, GPU_STRIDE, ONE_TIME, ONE_TIME_TAG, PID_STRIDE};
use rpd_files::{AnchorUse, open_by_path, output_place};
use rpd_shard::MERGE_APPLICATION_ID;
use rpd_shard::model::Schema;
use rpd_shard::record::Clock;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// The steps in order: the content that each writes, and its SQL.
const STEPS: [(&str, &str); 5] = [
    ("the numbers", include_str!("numbers.sql")),
    ("the strings", include_str!("strings.sql")),
    ("the calls", include_str!("calls.sql")),
    ("the operations", include_str!("operations.sql")),
    ("the values", include_str!("values.sql")),
];

/// Numbers of rows read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WrittenCount {
    /// Number of RocPD rows.
    pub read: u64,
    /// Number of RPD rows.
    pub written: u64,
}

/// Counts of a written file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WrittenRpd {
    /// Number of nodes.
    pub nodes: u64,
    /// `calls` (regions and samples), `operations` (dispatches and copies) and `values` of counters.
    pub rows: BTreeMap<&'static str, WrittenCount>,
    /// Number of rows that `.rpd` cannot represent, by kind.
    pub left_out: BTreeMap<String, u64>,
}

/// Writes a merged RocPD database into a new `.rpd` file that only its owner may read. Does not change the
/// database. Temporary tables are stored in SQLite's temporary directory (`SQLITE_TMPDIR`).
///
/// Times are copied. They are on the clock that the metadata tag `rpd.clock` names. All nodes share this clock if
/// the tag `rpd.clock.one_time` states so.
pub fn write(merged: &Path, out: &Path) -> Result<WrittenRpd, RpdWriteError> {
    quiet::check(merged)?;
    let made = output_place(out).and_then(|(folder, name)| folder.create(name, 0o600));
    let file = made.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => RpdWriteError::Exists { path: out.to_owned() },
        _ => RpdWriteError::Create { path: out.to_owned(), source },
    })?;
    fill(merged, out, &file).inspect_err(|_| {
        // No other process can be using the new file.
        let _ = output_place(out).and_then(|(folder, name)| folder.remove(name));
    })
}

fn fill(merged: &Path, out: &Path, file: &File) -> Result<WrittenRpd, RpdWriteError> {
    let target = Target { merged, out, conn: open(out).map_err(|source| sqlite(out, "the file", source))? };
    target.attach()?;
    target.batch("the tables", include_str!("tables.sql"))?;
    target.metadata()?;
    for (what, sql) in STEPS {
        let sql = sql.replace(":pid", &PID_STRIDE.to_string()).replace(":gpu", &GPU_STRIDE.to_string());
        target.batch(what, &sql)?;
        if what == "the numbers" {
            target.check_ids()?;
        }
    }
    target.make_texts_valid()?;
    let written = target.count()?;
    target.batch("the views", include_str!("views.sql"))?;
    target.batch("the end", "COMMIT; DETACH src;")?;
    target.conn.close().map_err(|(_, source)| sqlite(out, "the end", source))?;
    file.sync_all().map_err(|source| RpdWriteError::Sync { path: out.to_owned(), source })?;
    Ok(written)
}

/// Opens the empty file, which no other process uses. Uses no locks, which Lustre may not support, and no journal.
fn open(out: &Path) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let opened = open_by_path(out, AnchorUse::Outputs, |out| {
        let uri = quiet::uri(out).replace("?mode=ro&immutable=1", "?mode=rw");
        Connection::open_with_flags_and_vfs(uri, flags, "unix-none")
    });
    let conn = opened.unwrap_or_else(|refused| Err(quiet::cannot_open(&refused)))?;
    quiet::bound(&conn)?;
    conn.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA foreign_keys = OFF; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -65536;",
    )?;
    conn.execute_batch(&format!("PRAGMA application_id = {MERGE_APPLICATION_ID}"))?;
    Ok(conn)
}

/// The output file, with the input database attached as `src`.
struct Target<'a> {
    merged: &'a Path,
    out: &'a Path,
    conn: Connection,
}

impl Target<'_> {
    /// Attaches the database, and creates views of its tables with plain names.
    fn attach(&self) -> Result<(), RpdWriteError> {
        let failed = |source| sqlite(self.out, "the input", source);
        let attached = open_by_path(self.merged, AnchorUse::Outputs, |merged| {
            self.conn.execute("ATTACH ? AS src", [quiet::uri(merged)])
        });
        attached.unwrap_or_else(|refused| Err(quiet::cannot_open(&refused))).map_err(failed)?;
        let suffix = self.suffix()?;
        let mut sql = format!("CREATE TEMP VIEW metadata AS SELECT * FROM src.\"rocpd_metadata{suffix}\";\n");
        for table in Schema::builtin().rocpd_tables() {
            let short = table.name.strip_prefix("rocpd_").unwrap_or(&table.name);
            sql +=
                &format!("CREATE TEMP VIEW \"{short}\" AS SELECT * FROM src.\"{}{suffix}\";\n", table.name);
        }
        sql += "BEGIN";
        self.batch("the input", &sql)
    }

    /// Returns the common suffix of all table names.
    fn suffix(&self) -> Result<String, RpdWriteError> {
        let not_merged =
            |why: &str| RpdWriteError::NotMerged { path: self.merged.to_owned(), why: why.to_owned() };
        let names = self.column(
            "SELECT name FROM src.sqlite_master WHERE type = 'table' AND rootpage > 0 LIMIT 100000",
        )?;
        let mut suffixes = names.iter().filter_map(|name| name.strip_prefix("rocpd_metadata"));
        let suffix = suffixes.next().ok_or_else(|| not_merged("it has no table rocpd_metadata*"))?;
        if suffixes.next().is_some() {
            return Err(not_merged("it has several sets of tables"));
        }
        if !suffix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(not_merged("its uuid is none"));
        }
        for table in Schema::builtin().rocpd_tables() {
            let name = format!("{}{suffix}", table.name);
            if !names.contains(&name) {
                return Err(not_merged(&format!("it has no table {name}")));
            }
        }
        let version =
            format!("SELECT value FROM src.\"rocpd_metadata{suffix}\" WHERE tag = 'schema_version'");
        match self.column(&version)?.as_slice() {
            [version] if *version == "3" || version.starts_with("3.") => Ok(suffix.to_owned()),
            versions => Err(not_merged(&format!("its schema version is {versions:?}"))),
        }
    }

    fn metadata(&self) -> Result<(), RpdWriteError> {
        let mut rows = vec![
            ("schema_version", "3".to_owned()),
            ("pid_stride", PID_STRIDE.to_string()),
            ("gpu_stride", GPU_STRIDE.to_string()),
            (CLOCK_TAG, self.clock()?.name().to_owned()),
        ];
        if self.number(IS_ONE_TIME)? > 0 {
            rows.push((ONE_TIME_TAG, ONE_TIME.to_owned()));
        }
        for (tag, value) in rows {
            let added =
                self.conn.execute("INSERT INTO rocpd_metadata (tag, value) VALUES (?, ?)", (tag, value));
            added.map_err(|source| sqlite(self.out, "the metadata", source))?;
        }
        Ok(())
    }

    /// Returns the clock that the merge names first, or else the clock that profilers of RocPD use.
    fn clock(&self) -> Result<Clock, RpdWriteError> {
        let named = self
            .column("SELECT value FROM temp.metadata WHERE tag = 'rpd.clock' AND typeof(value) = 'text'")?;
        let name = named.first().and_then(|name| name.split_whitespace().next());
        Ok(CLOCKS.into_iter().find(|clock| name == Some(clock.name())).unwrap_or(Clock::Boottime))
    }

    /// Returns an error if an id would be in the range of another node.
    fn check_ids(&self) -> Result<(), RpdWriteError> {
        let checks = [
            ("process id", PID_STRIDE, "SELECT min(pid), max(pid) FROM temp.info_process"),
            ("thread id", PID_STRIDE, "SELECT min(tid), max(tid) FROM temp.info_thread"),
            ("GPU number", GPU_STRIDE, "SELECT min(device), max(device) FROM agent"),
            ("queue number", GPU_STRIDE, "SELECT min(number), max(number) FROM queue"),
        ];
        for (what, stride, sql) in checks {
            let bounds = self.conn.query_row(sql, [], |row| Ok([row.get::<_, Option<i64>>(0)?, row.get(1)?]));
            let bounds = bounds.map_err(|source| sqlite(self.out, "the numbers", source))?;
            if let Some(value) = bounds.into_iter().flatten().find(|value| !(0..stride).contains(value)) {
                return Err(RpdWriteError::IdTooLarge { path: self.merged.to_owned(), what, value, stride });
            }
        }
        Ok(())
    }

    /// Replaces invalid UTF-8 in texts by U+FFFD, also in values that were BLOBs.
    fn make_texts_valid(&self) -> Result<(), RpdWriteError> {
        let failed = |source| sqlite(self.out, "the texts", source);
        for (table, column) in TEXTS {
            let mut query = self
                .conn
                .prepare(&format!("SELECT id, {column} FROM main.{table} WHERE id > ? ORDER BY id"))
                .map_err(failed)?;
            let sql = format!("UPDATE main.{table} SET {column} = ? WHERE id = ?");
            let mut update = self.conn.prepare(&sql).map_err(failed)?;
            // A row is changed only while no query reads the table.
            let mut last = i64::MIN;
            while let Some((id, text)) = next_invalid(&mut query, last).map_err(failed)? {
                update.execute((text, id)).map_err(failed)?;
                last = id;
            }
        }
        Ok(())
    }

    /// Compares the numbers of rows written and read, and counts rows that `.rpd` cannot represent.
    fn count(&self) -> Result<WrittenRpd, RpdWriteError> {
        let mut written =
            WrittenRpd { nodes: self.number("SELECT count(*) FROM node")?, ..WrittenRpd::default() };
        let mut left_out = Vec::new();
        for (what, sql) in LEFT_OUT {
            left_out.push((what.to_owned(), self.number(sql)?));
        }
        for table in self.column(
            "SELECT name FROM src.sqlite_master WHERE type = 'table' AND rootpage > 0 AND name LIKE 'rocpd\\_ext\\_%' ESCAPE '\\'",
        )? {
            let rows = self.number(&format!("SELECT count(*) FROM src.\"{}\"", table.replace('"', "\"\"")))?;
            left_out.push((format!("rows of {table}"), rows));
        }
        written.left_out = left_out.into_iter().filter(|(_, rows)| *rows > 0).collect();
        for (what, read, made, left) in COUNTED {
            let count = WrittenCount { read: self.number(read)?, written: self.number(made)? };
            let left_out = written.left_out.get(left).copied().unwrap_or(0);
            if count.read != count.written + left_out {
                let (path, WrittenCount { read, written }) = (self.out.to_owned(), count);
                return Err(RpdWriteError::Counts { path, what, read, written, left_out });
            }
            written.rows.insert(what, count);
        }
        Ok(written)
    }

    fn batch(&self, what: &'static str, sql: &str) -> Result<(), RpdWriteError> {
        self.conn.execute_batch(sql).map_err(|source| sqlite(self.out, what, source))
    }

    fn number(&self, sql: &str) -> Result<u64, RpdWriteError> {
        let number = self.conn.query_row(sql, [], |row| row.get::<_, i64>(0));
        number.map(i64::unsigned_abs).map_err(|source| sqlite(self.out, "the counts", source))
    }

    /// Returns the first column of a query.
    fn column(&self, sql: &str) -> Result<Vec<String>, RpdWriteError> {
        let failed = |source| sqlite(self.out, "the input", source);
        let mut query = self.conn.prepare(sql).map_err(failed)?;
        let rows = query.query_map([], |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

/// Returns the next row after `last` with a text that is not valid UTF-8, and its readable text.
fn next_invalid(query: &mut Statement<'_>, last: i64) -> rusqlite::Result<Option<(i64, String)>> {
    let mut rows = query.query([last])?;
    while let Some(row) = rows.next()? {
        if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = row.get_ref(1)?
            && std::str::from_utf8(bytes).is_err()
        {
            return Ok(Some((row.get(0)?, String::from_utf8_lossy(bytes).into_owned())));
        }
    }
    Ok(None)
}

/// Yields 1 if the merge has converted the clocks of all nodes to one.
const IS_ONE_TIME: &str = "
    SELECT count(*) FROM (SELECT value FROM temp.metadata WHERE tag = 'rpd.clock.domains') tag
     WHERE CASE WHEN json_valid(tag.value) THEN json_type(tag.value) = 'array' AND json_array_length(tag.value) > 0
       AND NOT EXISTS (SELECT 1 FROM json_each(tag.value) row WHERE row.type <> 'object'
             OR coalesce(json_extract(row.value, '$.method'), 'none') = 'none'
             OR json_extract(row.value, '$.former_merge') IS NOT NULL) END";

/// Columns of texts that are copied from the database.
const TEXTS: [(&str, &str); 5] = [
    ("rocpd_string", "string"),
    ("rocpd_ustring", "string"),
    ("rocpd_monitor", "deviceType"),
    ("rocpd_monitor", "monitorType"),
    ("rocpd_monitor", "value"),
];

const WITHOUT_THREAD: &str = "samples without a thread";
const WITHOUT_OPERATION: &str = "counter values of no operation and no moment";

/// Kinds of rows that `.rpd` cannot represent, and queries for their numbers.
const LEFT_OUT: [(&str, &str); 7] = [
    (
        WITHOUT_THREAD,
        "SELECT count(*) FROM temp.sample s LEFT JOIN temp.track t ON t.id = s.track_id WHERE t.tid IS NULL
            AND (s.event_id IS NULL OR s.event_id NOT IN (SELECT event_id FROM valued))",
    ),
    (
        WITHOUT_OPERATION,
        "SELECT count(*) FROM temp.pmc_event WHERE event_id IS NULL OR (event_id NOT IN (SELECT event_id FROM work_event)
            AND event_id NOT IN (SELECT event_id FROM moment))",
    ),
    ("memory allocations", "SELECT count(*) FROM temp.memory_allocate"),
    (
        "sizes of launches",
        "SELECT count(*) FROM temp.kernel_dispatch d LEFT JOIN rocpd_api_ops pair ON pair.op_id = d.id
           LEFT JOIN rocpd_kernelapi launch ON launch.api_ptr_id = pair.api_id
          WHERE d.workgroup_size_x > 0 AND (launch.workgroupX, launch.workgroupY, launch.workgroupZ, launch.gridX, launch.gridY,
                launch.gridZ) IS NOT (d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z, d.grid_size_x, d.grid_size_y, d.grid_size_z)",
    ),
    (
        "sizes of copies",
        "SELECT count(*) FROM copied c LEFT JOIN rocpd_api_ops pair ON pair.op_id = c.op_id
           LEFT JOIN rocpd_copyapi request ON request.api_ptr_id = pair.api_id
          WHERE c.size <> 0 AND c.size IS NOT coalesce(nullif(request.size, ''), request.width * request.height)",
    ),
    (
        "call stacks",
        "SELECT count(*) FROM temp.event WHERE call_stack NOT IN ('{}', '') AND (call_stack NOT LIKE '{\"frames\"%'
             OR id NOT IN (SELECT event_id FROM call WHERE event_id IS NOT NULL))",
    ),
    ("source lines", "SELECT count(*) FROM temp.event WHERE line_info NOT IN ('{}', '')"),
];

/// Kinds of rows, queries for the numbers read and written, and the kind under which missing rows are counted.
const COUNTED: [(&str, &str, &str, &str); 3] = [
    (
        "calls",
        "SELECT (SELECT count(*) FROM temp.region) + (SELECT count(*) FROM temp.sample
           WHERE event_id IS NULL OR event_id NOT IN (SELECT event_id FROM valued))",
        "SELECT count(*) FROM rocpd_api",
        WITHOUT_THREAD,
    ),
    (
        "operations",
        "SELECT (SELECT count(*) FROM temp.kernel_dispatch) + (SELECT count(*) FROM temp.memory_copy)",
        "SELECT count(*) FROM rocpd_op",
        "",
    ),
    (
        "values",
        "SELECT count(*) FROM temp.pmc_event",
        "SELECT (SELECT count(*) FROM rocpd_counter) + (SELECT count(*) FROM rocpd_monitor)",
        WITHOUT_OPERATION,
    ),
];

fn sqlite(path: &Path, what: &'static str, source: rusqlite::Error) -> RpdWriteError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => RpdWriteError::DiskFull { path, source },
        _ => RpdWriteError::Sqlite { path, what, source },
    }
}
