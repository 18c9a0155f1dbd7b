//! The table sets of a file: the tables of each uuid.

use super::catalog::Entry;
use super::declaration::FileTable;
use super::describe::describe;
use super::piece::Piece;
use super::process::ProcessFacts;
use super::stored::Stored;
use rpd_shard::model::{FIRST_CARRIED_TABLE, Kind, Schema, Table, TableId, current_table_name, rocpd};
use rpd_shard::record::Node;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Maximum number of tables of a table set that the data model lacks.
const MAX_CARRIED: usize = 256;
/// Maximum number of warnings about one table set; further ones are dropped.
const MAX_WARNINGS: usize = 100;

/// The rows of one uuid. Keys, strings and stack ids are valid only inside it.
#[derive(Debug)]
pub struct StoredTableSet {
    /// Suffix of its table names, `_...`.
    pub suffix: String,
    /// Its guid, which may be any text.
    pub guid: String,
    /// Schema version: major, minor, patch. "3" is read as 3.0.0.
    pub version: [u32; 3],
    /// The metadata rows. `rpd.*` tags show that rpd-merge wrote the file.
    pub tags: BTreeMap<String, String>,
    /// Its tables without the metadata table; a table follows those that it refers to. The built-in tables come
    /// first, in their order, unless a reference requires another order.
    pub tables: Vec<StoredTable>,
    /// The built-in tables with the additional columns of the file, and the carried tables.
    pub schema: Schema,
    /// Key and facts of each node. `boot_id` is empty, since RocPD has none.
    pub nodes: Vec<(i64, Node)>,
    /// The processes, in the order of their keys.
    pub processes: Vec<ProcessFacts>,
    /// Tables that are not read.
    pub left_out: Vec<LeftOut>,
    /// Deviations from the expected content, one line each.
    pub warnings: Vec<String>,
}

/// A table of a table set.
#[derive(Debug)]
pub struct StoredTable {
    /// Its description. Columns that the file lacks are absent in the rows.
    pub table: Arc<Table>,
    /// All of its rows, by ascending keys.
    pub pieces: Vec<Piece>,
    pub(super) stored: Stored,
}

/// A table that is not read. Its rows are lost to the merge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Name without the suffix.
    pub table: String,
    /// Number of rows, if they can be counted.
    pub rows: Option<u64>,
    /// Reason why it is not read.
    pub why: &'static str,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut { table, rows, why } = self;
        write!(f, "table {} is left out: {why}", table.escape_debug())?;
        rows.map_or(Ok(()), |rows| write!(f, " ({rows} rows)"))
    }
}

impl StoredTableSet {
    /// Tag of a merged database.
    const VERSION_TAG: &str = "rpd.version";
    /// Tag of the second and all later table sets of a merged database. Their times are job times, too.
    pub const FURTHER_SET: &str = "rpd.set";

    /// Returns whether rpd-merge wrote it.
    pub fn is_merged(&self) -> bool {
        self.is_first_merged() || self.tags.contains_key(StoredTableSet::FURTHER_SET)
    }

    /// Returns whether rpd-merge wrote it, and it has the metadata of the merge.
    pub fn is_first_merged(&self) -> bool {
        self.tags.contains_key(StoredTableSet::VERSION_TAG)
    }

    /// Returns a table set without tables.
    pub(super) fn new(suffix: String) -> StoredTableSet {
        StoredTableSet {
            guid: suffix.trim_start_matches('_').to_owned(),
            version: [3, 0, 0],
            suffix,
            tags: BTreeMap::new(),
            tables: Vec::new(),
            schema: Schema::builtin().clone(),
            nodes: Vec::new(),
            processes: Vec::new(),
            left_out: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns the index of a table in [`StoredTableSet::tables`].
    pub fn position(&self, table: TableId) -> Option<usize> {
        self.tables.iter().position(|t| t.table.id == table)
    }

    pub(super) fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }
}

/// Prefixes of the names of tables that every table set has.
const MARKS: [&str; 2] = ["rocpd_metadata", "rocpd_info_process"];

/// Returns the suffix of a name that starts with `mark`.
fn end_of<'a>(name: &'a str, mark: &str) -> Option<&'a str> {
    name.strip_prefix(mark).filter(|end| end.len() > 1 && end.starts_with('_'))
}

/// Returns whether a table shows that a table set exists.
pub(super) fn is_mark(name: &str) -> bool {
    MARKS.iter().any(|mark| end_of(name, mark).is_some())
}

/// The tables of each table set, by the suffix of their names.
pub(super) type Groups<'a> = BTreeMap<String, Vec<(String, &'a Entry)>>;

