//! Assigns each row of a table set to its process.
//!
//! Most rows name their process. Any other row belongs to the process of a row that it refers to, or that refers to
//! it: an event belongs to the process of its region.

use crate::read::{Database, Piece, ReadError, StoredTable, StoredTableSet, Wanted};
use rpd_shard::model::{Cells, Kind, Local, Rows, TableId, rocpd};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of referenced rows that are remembered with their process.
const MAX_ROWS: usize = 1 << 26;
/// Maximum number of passes over the tables, after which the remaining rows are assigned to the first process.
const MAX_ROUNDS: usize = 8;
/// Marks a row of an unknown process.
const NO_PLACE: u32 = u32::MAX;

const SHARED_ROWS: &str = "has rows that belong to several of its processes";
const TOO_MANY: &str = "has several processes, and more rows than can be assigned to them";

/// The process of each row, as an index into [`StoredTableSet::processes`].
#[derive(Debug, Default)]
pub(super) struct RowOwners {
    /// Process index by key; empty unless there are several processes.
    places: HashMap<i64, u32>,
    /// Processes of rows that other rows refer to.
    targets: BTreeMap<TableId, KeyOwners>,
}

/// The processes of the rows of one table.
#[derive(Debug, Default)]
struct KeyOwners {
    /// Row keys, ascending.
    keys: Vec<i64>,
    places: Vec<u32>,
}

impl KeyOwners {
    fn at(&self, key: i64) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }

    fn of(&self, key: i64) -> Option<u32> {
        self.places.get(self.at(key)?).copied().filter(|place| *place != NO_PLACE)
    }

    /// Stores the process of a row. Returns whether it changed.
    fn note(&mut self, key: i64, place: u32) -> bool {
        let Some(known) = self.at(key).and_then(|at| self.places.get_mut(at)) else { return false };
        std::mem::replace(known, place) != place
    }
}

/// The columns of some rows that determine their process.
pub(super) struct RowLinks<'a> {
    processes: Vec<&'a Cells>,
    others: Vec<(TableId, &'a Cells)>,
}

impl<'a> RowLinks<'a> {
    pub(super) fn of(rows: &'a Rows<Local>) -> RowLinks<'a> {
        let mut links = RowLinks { processes: Vec::new(), others: Vec::new() };
        for (column, cells) in rows.table.columns.iter().zip(&rows.columns) {
            match target(&column.kind) {
                Some(target) => links.others.push((target, cells)),
                None if column.kind == Kind::Ref(rocpd::INFO_PROCESS) => links.processes.push(cells),
                None => {}
            }
        }
        links
    }
}

impl RowOwners {
    /// Assigns the rows of a table set to processes, unless there is only one. Returns the reason if the assignment
    /// is ambiguous.
    pub(super) fn of(
        database: &Database,
        number: usize,
        set: &StoredTableSet,
    ) -> Result<RowOwners, &'static str> {
        let mut owners = RowOwners::default();
        if set.processes.len() < 2 {
            return Ok(owners);
        }
        owners.places = (0..).zip(&set.processes).map(|(place, facts)| (facts.key, place)).collect();
        owners.take_keys(database, number, set)?;
        let mut open: Vec<usize> = (0..set.tables.len()).filter(|at| has_links(&set.tables[*at])).collect();
        let mut otherwise = None;
        for round in 1.. {
            let (found, left) = owners.look_through(database, number, set, &open, otherwise)?;
            if left.is_empty() {
                break;
            }
            open = left;
            // A row that no reference connects to a process is assigned to the first one, as in a merge.
            otherwise = (found == 0 || round >= MAX_ROUNDS).then_some(0);
        }
        Ok(owners)
    }

    /// Returns the index of the process of a row.
    pub(super) fn place(&self, rows: &Rows<Local>, links: &RowLinks<'_>, row: usize) -> u32 {
        if self.places.is_empty() {
            return 0;
        }
        let known = self.targets.get(&rows.id()).and_then(|owners| owners.of(rows.keys.get(row)));
        known.or_else(|| self.claims(links, row).next()).unwrap_or(0)
    }

