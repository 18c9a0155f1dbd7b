//! An open file.

use super::catalog::{self, Entry};
use super::connections::Connections;
use super::error::ReadError;
use super::piece::{Piece, Place};
use super::space::{self, Declared, LeftOut, Space};
use super::{process, quiet, tags};
use rpd_shard::model::{Local, Rows, Schema, TableId, rocpd};
use rusqlite::Connection;
use std::path::Path;

/// Most uuids in a file. AMD's merge stops at 500.
const MAX_SPACES: usize = 4096;
/// Most processes, and most nodes, of a space that are told about.
const MAX_FACTS: usize = 1 << 20;

/// Which columns are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those that hold ids: `Ref`, `Str` and `Stack`. The others are `Cells::Absent`.
    Links,
}

/// A RocPD database that is only read, by any number of threads at once.
#[derive(Debug)]
pub struct Database {
    sql: Connections,
    spaces: Vec<Space>,
    damage: Vec<String>,
}

impl Database {
    /// Opens a database: reads its schema, metadata, nodes and processes, but no events.
    pub fn open(path: &Path) -> Result<Database, ReadError> {
        let header = quiet::header(path)?;
        quiet::check_quiet(path)?;
        let mut damage = Vec::new();
        if let Some(expected) = header.expected.filter(|expected| header.bytes < *expected) {
            let bytes = header.bytes;
            damage.push(format!("the file ends at byte {bytes} instead of {expected}: rows are missing"));
        }
        let mut sql = Connections::new(path, header.bytes, header.is_truncated());
        let mut entries = sql.with(|conn| catalog::entries(conn, path));
        if let Err(ReadError::Schema { source, .. }) = &entries
            && source.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt)
            && !header.is_truncated()
        {
            // A part of the schema that SQLite does not understand need not keep it from the rest.
            damage.push(format!("the schema is damaged: {source}"));
            sql = Connections::new(path, header.bytes, true);
            entries = sql.with(|conn| catalog::entries(conn, path));
        }
        let entries = entries?;
        if entries.iter().any(|entry| entry.name == "rocpd_api") {
            return Err(ReadError::LegacyRpd(path.to_owned()));
        }
        let groups = space::group(&entries);
        if groups.is_empty() {
            return Err(ReadError::NotRocPd(path.to_owned()));
        }
        if groups.len() > MAX_SPACES {
            return Err(ReadError::TooMany { path: path.to_owned(), what: "uuids", limit: MAX_SPACES });
        }
        let mut database = Database { sql, spaces: Vec::new(), damage };
        for (suffix, tables) in groups {
            let space =
                database.sql.with(|conn| read_space(conn, path, suffix, tables, &mut database.damage))?;
            database.spaces.push(space);
        }
        database.read_facts();
        Ok(database)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.sql.path()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.sql.bytes()
    }

    /// Closes the file until rows are asked for again.
    pub fn release(&self) {
        self.sql.release();
    }

    /// The uuids of the file, in the order of their suffixes.
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// What is known to be lost, one line each.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// Whether rows are decoded from the pages of the file, and not by SQLite.
    pub fn is_fast(&self) -> bool {
        false
    }

    /// The rows of a piece, keys ascending; columns in the order of the description of the table.
    ///
    /// A column that the file does not have is absent and means its default. One that is not
    /// `wanted` is absent as well.
    pub fn rows(
        &self,
        space: usize,
        table: usize,
        piece: &Piece,
        wanted: Wanted,
    ) -> Result<Rows<Local>, ReadError> {
        let table = &self.spaces[space].tables[table];
        match &piece.place {
            Place::Keys { first, last } => self
                .sql
                .with(|conn| table.stored.rows(conn, self.path(), &table.table, (*first, *last), wanted)),
            Place::Pages(_) => Err(ReadError::NotRocPd(self.path().to_owned())),
        }
    }

    /// Reads the nodes and processes of all spaces.
    fn read_facts(&mut self) {
        for at in 0..self.spaces.len() {
            let (nodes, node_damage) = self.facts(at, rocpd::INFO_NODE, process::nodes);
            let (processes, process_damage) = self.facts(at, rocpd::INFO_PROCESS, process::processes);
            self.damage.extend([node_damage, process_damage].into_iter().flatten());
            let space = &mut self.spaces[at];
            if nodes.len() == MAX_FACTS || processes.len() == MAX_FACTS {
                space.warn(format!("only {MAX_FACTS} nodes and processes are told about"));
            }
            (space.nodes, space.processes) = (nodes, processes);
        }
    }

    /// The facts in the rows of a table, and what is damaged there.
    fn facts<T, I: Iterator<Item = T>>(
        &self,
        space: usize,
        table: TableId,
        of: impl Fn(Rows<Local>) -> I,
    ) -> (Vec<T>, Option<String>) {
        let mut facts = Vec::new();
        let mut damage = None;
        let Some(at) = self.spaces[space].position(table) else { return (facts, damage) };
        for piece in &self.spaces[space].tables[at].pieces {
            match self.rows(space, at, piece, Wanted::All) {
                Ok(rows) => facts.extend(of(rows).take(MAX_FACTS.saturating_sub(facts.len()))),
                Err(error) => damage = Some(error.to_string()),
            }
        }
        (facts, damage)
    }
}

