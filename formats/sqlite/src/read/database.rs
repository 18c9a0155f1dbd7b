//! The database file, its header, and the check for journals beside it.

use super::error::{OpenError, PageError, PageProblem};
use super::file::QuietFile;
use crate::format::{HEADER, MAGIC, at, u16_at, u32_at};
use rpd_files::{EntryKind, EntryStat, beside, entry_stat, read_head};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Number of bytes at the start of a journal that SQLite zeroes after a completed transaction.
const JOURNAL_HEADER: u64 = 28;
/// Fewest usable bytes per page that SQLite accepts.
const MIN_USABLE_BYTES: usize = 480;

/// A database that no process writes. Any number of threads can read it at the same time.
#[derive(Debug)]
pub struct PageDatabase {
    pub(super) file: QuietFile,
    /// Page size in bytes.
    pub(super) page_size: usize,
    /// Usable bytes of a page: the page size without the reserved bytes.
    pub(super) usable: usize,
    /// Number of pages that can be read.
    pages: u32,
    /// Number of further pages that the header declares but the file does not contain.
    truncated: u32,
}

impl PageDatabase {
    /// Opens a database without creating or changing any file. If `path` is a symbolic link, looks for journals
    /// beside its target, as SQLite does.
    pub fn open(path: &Path) -> Result<PageDatabase, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        let found = entry_stat(path).map_err(failed)?;
        if found.kind != EntryKind::File {
            return Err(OpenError::NoFile { path: path.to_owned() });
        }
        if found.length == 0 {
            return Err(OpenError::Empty { path: path.to_owned() });
        }
        let file = QuietFile::open(Arc::from(path)).map_err(failed)?;
        let mut header = [0; HEADER];
        match file.read(&mut header, 0) {
            Ok(()) => {}
            Err(PageProblem::Io(source)) => return Err(failed(source)),
            Err(_) => return Err(OpenError::NotADatabase { path: path.to_owned() }),
        }
        if header[..MAGIC.len()] != *MAGIC {
            return Err(OpenError::NotADatabase { path: path.to_owned() });
        }
        nothing_beside(path)?;
        PageDatabase::with_header(file, &header)
    }

    fn with_header(file: QuietFile, header: &[u8; HEADER]) -> Result<PageDatabase, OpenError> {
        let number = |offset| u32_at(header, offset).unwrap_or(0);
        let path = || file.path().to_path_buf();
        let page_size = match u16_at(header, at::PAGE_SIZE) {
            Some(1) => 65_536,
            Some(size) if size >= 512 && size.is_power_of_two() => usize::from(size),
            _ => return Err(OpenError::Header { path: path(), problem: "its page size is not one" }),
        };
        let usable = page_size - usize::from(header[at::RESERVED]);
        if usable < MIN_USABLE_BYTES {
            return Err(OpenError::Header { path: path(), problem: "its pages have no room" });
        }
        if !matches!(header[at::READ_VERSION], 1 | 2) {
            return Err(OpenError::Unsupported { path: path(), what: "a newer file format" });
        }
        if !matches!(number(at::ENCODING), 0 | 1) {
            return Err(OpenError::Unsupported { path: path(), what: "text in UTF-16" });
        }
        let in_file = u32::try_from(file.len() / page_size as u64).unwrap_or(u32::MAX);
        let promised = match number(at::PAGES) {
            pages if pages != 0 && number(at::CHANGES) == number(at::VALID_FOR) => pages,
            _ => in_file,
        };
        let (pages, truncated) = (promised.min(in_file), promised.saturating_sub(in_file));
        Ok(PageDatabase { file, page_size, usable, pages, truncated })
    }

    /// Path that the database was opened with.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Number of readable pages of the file.
    pub fn page_count(&self) -> u32 {
        self.pages
    }

    /// Page size in bytes.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Number of pages that the header declares and that are missing at the end of the file.
    pub fn truncated_pages(&self) -> u32 {
        self.truncated
    }

    /// Closes the file. The next read opens it again, and fails if the file was changed or replaced.
    pub fn release(&self) {
        self.file.release();
    }

    /// Fills `out` with the bytes from the start of `page` on.
    pub(super) fn read_from(&self, page: u32, out: &mut [u8]) -> Result<(), PageError> {
        if page == 0 || page > self.pages {
            return Err(self.error(page, PageProblem::Missing));
        }
        let offset = u64::from(page - 1) * self.page_size as u64;
        self.file.read(out, offset).map_err(|problem| self.error(page, problem))
    }

    pub(super) fn error(&self, page: u32, problem: PageProblem) -> PageError {
        PageError { path: self.file.path().clone(), page, problem }
    }
}

/// Fails if a journal or write-ahead log beside the file shows that the file is incomplete.
fn nothing_beside(path: &Path) -> Result<(), OpenError> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (journal, wal) = (beside(&real, "-journal"), beside(&real, "-wal"));
    let path = path.to_owned();
    match is_hot(&journal) {
        Ok(false) => {}
        Ok(true) => return Err(OpenError::HotJournal { path, journal }),
        Err(source) => return Err(OpenError::Journal { path, journal, source }),
    }
    match stat_if_there(&wal) {
        Ok(Some(found)) if found.length > 0 => Err(OpenError::Wal { path, wal }),
        Ok(_) => Ok(()),
        Err(source) => Err(OpenError::Journal { path, journal: wal, source }),
    }
}

/// Returns type, size and times of a directory entry; `None` if it does not exist.
fn stat_if_there(path: &Path) -> io::Result<Option<EntryStat>> {
    match entry_stat(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns whether a journal is not empty and its header was not zeroed.
fn is_hot(journal: &Path) -> io::Result<bool> {
    if stat_if_there(journal)?.is_none_or(|found| found.kind != EntryKind::File) {
        return Ok(false);
    }
    Ok(read_head(journal, JOURNAL_HEADER)?.iter().any(|byte| *byte != 0))
}
