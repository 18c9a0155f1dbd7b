//! Translates a database that a profiler wrote on a node to a shard, for the shared file system.
//!
//! Rows keep their keys, as handles, and their stack ids; only strings get the ids of the shard. A merge of the
//! shard therefore equals a merge of the database, except that the collector identifies the processes more
//! reliably. Each process becomes a source with its own keys and stack ids, whether or not it shares its table set
//! with others.

mod row_owners;
mod tables;

use crate::read::{Database, ProcessFacts, ReadError, StoredTable, StoredTableSet, Wanted, redacted_command};
use row_owners::{RowLinks, RowOwners};
use rpd_files::beside;
use rpd_shard::file::Owner;
use rpd_shard::identity::{boot_of_machine, unnamed_node};
use rpd_shard::model::{Kind, Local, Rows, Schema, Table, TableId, Value, rocpd};
use rpd_shard::record::{Clock, Loss, LossCause, Node, Process};
use rpd_shard::{ShardWriter, WriteError};
use rpd_translator::{TranslateError, Translation};
use rusqlite::{Connection, OpenFlags};
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Number of the first process in the shard.
const FIRST_SOURCE: u32 = 1;
/// Key of the row of the process, and of that of its node, within each source.
const ONLY_KEY: Value<'static> = Value::Int(1);
/// An id that no string has.
const NO_STRING: Value<'static> = Value::Int(0);
/// Maximum number of warnings about one file.
const MAX_WARNINGS: usize = 20;
/// Maximum number of metadata tags that a note lists by name.
const MAX_NAMED_TAGS: usize = 3;
/// Maximum number of processes of one file.
const MAX_PROCESSES: usize = 4096;
/// Maximum number of rows of all processes that wait for their blocks to fill.
const MAX_PENDING: usize = 2 << 20;

impl From<ReadError> for TranslateError {
    fn from(error: ReadError) -> TranslateError {
        TranslateError::Database(Box::new(error))
    }
}

/// Returns whether a metadata tag is not one of RocPD's own.
fn is_foreign(tag: &str) -> bool {
    !tag.starts_with("schema_version") && !matches!(tag, "uuid" | "guid")
}

/// Writes the content of a database as a shard.
///
/// First applies a journal that a killed writer left. This changes the file, which must therefore be a copy that is
/// not needed for anything else.
pub fn translate(path: &Path, sink: &mut dyn Write, owner: &Owner) -> Result<Translation, TranslateError> {
    settle(path);
    let database = Database::open(path)?;
    let parts = parts(&database).map_err(|what| TranslateError::Unfit { path: path.to_owned(), what })?;
    let shard = ShardWriter::of_owner(sink, owner)?;
    let mut output = ShardOutput {
        database: &database,
        shard,
        defined: BTreeSet::new(),
        strings: HashMap::new(),
        translation: Translation::default(),
    };
    output.damage();
    for part in &parts {
        output.part(part)?;
    }
    let tags = parts.iter().flat_map(|part| part.set.tags.keys()).filter(|tag| is_foreign(tag));
    output.translation.notes.extend(note_of_tags(&tags.map(String::as_str).collect()));
    output.shard.finish()?;
    Ok(output.translation)
}

/// Returns a note about metadata tags that a shard cannot store.
fn note_of_tags(tags: &BTreeSet<&str>) -> Option<String> {
    let named: Vec<&str> = tags.iter().copied().take(MAX_NAMED_TAGS).collect();
    let count = if tags.len() == 1 { "1 tag" } else { &format!("{} tags", tags.len()) };
    let more = if tags.len() > MAX_NAMED_TAGS { ", ..." } else { "" };
    let note = || format!("a shard has no room for {count} of its metadata: {}{more}", named.join(", "));
    (!tags.is_empty()).then(note)
}

/// A table set that is translated.
struct SetPart<'a> {
    set: &'a StoredTableSet,
    /// Index in [`Database::table_sets`].
    number: usize,
    /// Its tables, as described in the shard.
    tables: Vec<Arc<Table>>,
    /// Number in the shard of its first process.
    first: u32,
    owners: RowOwners,
}

/// Returns the table sets that have content, or the reason why they cannot become a shard.
fn parts(database: &Database) -> Result<Vec<SetPart<'_>>, &'static str> {
    let all = database.table_sets();
    let table_sets: Vec<(usize, &StoredTableSet)> = (0..)
        .zip(all)
        .filter(|(number, set)| all.len() == 1 || has_content(database, *number, set))
        .collect();
    let processes = || table_sets.iter().flat_map(|(_, set)| &set.processes);
    if processes().count() > MAX_PROCESSES {
        return Err("has more than 4096 processes");
    }
    let is_of_a_merge = |set: &StoredTableSet| set.tags.keys().any(|tag| tag.starts_with("rpd."));
    if processes().count() > 1 && table_sets.iter().any(|(_, set)| is_of_a_merge(set)) {
        // A merge has already converted its times from the clocks of this node.
        return Err("is the output of a merge");
    }
    let nodes = table_sets.iter().flat_map(|(_, set)| &set.nodes);
    if nodes.map(|(_, node)| (&node.machine_id, &node.hostname)).collect::<BTreeSet<_>>().len() > 1 {
        return Err("has processes of several nodes");
    }
    let sets: Vec<&StoredTableSet> = table_sets.iter().map(|(_, set)| *set).collect();
    let mut first = FIRST_SOURCE;
    let mut parts = Vec::with_capacity(sets.len());
    for ((number, set), tables) in table_sets.into_iter().zip(tables::described(&sets)?) {
        parts.push(SetPart { set, number, tables, first, owners: RowOwners::of(database, number, set)? });
        first += set.processes.len().max(1) as u32;
    }
    Ok(parts)
}

