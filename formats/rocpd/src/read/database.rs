//! An open RocPD database.

use super::catalog::{self, Catalog, Entry};
use super::connections::Connections;
use super::declaration::{Found, Names, declaration};
use super::describe::describe;
use super::error::ReadError;
use super::piece::{Piece, PiecePlace};
use super::stored::Stored;
use super::table_set::{self, Declared, LeftOut, StoredTableSet};
use super::wanted::Wanted;
use super::{process, tags};
use rpd_shard::model::{Local, Rows, Table, TableId, rocpd};
use rpd_sqlite::read::{self as pages, OpenError};
use rusqlite::ErrorCode;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of uuids in a file. AMD's merge is limited to 500.
const MAX_SPACES: usize = 4096;
/// Maximum number of processes, and of nodes, that are described per table set.
const MAX_FACTS: usize = 1 << 20;
/// Maximum number of tables outside RocPD for which rows are counted.
const MAX_OTHERS: usize = 64;
/// Maximum number of lines about damage.
const MAX_DAMAGE: usize = 100;

/// Callback for the rows of a piece, or of a part of it.
pub type TakeRows<'a> = dyn FnMut(&Piece, Result<Rows<Local>, ReadError>) + 'a;

/// A RocPD database that is open for reading, by any number of threads at once.
#[derive(Debug)]
pub struct Database {
    file: Reader,
    table_sets: Vec<StoredTableSet>,
    damage: Damage,
}

/// Access to the file through its pages and through SQLite.
#[derive(Debug)]
struct Reader {
    /// `None` if only SQLite can read the file.
    pages: Option<pages::PageDatabase>,
    sql: Connections,
}

/// Known losses, one line each.
#[derive(Debug, Default)]
struct Damage(Vec<String>);

impl Damage {
    fn add(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            match self.0.len() {
                0..MAX_DAMAGE => self.0.push(line),
                MAX_DAMAGE => self.0.push("and more".to_owned()),
                _ => {}
            }
        }
    }

    /// Adds rows that cannot be read. A truncated file is reported only once.
    fn add_error(&mut self, error: &ReadError) {
        if !matches!(error, ReadError::Cut { .. }) {
            self.add([error.to_string()]);
        }
    }
}

