//! An input during the merge, independent of its format.

use crate::input::{BuiltinString, InputSource, SourcePiece, vanished_input};
use crate::strings::{StringIds, hash};
use rpd_console::Failure;
use rpd_rocpd::read::{Database, Piece, StoredTableSet, Wanted};
use rpd_shard::Shard;
use rpd_shard::file::{BlockDamage, BlockError, BlockKind, BlockRef, ShardStrings};
use rpd_shard::model::{Column, Local, Rows, Table, TableId, Value, rocpd};
use rpd_shard::record::{ClockSet, ProbeBurst, Process};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use twox_hash::XxHash3_128;

/// Tables of an input as tables of the job, by their number in the input.
pub(crate) type InputTables = Arc<BTreeMap<TableId, Arc<Table>>>;

/// Callback for a string; gets its position in its table, and its text.
pub(crate) type TakeString<'a> = dyn FnMut(u32, &[u8]) -> Result<(), Failure> + 'a;

/// Callback for a string; gets its key, its position in its table, and its text.
type TakeStringRow<'a> = dyn FnMut(i64, u32, &[u8]) -> Result<(), Failure> + 'a;

/// An input.
#[derive(Debug, Default)]
pub(crate) enum OpenInput {
    /// No input.
    #[default]
    None,
    /// A shard of rpd-collect or of a translated foreign file.
    Shard(Shard),
    /// A RocPD database.
    Database(OpenDatabase),
}

/// A RocPD database of which at least some table sets are merged.
#[derive(Debug)]
pub(crate) struct OpenDatabase {
    /// The database.
    pub database: Database,
    /// String tables of the table sets that are merged. Other table sets are merged from another input.
    pub strings: Vec<StringPieces>,
}

/// A string table of a database.
#[derive(Debug)]
pub(crate) struct StringPieces {
    /// Position of the table set in the file.
    pub table_set: usize,
    /// Position of the table in the table set.
    pub table: usize,
    /// Pieces that the survey could read.
    pub pieces: Vec<Piece>,
}

impl OpenDatabase {
    /// Returns the table set that a source was made from.
    pub(crate) fn table_set_of(&self, source: &InputSource) -> Option<&StoredTableSet> {
        self.database.table_sets().get(self.strings.get(source.string_table)?.table_set)
    }

    /// Calls `take` for each string of a string table.
    fn each_string_row(&self, table: usize, take: &mut TakeStringRow<'_>) -> Result<(), Failure> {
        let Some(StringPieces { table_set, table, pieces }) = self.strings.get(table) else { return Ok(()) };
        let mut index = 0;
        for piece in pieces {
            let rows = self.database.rows(*table_set, *table, piece, Wanted::All);
            let rows = rows.map_err(|error| vanished_input(self.database.path(), &error))?;
            let texts = rows.column("string");
            for i in 0..rows.len {
                take(rows.keys.get(i), index, text_of(texts.get(i)))?;
                index += 1;
            }
        }
        Ok(())
    }
}

/// Returns the bytes of a text or BLOB; none for other values.
pub(crate) fn text_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Text(text) | Value::Blob(text) => text,
        _ => b"",
    }
}

/// Reads the strings of a shard. Fails if a block cannot be read because of an I/O error.
pub(crate) fn shard_strings(shard: &Shard) -> Result<ShardStrings, Failure> {
    let (strings, errors) = shard.strings();
    match errors.into_iter().find(|error| matches!(error.cause, BlockDamage::Io(_))) {
        Some(error) => Err(vanished_input(shard.path(), &error.cause)),
        None => Ok(strings),
    }
}

impl OpenInput {
    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        match self {
            OpenInput::None => Path::new(""),
            OpenInput::Shard(shard) => shard.path(),
            OpenInput::Database(open) => open.database.path(),
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            OpenInput::None => 0,
            OpenInput::Shard(shard) => shard.bytes(),
            OpenInput::Database(open) => open.database.bytes(),
        }
    }

    /// Returns an id of one source of this input. It does not depend on the path of the file.
    pub(crate) fn id_of(&self, source: &InputSource) -> u128 {
        match self {
            OpenInput::None => 0,
            OpenInput::Shard(shard) => shard_source_id(shard, &source.process),
            OpenInput::Database(open) => {
                let guid = open.table_set_of(source).map_or("", |set| set.guid.as_str());
                XxHash3_128::oneshot(guid.as_bytes())
            }
        }
    }

    /// Returns whether a piece of a source has rows of processes.
    pub(crate) fn has_processes(&self, source: &InputSource, piece: &SourcePiece) -> bool {
        match (piece, self) {
            (SourcePiece::Process, _) => true,
            (SourcePiece::Rows { table_set, table, .. }, OpenInput::Database(open)) => {
                let tables = open.database.table_sets().get(*table_set).map_or(&[][..], |set| &set.tables);
                tables.get(*table).is_some_and(|table| table.table.id == rocpd::INFO_PROCESS)
            }
            (SourcePiece::Tail, _) => {
                source.spaces.get(&rocpd::INFO_PROCESS).is_some_and(|space| space.placeholder.is_some())
            }
            _ => false,
        }
    }

    /// Closes the file. The next read opens it again.
    pub(crate) fn release(&self) {
        match self {
            OpenInput::None => {}
            OpenInput::Shard(shard) => shard.release(),
            OpenInput::Database(open) => open.database.release(),
        }
    }

    /// Returns the number of string tables.
    pub(crate) fn string_tables(&self) -> u32 {
        match self {
            OpenInput::None => 0,
            OpenInput::Shard(_) => 1,
            OpenInput::Database(open) => open.strings.len() as u32,
        }
    }

    /// Calls `take` for each string of one string table, with its position in the table.
    pub(crate) fn each_string(&self, table: usize, take: &mut TakeString<'_>) -> Result<(), Failure> {
        debug_assert!(table < self.string_tables() as usize);
        match self {
            OpenInput::None => Ok(()),
            OpenInput::Shard(shard) => {
                let strings = shard_strings(shard)?;
                strings.iter().try_for_each(|(id, text)| take((id - 1) as u32, text))
            }
            OpenInput::Database(open) => open.each_string_row(table, &mut |_, index, text| take(index, text)),
        }
    }

    /// Returns the shard, if the input is one.
    pub(crate) fn shard(&self) -> Option<&Shard> {
        if let OpenInput::Shard(shard) = self { Some(shard) } else { None }
    }

    /// Returns the clock sets recorded in the input.
    pub(crate) fn clocks(&self) -> &[ClockSet] {
        self.shard().map_or(&[], |shard| &shard.clocks)
    }

    /// Returns the probe bursts recorded in the input.
    pub(crate) fn probes(&self) -> &[ProbeBurst] {
        self.shard().map_or(&[], |shard| &shard.probes)
    }
}