/// Returns whether a table set has any content. An empty table may have a piece.
fn has_content(database: &Database, number: usize, set: &StoredTableSet) -> bool {
    let has_rows = |(place, table): (usize, &StoredTable)| {
        let rows = |piece| database.rows(number, place, piece, Wanted::Named(&[]));
        table.pieces.iter().any(|piece| rows(piece).map_or(true, |rows| rows.len > 0))
    };
    !set.processes.is_empty() || !set.left_out.is_empty() || set.tables.iter().enumerate().any(has_rows)
}

/// Lets SQLite complete the transaction of a killed writer. If that fails, opening the file reports the reason.
fn settle(path: &Path) {
    let is_there = |suffix| std::fs::metadata(beside(path, suffix)).is_ok_and(|found| found.len() > 0);
    if is_there("-wal") || is_there("-journal") {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let _ = Connection::open_with_flags(path, flags)
            .and_then(|conn| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    }
}

struct ShardOutput<'a, 's> {
    database: &'a Database,
    shard: ShardWriter<&'s mut dyn Write>,
    /// Tables that the shard already describes.
    defined: BTreeSet<TableId>,
    /// Id in the shard of each string of the table set, by its key in the database.
    strings: HashMap<i64, i64>,
    translation: Translation,
}

impl ShardOutput<'_, '_> {
    fn warn(&mut self, line: &str) {
        if self.translation.warnings.len() < MAX_WARNINGS {
            self.translation.warnings.push(line.to_owned());
        }
    }

    /// Adds a known loss of a part to the loss ledger. The process of the rows is unknown.
    fn lose(&mut self, source: u32, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.shard.loss(Loss { source, table, cause, rows });
    }

    /// Reports losses of the whole file that are known before any row is read.
    fn damage(&mut self) {
        for line in self.database.damage() {
            self.warn(line);
            self.lose(FIRST_SOURCE, None, LossCause::Truncated, None);
        }
    }

    fn part(&mut self, part: &SetPart<'_>) -> Result<(), WriteError> {
        self.strings.clear();
        self.processes(part)?;
        self.left_out(part);
        for (place, table) in part.set.tables.iter().enumerate() {
            match table.table.id {
                rocpd::STRING => self.strings(part, place, table)?,
                // Process records replace these rows.
                rocpd::INFO_NODE | rocpd::INFO_PROCESS => {}
                _ => self.table(part, place, table)?,
            }
        }
        Ok(())
    }

    /// Describes the processes as far as the file does.
    fn processes(&mut self, part: &SetPart<'_>) -> Result<(), WriteError> {
        let set = part.set;
        let commands = self.commands(part);
        let unknown = [ProcessFacts::default()];
        let all = if set.processes.is_empty() { &unknown } else { &set.processes[..] };
        let seen = |facts: &ProcessFacts| (i32::try_from(facts.pid).unwrap_or(-1), facts.start.unwrap_or(0));
        let all_seen: Vec<(i32, i64)> = all.iter().map(seen).collect();
        for (source, facts) in (part.first..).zip(all) {
            let (pid, start) = seen(facts);
            let node = set.nodes.iter().find(|(key, _)| *key == facts.nid).or(set.nodes.first());
            let node = node.map(|(_, node)| node.clone()).unwrap_or_default();
            let node = match boot_of_machine(&node) {
                Some(boot_id) => Node { boot_id, ..node },
                None => unnamed_node(0, &all_seen),
            };
            let process = Process {
                source,
                rank: facts.rank,
                size: facts.size,
                local_rank: facts.local_rank,
                rank_from: facts.rank_from.clone(),
                pid,
                ppid: -1,
                first_seen: start,
                last_seen: facts.end,
                command: commands.get(&facts.key).cloned().unwrap_or_default(),
                ..Process::of_file(node, Clock::Boottime)
            };
            self.shard.process(&process)?;
        }
        Ok(())
    }

    /// Returns the command lines in the file, with secrets masked, by the keys of their processes.
    fn commands(&self, part: &SetPart<'_>) -> HashMap<i64, String> {
        let mut commands = HashMap::new();
        let Some(place) = part.set.position(rocpd::INFO_PROCESS) else { return commands };
        for piece in part.set.tables.get(place).iter().flat_map(|table| &table.pieces) {
            self.database.each(part.number, place, piece, &mut |_, rows| {
                let Ok(rows) = rows else { return };
                let texts = rows.column("command");
                let command =
                    |row| Some((rows.keys.get(row), redacted_command(&texts.get(row).text_lossy()?)));
                commands.extend((0..rows.len).filter_map(command));
            });
        }
        commands
    }

    /// Reports losses of a table set that are known before any row is read.
    fn left_out(&mut self, part: &SetPart<'_>) {
        part.set.warnings.iter().for_each(|line| self.warn(line));
        for left_out in &part.set.left_out {
            self.warn(&left_out.to_string());
            match Schema::builtin().by_name(&left_out.table) {
                Some(known) => self.lose(part.first, Some(known.id), LossCause::DamagedBlock, left_out.rows),
                None => self.lose(part.first, None, LossCause::UnknownTable, left_out.rows),
            }
        }
    }

    fn strings(&mut self, part: &SetPart<'_>, place: usize, table: &StoredTable) -> Result<(), WriteError> {
        self.each(part, place, table, |output, rows| {
            let texts = rows.column("string");
            for i in 0..rows.len {
                let text = match texts.get(i) {
                    Value::Text(text) | Value::Blob(text) => text,
                    _ => b"",
                };
                match output.shard.string(text) {
                    Ok(id) => drop(output.strings.insert(rows.keys.get(i), id)),
                    Err(error) => output.too_long(part.first, rocpd::STRING, error)?,
                }
            }
            *output.translation.rows.entry(rocpd::STRING).or_default() += rows.len as u64;
            Ok(())
        })
    }

    fn table(&mut self, part: &SetPart<'_>, place: usize, table: &StoredTable) -> Result<(), WriteError> {
        let description = &*part.tables[place];
        let id = description.id;
        if tables::needs_description(description) && self.defined.insert(id) {
            self.shard.table(description)?;
        }
        self.each(part, place, table, |output, rows| {
            let links = RowLinks::of(rows);
            let mut values = Vec::with_capacity(rows.columns.len());
            for i in 0..rows.len {
                let key = rows.keys.get(i);
                let source = part.first + part.owners.place(rows, &links, i);
                if key == i64::MAX {
                    output.warn(&format!(
                        "a row of {} has the id {key}, the largest there is",
                        rows.table.name
                    ));
                    output.lose(source, Some(id), LossCause::OverLimit, Some(1));
                    continue;
                }
                values.clear();
                for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
                    values.push(match (&column.kind, cells.get(i)) {
                        (_, Value::Null) => Value::Null,
                        (Kind::Ref(rocpd::INFO_NODE | rocpd::INFO_PROCESS), _) => ONLY_KEY,
                        (Kind::Str, Value::Int(key)) => {
                            output.strings.get(&key).map_or(NO_STRING, |id| Value::Int(*id))
                        }
                        (_, value) => value,
                    });
                }
                match output.shard.push_with_key(source, id, key, &values) {
                    Ok(()) => *output.translation.rows.entry(id).or_default() += 1,
                    Err(error) => output.too_long(source, id, error)?,
                }
            }
            if output.shard.pending_rows() > MAX_PENDING {
                output.shard.flush()?;
            }
            Ok(())
        })
    }

    /// Counts a row that no shard can hold. Any other error aborts the translation.
    fn too_long(&mut self, source: u32, table: TableId, error: WriteError) -> Result<(), WriteError> {
        let WriteError::TextTooLong { .. } = error else { return Err(error) };
        self.warn(&error.to_string());
        self.lose(source, Some(table), LossCause::OverLimit, Some(1));
        Ok(())
    }

    /// Passes the rows of a table to `take`, and counts those that cannot be read.
    fn each(
        &mut self,
        part: &SetPart<'_>,
        place: usize,
        table: &StoredTable,
        mut take: impl FnMut(&mut Self, &Rows<Local>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let database = self.database;
        let mut pieces: Vec<_> = table.pieces.iter().rev().cloned().collect();
        let mut done = Ok(());
        while let Some(piece) = pieces.pop() {
            let mut parts = Vec::new();
            database.each(part.number, place, &piece, &mut |piece, rows| match rows {
                _ if done.is_err() => {}
                Ok(rows) => done = take(self, &rows),
                // Reads page by page, so that a damaged page does not affect the others.
                Err(_) if piece.is_divisible() => parts.extend(piece.split()),
                Err(error) => {
                    if !matches!(error, ReadError::Cut { .. }) {
                        self.warn(&error.to_string());
                    }
                    self.lose(part.first, Some(part.tables[place].id), LossCause::DamagedBlock, None);
                }
            });
            std::mem::replace(&mut done, Ok(()))?;
            pieces.extend(parts.into_iter().rev());
        }
        Ok(())
    }
}