impl Database {
    /// Opens a database: reads its schema, metadata, nodes and processes, but no events.
    pub fn open(path: &Path) -> Result<Database, ReadError> {
        match pages::PageDatabase::open(path) {
            Ok(pages) => Database::read(path, Some(pages)),
            Err(OpenError::Unsupported { .. }) => Database::read(path, None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a database and reads all of it through SQLite. This is much slower, and serves as the reference for
    /// the fast reader.
    pub fn open_with_sqlite(path: &Path) -> Result<Database, ReadError> {
        pages::PageDatabase::open(path).map(drop).or_else(|error| match error {
            OpenError::Unsupported { .. } => Ok(()),
            error => Err(error),
        })?;
        Database::read(path, None)
    }

    fn read(path: &Path, pages: Option<pages::PageDatabase>) -> Result<Database, ReadError> {
        let bytes = rpd_files::entry_stat(path).map_err(ReadError::io(path))?.length;
        let missing = pages.as_ref().map_or(0, pages::PageDatabase::truncated_pages);
        let mut damage = Damage::default();
        if missing > 0 {
            let pages = if missing == 1 { "page is" } else { "pages are" };
            damage.add([format!(
                "the file is cut: it ends at byte {bytes}, its last {missing} {pages} missing, and so are their rows"
            )]);
        }
        let file = Reader { pages, sql: Connections::new(path, bytes, missing > 0) };
        let catalog = match &file.pages {
            Some(pages) => catalog::by_pages(pages)?,
            None => file.sql.with(|conn| catalog::by_sql(conn, path))?,
        };
        if catalog.is_legacy() {
            return Err(ReadError::LegacyRpd(path.to_owned()));
        }
        let Catalog { entries, remarks, others } = catalog;
        damage.add(remarks);
        let (groups, strays) = table_set::group(&entries);
        if groups.is_empty() {
            return Err(ReadError::NotRocPd(path.to_owned()));
        }
        if groups.len() > MAX_SPACES {
            return Err(ReadError::TooMany { path: path.to_owned(), what: "uuids", limit: MAX_SPACES });
        }
        let mut table_sets = Vec::with_capacity(groups.len());
        for (suffix, tables) in groups {
            table_sets.push(file.table_set(suffix, tables, &mut damage)?);
        }
        if let Some(first) = table_sets.first_mut() {
            first.left_out.extend(file.others(strays, "its name ends with no uuid of the file"));
            first.left_out.extend(file.others(others, "it is none of RocPD's"));
        }
        Ok(Database { file, table_sets, damage })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.sql.path()
    }

    /// Returns the size of the file, bytes.
    pub fn bytes(&self) -> u64 {
        self.file.sql.bytes()
    }

    /// Closes the file until the next read. Reads in other threads continue.
    pub fn release(&self) {
        self.file.sql.release();
        if let Some(pages) = &self.file.pages {
            pages.release();
        }
    }

    /// Returns the table set of each uuid of the file, in the order of their suffixes.
    pub fn table_sets(&self) -> &[StoredTableSet] {
        &self.table_sets
    }

    /// Splits a piece of rows that were [too large](ReadError::TooLarge) to be read at once. Returns the piece itself
    /// if it cannot be split.
    ///
    /// # Panics
    /// If there is no such set or table.
    pub fn smaller(&self, set: usize, table: usize, piece: &Piece) -> Result<Vec<Piece>, ReadError> {
        match &self.file.pages {
            Some(pages) if piece.has_pages() => {
                self.table_sets[set].tables[table].stored.smaller(pages, piece)
            }
            _ if piece.is_divisible() => Ok(piece.split()),
            _ => Ok(vec![piece.clone()]),
        }
    }

    /// Reads all columns of the rows of a piece. If the rows are too large to be read at once, reads its parts one
    /// by one.
    ///
    /// # Panics
    /// If there is no such set or table.
    pub fn each(&self, set: usize, table: usize, piece: &Piece, take: &mut TakeRows<'_>) {
        let table = &self.table_sets[set].tables[table];
        self.file.each(&table.stored, &table.table, piece, take);
    }

    /// Frees the positions of the rows, for a caller that has stored the pieces to read.
    pub fn forget_pieces(&mut self) {
        let tables = self.table_sets.iter_mut().flat_map(|set| &mut set.tables);
        tables.for_each(|table| table.pieces = Vec::new());
    }

    /// Returns the known losses, one line each.
    pub fn damage(&self) -> &[String] {
        &self.damage.0
    }

    /// Returns whether rows are decoded from the pages of the file instead of by SQLite.
    pub fn is_fast(&self) -> bool {
        self.file.pages.is_some()
    }

    /// Reads the rows of a piece by ascending keys, with columns in the order of the description of the table.
    ///
    /// A column that the file lacks is absent, which stands for its default. A column that is not `wanted` is
    /// absent too.
    ///
    /// # Panics
    /// If there is no such set or table.
    pub fn rows(
        &self,
        set: usize,
        table: usize,
        piece: &Piece,
        wanted: Wanted,
    ) -> Result<Rows<Local>, ReadError> {
        let table = &self.table_sets[set].tables[table];
        self.file.rows(&table.stored, &table.table, piece, wanted)
    }
}

impl Reader {
    fn rows(
        &self,
        stored: &Stored,
        table: &Arc<Table>,
        piece: &Piece,
        wanted: Wanted,
    ) -> Result<Rows<Local>, ReadError> {
        match (&piece.place, &self.pages) {
            (place @ (PiecePlace::Pages(_) | PiecePlace::Cells { .. }), Some(pages)) => {
                stored.page_rows(pages, table, place, wanted)
            }
            (PiecePlace::Keys { first, last }, _) => {
                self.sql.with(|conn| stored.key_rows(conn, self.sql.path(), table, (*first, *last), wanted))
            }
            // The piece belongs to another file.
            (PiecePlace::Pages(_) | PiecePlace::Cells { .. }, None) => {
                Err(ReadError::Changed(self.sql.path().to_owned()))
            }
        }
    }

    /// Passes the rows of a piece to `take`. If they are too large, passes those of its parts.
    fn each(&self, stored: &Stored, table: &Arc<Table>, piece: &Piece, take: &mut TakeRows<'_>) {
        match (self.rows(stored, table, piece, Wanted::All), &self.pages) {
            (Err(ReadError::TooLarge { path, table: name }), Some(pages)) if piece.has_pages() => {
                match stored.smaller(pages, piece) {
                    Ok(parts) if parts.first() == Some(piece) => {
                        take(piece, Err(ReadError::TooLarge { path, table: name }));
                    }
                    Ok(parts) => parts.iter().for_each(|part| self.each(stored, table, part, take)),
                    Err(error) => take(piece, Err(error)),
                }
            }
            (rows, _) => take(piece, rows),
        }
    }

    /// Divides a table into pieces.
    fn pieces(&self, stored: &Stored, damage: &mut Damage) -> Result<Vec<Piece>, ReadError> {
        match &self.pages {
            Some(pages) if stored.is_plain() => {
                let (pieces, lost) = stored.page_pieces(pages);
                damage.add(lost);
                Ok(pieces)
            }
            // SQLite reads zeros beyond the end of the file and would return rows made of them.
            Some(_) if self.sql.is_torn() => {
                damage.add([format!("{} can only be read in a whole file", stored.name)]);
                Ok(Vec::new())
            }
            _ => {
                let (pieces, error) = self.sql.with(|conn| Ok(stored.key_pieces(conn)))?;
                damage.add(error.map(|error| format!("rows of {} are lost: {error}", stored.name)));
                Ok(pieces)
            }
        }
    }

    /// Reads the declaration of a table. If SQLite does not understand a part of the schema, the other declarations
    /// are still read.
    fn declaration(&self, entry: &Entry, names: Names<'_>, damage: &mut Damage) -> Result<Found, ReadError> {
        declaration(entry, names, |work| {
            let ask = || self.sql.with(|conn| work(conn).map_err(ReadError::schema(self.sql.path())));
            let found = match ask() {
                Err(ReadError::Schema { source, .. })
                    if source.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
                        && !self.sql.is_torn() =>
                {
                    damage.add([format!("the schema is damaged: {source}")]);
                    self.sql.tear();
                    ask()
                }
                found => found,
            };
            match found {
                Err(ReadError::Schema { source, .. }) if self.pages.is_some() => {
                    damage.add([format!("the declaration of {} cannot be read: {source}", entry.name)]);
                    Ok(Err("its declaration cannot be read"))
                }
                found => found,
            }
        })
    }

    /// Reads a table set: its metadata, the declarations of its tables, its nodes and processes.
    fn table_set(
        &self,
        suffix: String,
        tables: Vec<(String, &Entry)>,
        damage: &mut Damage,
    ) -> Result<StoredTableSet, ReadError> {
        let mut set = StoredTableSet::new(suffix);
        let (metadata, tables): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|(name, _)| name == crate::schema::METADATA);
        for (_, entry) in metadata {
            let (tags, warnings) = self.tags(entry, &set.suffix, damage)?;
            set.tags = tags;
            warnings.into_iter().for_each(|warning| set.warn(warning));
        }
        match tags::version(&set.tags) {
            Ok(Some(version)) => set.version = version,
            Ok(None) => set.warn("the metadata has no schema_version: read as 3.0.0".to_owned()),
            Err(version) => {
                return Err(ReadError::Version { path: self.sql.path().to_owned(), version });
            }
        }
        let guid = set.tags.get("guid").cloned();
        let mut declared = Vec::with_capacity(tables.len());
        for (name, entry) in tables {
            let names = Names { suffix: &set.suffix, guid: guid.as_deref() };
            match self.declaration(entry, names, damage)? {
                Ok(file) => declared.push(Declared { name, entry, file }),
                Err(why) => set.left_out.push(self.left_out(name, &entry.name, why)),
            }
        }
        // If the writer of the file was killed, the tables exist and the guid is only their default.
        let default = || declared.iter().find_map(|table| table.file.guid().map(str::to_owned));
        if let Some(guid) = guid.or_else(default) {
            set.guid = guid;
        }
        let (tables, schema, warnings, too_many) = table_set::describe_all(declared);
        (set.tables, set.schema) = (tables, schema);
        warnings.into_iter().for_each(|warning| set.warn(warning));
        for Declared { name, entry, .. } in too_many {
            set.left_out.push(self.left_out(name, &entry.name, "there are too many tables"));
        }
        for table in &mut set.tables {
            table.pieces = self.pieces(&table.stored, damage)?;
        }
        set.nodes = self.facts(&set, rocpd::INFO_NODE, process::nodes, damage);
        set.processes = self.facts(&set, rocpd::INFO_PROCESS, process::processes, damage);
        if set.nodes.len() == MAX_FACTS || set.processes.len() == MAX_FACTS {
            set.warn(format!("only {MAX_FACTS} nodes and processes are described"));
        }
        Ok(set)
    }

    /// Reads the metadata rows, and reports damage.
    fn tags(
        &self,
        entry: &Entry,
        suffix: &str,
        damage: &mut Damage,
    ) -> Result<(BTreeMap<String, String>, Vec<String>), ReadError> {
        let mut tags = BTreeMap::new();
        let file = match self.declaration(entry, Names { suffix, guid: None }, damage)? {
            Ok(file) => file,
            Err(why) => {
                damage.add([format!("{} is not read: {why}", entry.name)]);
                return Ok((tags, Vec::new()));
            }
        };
        let table = &*tags::METADATA;
        let found = describe(table.id, &table.name, Some(table), &file, &HashMap::new());
        let stored = Stored::new(entry, &file, &found.places);
        for piece in self.pieces(&stored, damage)? {
            self.each(&stored, &found.table, &piece, &mut |_, rows| match rows {
                Ok(rows) => tags::add(&mut tags, &rows),
                Err(error) => damage.add_error(&error),
            });
        }
        Ok((tags, found.warnings))
    }

    /// Reads the rows of a table and converts them to facts.
    fn facts<T, I: Iterator<Item = T>>(
        &self,
        set: &StoredTableSet,
        table: TableId,
        of: impl Fn(Rows<Local>) -> I,
        damage: &mut Damage,
    ) -> Vec<T> {
        let mut facts = Vec::new();
        let Some(table) = set.position(table).and_then(|at| set.tables.get(at)) else { return facts };
        for piece in &table.pieces {
            self.each(&table.stored, &table.table, piece, &mut |_, rows| match rows {
                Ok(rows) => facts.extend(of(rows).take(MAX_FACTS.saturating_sub(facts.len()))),
                Err(error) => damage.add_error(&error),
            });
        }
        facts.shrink_to_fit();
        facts
    }

    /// Lists tables with rows that belong to no table set. Counts the rows of at most [`MAX_OTHERS`] tables.
    fn others(&self, names: Vec<String>, why: &'static str) -> Vec<LeftOut> {
        let more = names.len().saturating_sub(MAX_OTHERS);
        let counted = names.into_iter().take(MAX_OTHERS).map(|name| self.left_out(name.clone(), &name, why));
        let mut others: Vec<_> = counted.filter(|other| other.rows != Some(0)).collect();
        if more > 0 {
            others.push(LeftOut { table: format!("(and {more} more)"), rows: None, why });
        }
        others
    }

    /// Describes a table that is not read, with the number of its rows.
    fn left_out(&self, name: String, in_file: &str, why: &'static str) -> LeftOut {
        let sql = format!("SELECT count(*) FROM {}", crate::connect::identifier(in_file));
        let rows = self.sql.with(|conn| {
            let rows = conn.query_row(&sql, [], |row| row.get::<_, i64>(0));
            rows.map_err(ReadError::schema(self.sql.path()))
        });
        LeftOut { table: name, rows: rows.ok().map(i64::cast_unsigned), why }
    }
}
