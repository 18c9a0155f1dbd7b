//! The file of calls beside a merged database, from which they are read without the rows of the database.
//!
//! It has the calls of each unit of rows before they are joined to those of the run, so that a merge writes it
//! without holding the calls of all ranks.
//!
//! ```text
//! 0       8   "RPDCALLS"
//! 8       4   format number, little endian, as all numbers here
//! 12     16   hash of the state of the database
//! 28      8   number of units
//! 36          each unit: stored bytes (8), decoded bytes (8), a zstd frame with checksum of bincode
//! ```

mod read;
mod write;

use rpd_console::Failure;
use rpd_files::{beside, open_input};
use rpd_rocpd::read::{Database, StoredTableSet};
use rpd_run::RunDatabase;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;
use twox_hash::XxHash3_128;

/// First bytes of the file.
const MAGIC: &[u8; 8] = b"RPDCALLS";
/// Number of the format. A change of what is stored, or of how it is found in rows, needs a new one.
const FORMAT: u32 = 10;
/// Length of what is before the units.
const HEADER_BYTES: u64 = 36;
/// Length of what is before each unit.
const UNIT_HEADER_BYTES: u64 = 16;
/// Maximum decoded bytes beside those that are in proportion to the database.
const MIN_DECODED_BYTES: u64 = 1 << 20;
/// Length of the beginning of the database that shows its state: SQLite counts changes there.
const STATE_BYTES: u64 = 4096;

/// Why a file of calls is not used.
#[derive(Debug, Error)]
pub enum CallFileError {
    /// It cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else, or of another version of rpd.
    #[error("it is not a file of calls of this version of rpd")]
    OtherFormat,
    /// The owner of the database did not write it.
    #[error("it does not belong to the owner of the database")]
    OtherOwner,
    /// It has the calls of another database, or of another state of this one.
    #[error("it does not have the calls of the database in its present state")]
    OtherDatabase,
    /// The rows of the database to which the calls refer cannot be read.
    #[error(transparent)]
    Database(#[from] Failure),
    /// Its calls do not fit one another or the database.
    #[error("its calls do not fit the database ({0})")]
    Contradicting(String),
    /// Its content cannot be decoded.
    #[error("it is damaged at byte {offset}: {problem}")]
    Damaged {
        /// Where the unit begins.
        offset: u64,
        /// The error of decoding, or the contradiction.
        problem: String,
    },
}

/// A file with the calls of a database, open for reading.
#[derive(Debug)]
pub struct CallFile {
    file: File,
    /// Offset of each unit, its stored and its decoded bytes.
    units: Vec<(u64, usize, usize)>,
}

impl CallFile {
    /// Returns the place of the calls of a database: `trace.calls` beside `trace.db`, `NAME.calls` beside any other name.
    pub fn place(database: &Path) -> PathBuf {
        match database.extension().is_some_and(|extension| extension == "db") {
            true => database.with_extension("calls"),
            false => beside(database, ".calls"),
        }
    }

    /// Returns whether a file begins as a file of calls of any version.
    pub fn is_one(path: &Path) -> bool {
        let mut magic = [0; MAGIC.len()];
        open_input(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *MAGIC
    }

    /// Returns whether a file has the calls of a database in its present state.
    pub fn belongs_to(path: &Path, database: &Path) -> bool {
        let belongs = || -> io::Result<bool> {
            let mut header = [0; HEADER_BYTES as usize];
            open_input(path)?.read_exact(&mut header)?;
            let opened = Database::open(database).map_err(io::Error::other)?;
            let state = database_state(&open_input(database)?, opened.table_sets())?;
            Ok(header.starts_with(MAGIC) && header[12..28] == state.to_le_bytes())
        };
        belongs().unwrap_or(false)
    }

    /// Opens the calls of a run. Returns `None` if there is no such file.
    ///
    /// # Errors
    /// If the file does not have the calls of this run.
    pub fn open(path: &Path, run: &RunDatabase) -> Result<Option<CallFile>, CallFileError> {
        let file = match open_input(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let found = file.metadata()?;
        let mut header = [0; HEADER_BYTES as usize];
        let is_whole = file.read_exact_at(&mut header, 0).is_ok();
        let mut fields = header.as_slice();
        let format = (take::<8>(&mut fields), u32::from_le_bytes(take(&mut fields)));
        if !is_whole || format != (*MAGIC, FORMAT) {
            return Err(CallFileError::OtherFormat);
        }
        let stored = run.tables.database().ok_or(CallFileError::OtherDatabase)?;
        let database = open_input(stored.path())?;
        if database.metadata()?.uid() != found.uid() {
            return Err(CallFileError::OtherOwner);
        }
        let state = u128::from_le_bytes(take(&mut fields));
        let count = u64::from_le_bytes(take(&mut fields));
        if state != database_state(&database, stored.table_sets())? || count != run.units.len() as u64 {
            return Err(CallFileError::OtherDatabase);
        }
        let units = unit_places(&file, found.len(), stored.bytes(), run)?;
        Ok(Some(CallFile { file, units }))
    }
}

/// Finds the units of a file. They must decode to less than half of the bytes of the database, in which a call takes ten
/// times as many.
fn unit_places(
    file: &File,
    file_bytes: u64,
    database_bytes: u64,
    run: &RunDatabase,
) -> Result<Vec<(u64, usize, usize)>, CallFileError> {
    let max_decoded = MIN_DECODED_BYTES.saturating_add(database_bytes / 2);
    let damaged = |offset, problem: &str| CallFileError::Damaged { offset, problem: problem.to_owned() };
    let (mut offset, mut all_decoded) = (HEADER_BYTES, 0u64);
    let mut units = Vec::with_capacity(run.units.len());
    for _ in &run.units {
        let mut header = [0; UNIT_HEADER_BYTES as usize];
        file.read_exact_at(&mut header, offset).map_err(|_| damaged(offset, "it ends there"))?;
        let mut fields = header.as_slice();
        let [stored, decoded] = [(); 2].map(|()| u64::from_le_bytes(take(&mut fields)));
        let begin = offset + UNIT_HEADER_BYTES;
        let end = begin.checked_add(stored).filter(|end| *end <= file_bytes);
        all_decoded = all_decoded.saturating_add(decoded);
        let (Some(end), true) = (end, all_decoded <= max_decoded) else {
            return Err(damaged(offset, "it is longer than the file or the database"));
        };
        let lengths = usize::try_from(stored).ok().zip(usize::try_from(decoded).ok());
        let (stored, decoded) = lengths.ok_or_else(|| damaged(offset, "it does not fit into memory"))?;
        units.push((begin, stored, decoded));
        offset = end;
    }
    if offset != file_bytes {
        return Err(damaged(offset, "it goes on after its last unit"));
    }
    Ok(units)
}

/// Returns a hash of the state of a database: its length, the page that SQLite writes with each change, and the
/// metadata.
fn database_state(database: &File, sets: &[StoredTableSet]) -> io::Result<u128> {
    let bytes = database.metadata()?.len();
    let mut state = bytes.to_le_bytes().to_vec();
    let mut page = vec![0; STATE_BYTES.min(bytes) as usize];
    database.read_exact_at(&mut page, 0)?;
    state.extend(page);
    for (name, value) in sets.iter().flat_map(|set| &set.tags) {
        for text in [name, value] {
            state.extend((text.len() as u64).to_le_bytes());
            state.extend_from_slice(text.as_bytes());
        }
    }
    Ok(XxHash3_128::oneshot(&state))
}

/// Takes the first bytes of a slice that has as many.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().unwrap_or((&[0; N], &[]));
    *bytes = rest;
    *first
}