/// Groups the tables by suffix and removes the suffix from their names. Also returns the names of the tables that
/// belong to no group.
pub(super) fn group(entries: &[Entry]) -> (Groups<'_>, Vec<String>) {
    let ends = |mark: &str| -> BTreeSet<&str> {
        entries.iter().filter_map(|entry| end_of(&entry.name, mark)).collect()
    };
    let [metadata, process] = MARKS.map(ends);
    // A table `rocpd_metadata_more_<uuid>` belongs to the table set `_<uuid>` and does not create one of its own.
    let is_inside = |end: &str| {
        let mut inner = end.match_indices('_').skip(1).map(|(at, _)| &end[at..]);
        inner.any(|inner| metadata.contains(inner) && process.contains(inner))
    };
    let mut suffixes: BTreeSet<&str> = metadata.intersection(&process).copied().collect();
    suffixes.extend(metadata.symmetric_difference(&process).filter(|end| !is_inside(end)));
    let mut groups = Groups::new();
    let mut strays = Vec::new();
    for entry in entries {
        // The longest matching suffix.
        let at = entry.name.match_indices('_').map(|(at, _)| at);
        let found = at.skip(1).find(|at| suffixes.contains(&entry.name[*at..]));
        match found {
            Some(at) => {
                let (name, suffix) = entry.name.split_at(at);
                groups.entry(suffix.to_owned()).or_default().push((name.to_owned(), entry));
            }
            None => strays.push(entry.name.clone()),
        }
    }
    groups.values_mut().for_each(|tables| call_by_current_names(tables));
    (groups, strays)
}

/// Renames tables that an earlier release named differently to their current names, unless another table has that
/// name.
fn call_by_current_names(tables: &mut [(String, &Entry)]) {
    let there: BTreeSet<String> = tables.iter().map(|(name, _)| name.clone()).collect();
    for (name, _) in tables {
        let current = current_table_name(name).into_owned();
        if !there.contains(&current) {
            *name = current;
        }
    }
}

/// A table of the file with its declaration.
pub(super) struct Declared<'a> {
    pub(super) name: String,
    pub(super) entry: &'a Entry,
    pub(super) file: FileTable,
}

/// Describes the tables of a table set in merge order, without pieces. Also returns the resulting schema, warnings,
/// and the tables that exceed the limit.
pub(super) fn describe_all(
    declared: Vec<Declared<'_>>,
) -> (Vec<StoredTable>, Schema, Vec<String>, Vec<Declared<'_>>) {
    let mut schema = Schema::builtin().clone();
    let known = |name: &str| Schema::builtin().rocpd_tables().position(|table| table.name == name);
    let mut declared = declared;
    declared.sort_by_key(|table| known(&table.name).unwrap_or(usize::MAX));
    let known_tables = declared.iter().filter(|table| known(&table.name).is_some()).count();
    let too_many = declared.split_off(declared.len().min(known_tables + MAX_CARRIED));

    let declared = ordered(declared);
    let mut targets = HashMap::new();
    let mut carried = 0;
    for table in &declared {
        let id = Schema::builtin().by_name(&table.name).map_or_else(
            || {
                carried += 1;
                TableId(FIRST_CARRIED_TABLE.0 + carried - 1)
            },
            |table| table.id,
        );
        targets.insert(table.name.to_ascii_lowercase(), id);
    }
    let mut warnings = Vec::new();
    let mut tables = Vec::with_capacity(declared.len());
    for Declared { name, entry, file } in declared {
        let Some(id) = targets.get(&name.to_ascii_lowercase()) else { continue };
        let found = describe(*id, &name, Schema::builtin().get(*id), &file, &targets);
        warnings.extend(found.warnings);
        if !Schema::builtin().get(*id).is_some_and(|known| Arc::ptr_eq(known, &found.table)) {
            schema.define(found.table.clone());
        }
        let stored = Stored::new(entry, &file, &found.places);
        tables.push(StoredTable { table: found.table, pieces: Vec::new(), stored });
    }
    (tables, schema, warnings, too_many)
}

/// Sorts each table after those that it refers to, and otherwise keeps the order. Tables that refer to each other
/// in a cycle keep their order.
fn ordered(declared: Vec<Declared<'_>>) -> Vec<Declared<'_>> {
    let mut waits: Vec<BTreeSet<usize>> = declared.iter().map(|table| needs(table, &declared)).collect();
    let mut order = Vec::with_capacity(declared.len());
    let mut left: Vec<usize> = (0..declared.len()).collect();
    while !left.is_empty() {
        let at = left.iter().position(|i| waits[*i].is_empty()).unwrap_or(0);
        let chosen = left.remove(at);
        order.push(chosen);
        waits.iter_mut().for_each(|waits| {
            waits.remove(&chosen);
        });
    }
    let mut declared: Vec<_> = declared.into_iter().map(Some).collect();
    order.into_iter().filter_map(|i| declared.get_mut(i)?.take()).collect()
}

/// Returns the indexes of the tables that rows of `table` refer to.
fn needs(table: &Declared<'_>, all: &[Declared<'_>]) -> BTreeSet<usize> {
    let place = |name: &str| all.iter().position(|other| other.name.eq_ignore_ascii_case(name));
    let stated = table.file.columns.iter().filter_map(|column| column.refers.as_ref());
    let stated = stated.filter_map(|(target, _)| place(&current_table_name(target)));
    let known = Schema::builtin().by_name(&table.name).into_iter().flat_map(|known| &known.columns);
    let known = known.filter_map(|column| match &column.kind {
        Kind::Ref(target) => place(&Schema::builtin().get(*target)?.name),
        Kind::Str => place(&Schema::builtin().get(rocpd::STRING)?.name),
        _ => None,
    });
    let this = place(&table.name);
    stated.chain(known).filter(|other| Some(*other) != this).collect()
}