/// Reads the metadata of a space and the declarations of its tables, and divides them into pieces.
fn read_space(
    conn: &Connection,
    path: &Path,
    suffix: String,
    tables: Vec<(String, &Entry)>,
    damage: &mut Vec<String>,
) -> Result<Space, ReadError> {
    let mut space = Space {
        guid: suffix.trim_start_matches('_').to_owned(),
        version: [3, 0, 0],
        suffix,
        tags: Default::default(),
        tables: Vec::new(),
        schema: Schema::builtin().clone(),
        nodes: Vec::new(),
        processes: Vec::new(),
        left_out: Vec::new(),
        warnings: Vec::new(),
    };
    let mut declared = Vec::with_capacity(tables.len());
    for (name, entry) in tables {
        if name == crate::schema::METADATA {
            match tags::read(conn, &entry.name) {
                Ok(tags) => space.tags = tags,
                Err(error) => space.warn(format!("the metadata cannot be read: {error}")),
            }
            continue;
        }
        match catalog::declaration(conn, entry) {
            Ok(Ok(file)) => declared.push(Declared { name, entry, file }),
            Ok(Err(why)) => leave_out(&mut space, conn, name, entry, why),
            Err(error) => {
                space.warn(format!("the declaration of {} cannot be read: {error}", entry.name));
                leave_out(&mut space, conn, name, entry, "its declaration cannot be read");
            }
        }
    }
    match tags::version(&space.tags) {
        Ok(Some(version)) => space.version = version,
        Ok(None) => space.warn("the metadata has no schema_version: read as 3.0.0".to_owned()),
        Err(version) => return Err(ReadError::Version { path: path.to_owned(), version }),
    }
    let stated = space.tags.get("guid").cloned();
    // A file whose writer was killed has the tables, and the guid only as their default.
    let default = || declared.iter().find_map(|table| table.file.guid.clone());
    space.guid = stated.or_else(default).unwrap_or_else(|| space.guid.clone());

    let (tables, schema, warnings, too_many) = space::describe_all(declared);
    (space.tables, space.schema) = (tables, schema);
    warnings.into_iter().for_each(|warning| space.warn(warning));
    for Declared { name, entry, .. } in too_many {
        leave_out(&mut space, conn, name, entry, "there are too many tables");
    }
    for table in &mut space.tables {
        let (pieces, error) = table.stored.pieces(conn);
        table.pieces = pieces;
        damage.extend(
            error.map(|error| format!("{} is damaged, rows are missing: {error}", table.stored.name)),
        );
    }
    Ok(space)
}

fn leave_out(space: &mut Space, conn: &Connection, name: String, entry: &Entry, why: &'static str) {
    let sql = format!("SELECT count(*) FROM {}", crate::connect::identifier(&entry.name));
    let rows = conn.query_row(&sql, [], |row| row.get::<_, i64>(0)).ok().map(i64::cast_unsigned);
    space.left_out.push(LeftOut { table: name, rows, why });
}
