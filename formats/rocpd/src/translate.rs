//! A database of one process as a shard: what a profiler wrote on a node, on its way to the shared file system.
//!
//! Rows keep their keys, which are handles, and their stack ids; only strings get the ids of the shard. So a merge of
//! the shard is the merge of the database, but for the process: that is known better.

use crate::read::{Database, ReadError, Space, SpaceTable, redacted_command};
use rpd_shard::file::Owner;
use rpd_shard::identity::node_of_file;
use rpd_shard::model::{FIRST_CARRIED_TABLE, Kind, Local, Rows, Schema, TableId, Value, is_wider, rocpd};
use rpd_shard::record::{Clock, Loss, LossCause, Process};
use rpd_shard::{ShardWriter, WriteError};
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Number of the process in the shard.
const SOURCE: u32 = 1;
/// Key of its row, and of that of its node.
const ONLY: Value<'static> = Value::Int(1);
/// An id that no string has.
const NO_STRING: Value<'static> = Value::Int(0);
/// Most lines about one file.
const MAX_WARNINGS: usize = 20;
/// Most columns of a table in a shard.
const MAX_COLUMNS: usize = 64;

/// Why a database cannot be a shard.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The shard cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It has several processes, or tables that are too wide: it can be merged as it is.
    #[error("{} {what}: it is merged as it is", path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
    },
}

/// What became of a database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// Rows of the shard, per table.
    pub rows: BTreeMap<TableId, u64>,
    /// What is lost, one line each. It is in the ledger of the shard, too.
    pub warnings: Vec<String>,
    /// Tags of its metadata that are no part of RocPD. A shard has no room for them.
    pub tags: Vec<String>,
}

/// Whether a tag of the metadata is none of RocPD's own.
fn is_foreign(tag: &str) -> bool {
    !tag.starts_with("schema_version") && !matches!(tag, "uuid" | "guid")
}

/// Writes what a database holds as a shard; returns the sink. A journal that a killed writer left is used first,
/// which changes the file: it has to be a copy that nobody else needs.
pub fn translate<W: Write>(path: &Path, sink: W, owner: &Owner) -> Result<(W, Translation), TranslateError> {
    settle(path);
    let database = Database::open(path)?;
    let too_many = |what| TranslateError::NotOne { path: path.to_owned(), what };
    let [space] = database.spaces() else { return Err(too_many("has several sets of tables")) };
    if space.processes.len() > 1 || space.nodes.len() > 1 {
        return Err(too_many("has several processes"));
    }
    if space.tables.iter().any(|table| table.table.columns.len() > MAX_COLUMNS) {
        return Err(too_many("has a table of more than 64 columns"));
    }
    let shard = ShardWriter::of_owner(sink, owner)?;
    let mut output =
        Output { path, database: &database, shard, strings: HashMap::new(), told: Translation::default() };
    output.process(space)?;
    output.losses(space);
    output.told.tags = space.tags.keys().filter(|tag| is_foreign(tag)).cloned().collect();
    for (place, table) in space.tables.iter().enumerate() {
        match table.table.id {
            rocpd::STRING => output.strings(place, table)?,
            // The process record is in their place.
            rocpd::INFO_NODE | rocpd::INFO_PROCESS => {}
            _ => output.table(place, table)?,
        }
    }
    Ok((output.shard.finish()?, output.told))
}

/// Lets SQLite finish what a killed writer began. Where it cannot, opening the file says why.
fn settle(path: &Path) {
    let is_there = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        std::fs::metadata(name).is_ok_and(|found| found.len() > 0)
    };
    if is_there("-wal") || is_there("-journal") {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let _ = Connection::open_with_flags(path, flags)
            .and_then(|conn| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    }
}

struct Output<'a, W: Write> {
    path: &'a Path,
    database: &'a Database,
    shard: ShardWriter<W>,
    /// Id in the shard of each string, by its key.
    strings: HashMap<i64, i64>,
    told: Translation,
}

