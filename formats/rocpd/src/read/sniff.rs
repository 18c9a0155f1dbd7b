//! What a file is, by its header and the names of its tables.

use super::error::ReadError;
use super::quiet;
use std::path::Path;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A database with tables of RocPD.
    RocPd,
    /// A legacy `.rpd`.
    LegacyRpd,
    /// A database of something else.
    OtherDatabase,
    /// A database whose schema cannot be read.
    DamagedDatabase,
    /// No bytes.
    Empty,
    /// No database.
    NotADatabase,
    /// A file that is not there, or may not be read.
    Unreadable,
}

/// Looks into a file, but not at its rows. A journal beside it does not matter here.
pub fn sniff(path: &Path) -> FileKind {
    let header = match quiet::header(path) {
        Ok(header) => header,
        Err(ReadError::Empty(_)) => return FileKind::Empty,
        Err(ReadError::NotADatabase(_)) => return FileKind::NotADatabase,
        Err(_) => return FileKind::Unreadable,
    };
    let kind = |torn: bool| -> rusqlite::Result<FileKind> {
        let conn = quiet::connect(path, torn)?;
        // An event table of each format.
        let sql = "SELECT coalesce(max(name = 'rocpd_api'), 0),
                coalesce(max(name LIKE 'rocpd\\_metadata\\__%' ESCAPE '\\'
                    OR name LIKE 'rocpd\\_info\\_process\\__%' ESCAPE '\\'), 0)
            FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd\\_%' ESCAPE '\\'";
        conn.query_row(sql, [], |row| {
            Ok(match (row.get(0)?, row.get(1)?) {
                (true, _) => FileKind::LegacyRpd,
                (_, true) => FileKind::RocPd,
                _ => FileKind::OtherDatabase,
            })
        })
    };
    kind(header.is_truncated()).or_else(|_| kind(true)).unwrap_or(FileKind::DamagedDatabase)
}
