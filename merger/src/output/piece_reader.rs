//! Reads the pieces of this rank's inputs once each.

use super::block_rows::TakeMergedRows;
use super::loaded_strings::LoadedStrings;
use super::piece_rows::PieceRows;
use super::rows::RowMaker;
use super::written_rows::WrittenRows;
use crate::input::survey::with_lost_rows;
use crate::input::{InputSource, PieceRef, SourcePiece};
use rpd_console::Failure;
use rpd_shard::model::{Kind, rocpd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes the merged rows of pieces that are read once each. Threads share it.
#[derive(Debug)]
pub(crate) struct PieceReader<'a> {
    maker: RowMaker<'a>,
    loaded: Vec<Mutex<Option<Arc<LoadedStrings>>>>,
    /// Pieces of each input that were not read yet.
    left: Vec<AtomicUsize>,
}

impl<'a> PieceReader<'a> {
    /// Creates a reader of the pieces that [`PieceReader::expect`] announces.
    pub(crate) fn new(maker: RowMaker<'a>) -> PieceReader<'a> {
        PieceReader {
            maker,
            loaded: maker.surveys.iter().map(|_| Mutex::default()).collect(),
            left: maker.surveys.iter().map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Announces the pieces that will be read, each exactly once.
    pub(crate) fn expect<'p>(&self, parts: impl Iterator<Item = &'p PieceRef>) {
        self.left.iter().for_each(|left| left.store(0, Ordering::Release));
        for part in parts {
            self.left[part.input].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Passes rows of a piece to `take`, table by table; ids other than those of processes ascend. Returns the length
    /// of the input if this was its last piece.
    pub(crate) fn rows(
        &self,
        part: PieceRef,
        what: PieceRows,
        written: &mut WrittenRows,
        take: &mut TakeMergedRows<'_>,
    ) -> Result<u64, Failure> {
        let made = self.make(part, what, written, take);
        made.map_err(|failure| with_lost_rows(failure, self.maker.surveys, self.maker.job.schema))
    }

    fn make(
        &self,
        part: PieceRef,
        what: PieceRows,
        written: &mut WrittenRows,
        take: &mut TakeMergedRows<'_>,
    ) -> Result<u64, Failure> {
        let survey = &self.maker.surveys[part.input];
        let source = &survey.sources[part.source];
        let piece = &source.pieces[part.piece];
        let is_other = what == PieceRows::Others;
        if is_other && !matches!(piece, SourcePiece::Tail) && survey.input.has_processes(source, piece) {
            return Ok(self.done(part.input));
        }
        let loaded = match what {
            PieceRows::Processes if !needs_strings_for_processes(source) => Arc::default(),
            _ => self.load(part.input)?,
        };
        self.maker.make(part, what, &loaded, written, take)?;
        Ok(self.done(part.input))
    }

    fn load(&self, input: usize) -> Result<Arc<LoadedStrings>, Failure> {
        let mut slot = self.loaded[input].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*slot {
            return Ok(loaded.clone());
        }
        let loaded = LoadedStrings::of(&self.maker.surveys[input].input, self.maker.strings)?;
        Ok(slot.insert(Arc::new(loaded)).clone())
    }

    /// Counts a piece as read. After the last one, closes the input and drops its strings.
    fn done(&self, input: usize) -> u64 {
        if self.left[input].fetch_sub(1, Ordering::AcqRel) > 1 {
            return 0;
        }
        *self.loaded[input].lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.maker.surveys[input].input.release();
        self.maker.surveys[input].input.bytes()
    }
}

/// Returns whether the process rows of a source need its strings.
fn needs_strings_for_processes(source: &InputSource) -> bool {
    let table = source.tables.get(&rocpd::INFO_PROCESS);
    table.is_some_and(|table| table.columns.iter().any(|column| column.kind == Kind::Str))
}