impl<W: Write> Output<'_, W> {
    fn warn(&mut self, line: &str) {
        if self.told.warnings.len() < MAX_WARNINGS {
            let path = self.path.display().to_string();
            self.told.warnings.push(if line.contains(&path) {
                line.to_owned()
            } else {
                format!("{path}: {line}")
            });
        }
    }

    fn lose(&mut self, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.shard.loss(Loss { source: SOURCE, table, cause, rows });
    }

    /// Describes the process, as far as the file knows it.
    fn process(&mut self, space: &Space) -> Result<(), WriteError> {
        let facts = space.processes.first().cloned().unwrap_or_default();
        let (pid, start) = (i32::try_from(facts.pid).unwrap_or(-1), facts.start.unwrap_or(0));
        let node = space.nodes.first().map(|(_, node)| node.clone()).unwrap_or_default();
        let node = node_of_file(node, (pid, start));
        let process = Process {
            rank: facts.rank,
            size: facts.size,
            local_rank: facts.local_rank,
            rank_from: facts.rank_from,
            pid,
            ppid: -1,
            first_seen: start,
            last_seen: facts.end,
            command: self.command(space),
            ..Process::of_file(node, Clock::Boottime)
        };
        self.shard.process(&process)
    }

    /// The command line in the file, without secrets.
    fn command(&self, space: &Space) -> String {
        let mut command = String::new();
        let Some(place) = space.position(rocpd::INFO_PROCESS) else { return command };
        for piece in space.tables.get(place).iter().flat_map(|table| &table.pieces) {
            self.database.each(0, place, piece, &mut |_, rows| {
                if let Ok(rows) = rows
                    && rows.len > 0
                    && let Some(text) = rows.column("command").get(0).text_lossy()
                {
                    command = redacted_command(&text);
                }
            });
        }
        command
    }

    /// What is known to be lost before any row is read.
    fn losses(&mut self, space: &Space) {
        for line in self.database.damage() {
            self.warn(line);
            self.lose(None, LossCause::Truncated, None);
        }
        space.warnings.iter().for_each(|line| self.warn(line));
        for left_out in &space.left_out {
            self.warn(&left_out.to_string());
            match Schema::builtin().by_name(&left_out.table) {
                Some(known) => self.lose(Some(known.id), LossCause::DamagedBlock, left_out.rows),
                None => self.lose(None, LossCause::UnknownTable, left_out.rows),
            }
        }
    }

    fn strings(&mut self, place: usize, table: &SpaceTable) -> Result<(), WriteError> {
        self.each(place, table, |output, rows| {
            let texts = rows.column("string");
            for i in 0..rows.len {
                let text = match texts.get(i) {
                    Value::Text(text) | Value::Blob(text) => text,
                    _ => b"",
                };
                match output.shard.string(text) {
                    Ok(id) => drop(output.strings.insert(rows.keys.get(i), id)),
                    Err(error) => output.too_long(rocpd::STRING, error)?,
                }
            }
            *output.told.rows.entry(rocpd::STRING).or_default() += rows.len as u64;
            Ok(())
        })
    }

    fn table(&mut self, place: usize, table: &SpaceTable) -> Result<(), WriteError> {
        let description = &*table.table;
        let id = description.id;
        let widens = Schema::builtin().get(id).is_some_and(|known| is_wider(description, known));
        if id >= FIRST_CARRIED_TABLE || widens {
            self.shard.table(description)?;
        }
        self.each(place, table, |output, rows| {
            let mut values = Vec::with_capacity(rows.columns.len());
            for i in 0..rows.len {
                let key = rows.keys.get(i);
                if key == i64::MAX {
                    output.warn(&format!(
                        "a row of {} has the id {key}, behind which there is none",
                        rows.table.name
                    ));
                    output.lose(Some(id), LossCause::OverLimit, Some(1));
                    continue;
                }
                values.clear();
                for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
                    values.push(match (&column.kind, cells.get(i)) {
                        (_, Value::Null) => Value::Null,
                        (Kind::Ref(rocpd::INFO_NODE | rocpd::INFO_PROCESS), _) => ONLY,
                        (Kind::Str, Value::Int(key)) => {
                            output.strings.get(&key).map_or(NO_STRING, |id| Value::Int(*id))
                        }
                        (_, value) => value,
                    });
                }
                match output.shard.push_with_key(SOURCE, id, key, &values) {
                    Ok(()) => *output.told.rows.entry(id).or_default() += 1,
                    Err(error) => output.too_long(id, error)?,
                }
            }
            Ok(())
        })
    }

    /// Counts a row that no shard can hold; any other error ends the shard.
    fn too_long(&mut self, table: TableId, error: WriteError) -> Result<(), WriteError> {
        let WriteError::TextTooLong { .. } = error else { return Err(error) };
        self.warn(&error.to_string());
        self.lose(Some(table), LossCause::OverLimit, Some(1));
        Ok(())
    }

    /// Hands on the rows of a table, and counts those that cannot be read.
    fn each(
        &mut self,
        place: usize,
        table: &SpaceTable,
        mut take: impl FnMut(&mut Self, &Rows<Local>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let database = self.database;
        let mut pieces: Vec<_> = table.pieces.iter().rev().cloned().collect();
        let mut done = Ok(());
        while let Some(piece) = pieces.pop() {
            let mut parts = Vec::new();
            database.each(0, place, &piece, &mut |piece, rows| match rows {
                _ if done.is_err() => {}
                Ok(rows) => done = take(self, &rows),
                // Page by page, so that one that is damaged costs no other.
                Err(_) if piece.is_divisible() => parts.extend(piece.split()),
                Err(error) => {
                    if !matches!(error, ReadError::Cut { .. }) {
                        self.warn(&error.to_string());
                    }
                    self.lose(Some(table.table.id), LossCause::DamagedBlock, None);
                }
            });
            std::mem::replace(&mut done, Ok(()))?;
            pieces.extend(parts.into_iter().rev());
        }
        Ok(())
    }
}