/// Returns an id of one process of a shard. It does not depend on the path of the file.
pub(crate) fn shard_source_id(shard: &Shard, p: &Process) -> u128 {
    let run = &shard.identity.run_id;
    let name =
        format!("{run}\0{:?}\0{}\0{}\0{}\0{}", p.rank, p.domain.boot_id, p.pid, p.start_ticks, p.source);
    XxHash3_128::oneshot(name.as_bytes())
}

/// Reads the rows of a block as rows of the job's table.
pub(crate) fn block_rows(
    shard: &Shard,
    tables: &InputTables,
    block: &BlockRef,
) -> Result<Rows<Local>, BlockError> {
    Ok(adopted(shard.rows(block)?, tables, block))
}

/// Reads the rows of a block without the integer columns that are not `needed`, see [`Shard::needed_rows`].
pub(crate) fn needed_rows(
    shard: &Shard,
    tables: &InputTables,
    block: &BlockRef,
    needed: &dyn Fn(&Column) -> bool,
) -> Result<Rows<Local>, BlockError> {
    Ok(adopted(shard.needed_rows(block, needed)?, tables, block))
}

fn adopted(mut rows: Rows<Local>, tables: &InputTables, block: &BlockRef) -> Rows<Local> {
    if let BlockKind::Rows(table) = block.header.kind
        && let Some(adopted) = tables.get(&table)
    {
        rows.table = adopted.clone();
    }
    rows
}

/// Global ids of the strings of one string table of an input.
#[derive(Debug, Default)]
pub(crate) struct StringMap {
    /// Global ids, indexed by local id minus one; 0 for an unused local id.
    dense: Vec<i64>,
    /// Local ids that would leave gaps in `dense`: local and global id, ascending.
    sparse: Vec<(i64, i64)>,
    /// Global ids of builtin strings; 0 if unused.
    builtins: [i64; BuiltinString::ALL.len()],
}

impl StringMap {
    /// Looks up the strings of a shard.
    pub(crate) fn of_shard(strings: &ShardStrings, ids: &StringIds) -> StringMap {
        let mut map = StringMap::with_builtins(ids);
        map.dense = vec![0; (strings.next_id() - 1) as usize];
        for (id, text) in strings.iter() {
            map.dense[(id - 1) as usize] = ids.id(hash(text)).unwrap_or(0);
        }
        map
    }

    /// Looks up the strings of each table set of a database.
    pub(crate) fn of_database(open: &OpenDatabase, ids: &StringIds) -> Result<Vec<StringMap>, Failure> {
        let map = |table| {
            let mut map = StringMap::with_builtins(ids);
            open.each_string_row(table, &mut |key, _, text| {
                map.add(key, ids.id(hash(text)).unwrap_or(0));
                Ok(())
            })?;
            Ok(map)
        };
        (0..open.strings.len()).map(map).collect()
    }

    /// Returns a map that contains only the builtin strings.
    pub(crate) fn with_builtins(ids: &StringIds) -> StringMap {
        let builtins = BuiltinString::ALL.map(|builtin| ids.id(hash(builtin.text().as_bytes())).unwrap_or(0));
        StringMap { builtins, ..StringMap::default() }
    }

    /// Adds a string. Local ids must ascend.
    pub(crate) fn add(&mut self, local: i64, global: i64) {
        match usize::try_from(local) {
            Ok(local) if self.sparse.is_empty() && local == self.dense.len() + 1 => self.dense.push(global),
            _ => self.sparse.push((local, global)),
        }
    }

    /// Returns the global id of a string.
    #[inline]
    pub(crate) fn id(&self, local: i64) -> Option<i64> {
        let dense = usize::try_from(local).ok().and_then(|i| self.dense.get(i.checked_sub(1)?));
        let found = match dense {
            Some(id) => *id,
            None => self.sparse[self.sparse.binary_search_by_key(&local, |s| s.0).ok()?].1,
        };
        (found != 0).then_some(found)
    }

    /// Returns the global id of a builtin string.
    pub(crate) fn builtin(&self, string: BuiltinString) -> Option<i64> {
        Some(self.builtins[string as usize]).filter(|id| *id != 0)
    }
}
