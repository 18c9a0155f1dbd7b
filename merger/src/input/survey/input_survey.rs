//! Result of the survey of one input.

use crate::input::survey::{CommandExits, ProcessCrash, ProfilerLosses};
use crate::input::{BuiltinString, InputSource, JobSchema, OpenInput, SetStrings};
use crate::strings::{StringHash, hash};
use rpd_console::Failure;
use rpd_rocpd::read::ReadError;
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{TableId, native, rocpd};
use rpd_shard::record::{Loss, LossCause};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

/// An input after its survey.
#[derive(Debug, Default)]
pub(crate) struct InputSurvey {
    /// The input, with its file closed.
    pub input: OpenInput,
    /// For each string table, position and hash of each string, followed by the builtin strings in use. Texts are
    /// read again when they are written, because a job has many inputs with the same strings.
    pub hashes: Vec<Vec<(u32, StringHash)>>,
    /// For each string table, the properties that a table set needs; only for the partitioned layout.
    pub set_strings: Vec<SetStrings>,
    /// Sources, in output order.
    pub sources: Vec<InputSource>,
    /// Missing rows: those that the collector recorded as lost, and those that the survey found missing.
    pub losses: Vec<Loss>,
    /// Rows read, per table of the input.
    pub rows_read: BTreeMap<TableId, u64>,
    /// Whether a string is the name of a function of MPI.
    pub names_mpi: bool,
    /// One line per damaged place.
    pub warnings: Vec<String>,
    /// Processes that died by a signal, and ranks that failed.
    pub deaths: Vec<ProcessCrash>,
    /// How the command of a shard ended.
    pub commands: CommandExits,
    /// Profilers with missing rows.
    pub profiler_losses: ProfilerLosses,
    /// Bytes of text that the shard's rows have in the output, per table. Cleared after they were added to the
    /// planned size.
    pub texts: BTreeMap<TableId, u64>,
}

impl InputSurvey {
    pub(super) fn lose(&mut self, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.losses.push(Loss { source: 0, table, cause, rows });
    }

    /// Records rows that cannot be read as a loss, with a warning if `warns`.
    pub(super) fn lose_to(&mut self, table: TableId, error: &ReadError, warns: bool) {
        if warns {
            self.warn(error);
        }
        let rows = if let ReadError::LastId { rows, .. } = error { Some(*rows) } else { None };
        self.lose(Some(table), LossCause::DamagedBlock, rows);
    }

    /// Returns whether a text is the name of a function of MPI.
    pub(super) fn is_mpi_function(text: &[u8]) -> bool {
        text.strip_prefix(b"P").unwrap_or(text).starts_with(b"MPI_")
    }

    /// Returns the maximum number of calls to MPI: those that `rpd`'s own library recorded, and the regions of a file
    /// that names functions of MPI.
    pub(crate) fn mpi_calls(&self) -> u64 {
        let rows = |table| self.rows_read.get(&table).copied().unwrap_or(0);
        let regions = if self.names_mpi { rows(rocpd::REGION) } else { 0 };
        rows(native::MPI_CALL).saturating_add(regions)
    }

    /// Adds a warning about unreadable data. A cut file has a warning already.
    pub(super) fn warn(&mut self, error: &ReadError) {
        if matches!(error, ReadError::Cut { .. }) {
            return;
        }
        let cause = error.source().map_or(String::new(), |source| format!(" ({source})"));
        self.warnings.push(format!("{error}{cause}"));
    }
}

/// Returns the hashes of the builtin strings in use. They follow the strings of their table.
pub(super) fn hashes_of_builtins(
    builtins: &BTreeSet<BuiltinString>,
) -> impl Iterator<Item = (u32, StringHash)> + '_ {
    builtins.iter().map(|builtin| (builtin.index(), hash(builtin.text().as_bytes())))
}

/// Returns the position and hash of each string of a shard, followed by the builtin strings in use.
pub(super) fn string_hashes(
    strings: &ShardStrings,
    builtin: &BTreeSet<BuiltinString>,
) -> Vec<(u32, StringHash)> {
    let own = strings.iter().map(|(id, text)| ((id - 1) as u32, hash(text)));
    own.chain(hashes_of_builtins(builtin)).collect()
}

/// Keeps the first warnings of an input and counts the others.
pub(super) fn shorten(warnings: &mut Vec<String>, most: usize, path: &Path) {
    if warnings.len() > most {
        let more = warnings.len() - most;
        warnings.truncate(most);
        warnings.push(format!("{}: {more} more such lines", path.display()));
    }
}

/// Adds the known row counts of the vanished inputs to a failure.
pub(crate) fn with_lost_rows(failure: Failure, surveys: &[InputSurvey], schema: &JobSchema) -> Failure {
    let mut all = match failure.into_vanished_inputs() {
        Ok(all) => all,
        Err(failure) => return failure,
    };
    for input in &mut all {
        let survey = surveys.iter().find(|survey| survey.input.path() == input.path);
        input.rows = survey.map(|survey| {
            let rows = survey.rows_read.iter().filter(|(_, rows)| **rows > 0);
            rows.map(|(table, rows)| (schema.name(*table).into_owned(), *rows)).collect()
        });
    }
    Failure::inputs_vanished(all)
}