    /// Reads the keys of the rows that other rows refer to.
    fn take_keys(
        &mut self,
        database: &Database,
        number: usize,
        set: &StoredTableSet,
    ) -> Result<(), &'static str> {
        let columns = set.tables.iter().flat_map(|table| &table.table.columns);
        let targets: BTreeSet<TableId> = columns.filter_map(|column| target(&column.kind)).collect();
        let mut free_rows = MAX_ROWS;
        for (place, table) in set.tables.iter().enumerate().filter(|(_, t)| targets.contains(&t.table.id)) {
            let mut owners = KeyOwners::default();
            each(database, number, place, table, &mut |rows| {
                let keys = (0..rows.len).map(|row| rows.keys.get(row));
                owners.keys.extend(keys.take((free_rows + 1).saturating_sub(owners.keys.len())));
            });
            free_rows = free_rows.checked_sub(owners.keys.len()).ok_or(TOO_MANY)?;
            owners.places = vec![NO_PLACE; owners.keys.len()];
            self.targets.insert(table.table.id, owners);
        }
        Ok(())
    }

    /// Makes one pass over tables. Returns how many rows were newly assigned, and the tables that still have
    /// unassigned rows.
    fn look_through(
        &mut self,
        database: &Database,
        number: usize,
        set: &StoredTableSet,
        tables: &[usize],
        otherwise: Option<u32>,
    ) -> Result<(u64, Vec<usize>), &'static str> {
        let (mut found, mut left) = (0, Vec::new());
        for place in tables {
            let mut is_whole = true;
            let mut done = Ok(());
            each(database, number, *place, &set.tables[*place], &mut |rows| {
                let links = RowLinks::of(rows);
                for row in 0..rows.len {
                    match self.look(rows, &links, row, otherwise) {
                        _ if done.is_err() => return,
                        Ok(Some(new)) => found += new,
                        Ok(None) => is_whole = false,
                        Err(why) => done = Err(why),
                    }
                }
            });
            done?;
            if !is_whole {
                left.push(*place);
            }
        }
        Ok((found, left))
    }

    /// Assigns the same process to a row and to the rows that it refers to. Returns how many assignments are new,
    /// or `None` if the process is still unknown.
    fn look(
        &mut self,
        rows: &Rows<Local>,
        links: &RowLinks<'_>,
        row: usize,
        otherwise: Option<u32>,
    ) -> Result<Option<u64>, &'static str> {
        let own = (rows.id(), rows.keys.get(row));
        let known = self.targets.get(&own.0).and_then(|owners| owners.of(own.1));
        let mut claims = known.into_iter().chain(self.claims(links, row));
        let Some(process) = claims.next().or(otherwise) else { return Ok(None) };
        if claims.any(|other| other != process) {
            return Err(SHARED_ROWS);
        }
        drop(claims);
        let targets = links.others.iter().filter_map(|(table, cells)| Some((*table, cells.int(row)?)));
        let mut found = 0;
        for (table, key) in targets.chain([own]) {
            found += u64::from(self.targets.get_mut(&table).is_some_and(|owners| owners.note(key, process)));
        }
        Ok(Some(found))
    }

    /// Returns the indexes of the processes that a row names, and of those of the rows that it refers to.
    fn claims<'a>(&'a self, links: &'a RowLinks<'_>, row: usize) -> impl Iterator<Item = u32> + 'a {
        let named =
            links.processes.iter().filter_map(move |cells| self.places.get(&cells.int(row)?).copied());
        let of_target =
            move |(table, cells): &(TableId, &Cells)| self.targets.get(table)?.of(cells.int(row)?);
        named.chain(links.others.iter().filter_map(of_target))
    }
}

/// Returns the table that a column refers to, if its rows belong to processes.
fn target(kind: &Kind) -> Option<TableId> {
    match kind {
        Kind::Ref(rocpd::INFO_NODE | rocpd::INFO_PROCESS) => None,
        Kind::Ref(target) => Some(*target),
        _ => None,
    }
}

fn has_links(table: &StoredTable) -> bool {
    let is_link = |kind: &Kind| *kind == Kind::Ref(rocpd::INFO_PROCESS) || target(kind).is_some();
    table.table.id != rocpd::INFO_PROCESS && table.table.columns.iter().any(|column| is_link(&column.kind))
}

/// Passes the id columns of all readable rows of a table to `take`. Unreadable rows are counted when all columns
/// are read.
fn each(
    database: &Database,
    number: usize,
    place: usize,
    table: &StoredTable,
    take: &mut dyn FnMut(&Rows<Local>),
) {
    let mut pieces: Vec<Piece> = table.pieces.iter().rev().cloned().collect();
    while let Some(piece) = pieces.pop() {
        let parts = match database.rows(number, place, &piece, Wanted::Links) {
            Ok(rows) => {
                take(&rows);
                continue;
            }
            Err(ReadError::TooLarge { .. }) => database.smaller(number, place, &piece).unwrap_or_default(),
            Err(_) if piece.is_divisible() => piece.split(),
            Err(_) => continue,
        };
        pieces.extend(parts.into_iter().rev().filter(|part| *part != piece));
    }
}
