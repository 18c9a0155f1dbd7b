//! Makes rows of the inputs when they are read.

use super::{TakePieceRows, UnwrittenMerge};
use crate::input::PieceRef;
use crate::merge::{AgreedMerge, row_maker};
use crate::output::loaded_strings::LoadedStrings;
use crate::output::piece_rows::PieceRows;
use crate::output::written_rows::WrittenRows;
use rpd_console::Failure;
use rpd_rocpd::read::Database;
use rpd_run::{JoinedEvents, RowSource, RowUnit};
use rpd_shard::model::{Local, Rows, TableId, rocpd};

/// Callback that receives regions or samples of several pieces, with their events.
type TakeJoinedRows<'a> =
    dyn FnMut(usize, &Rows<Local>, Option<JoinedEvents<'_>>) -> Result<(), Failure> + 'a;

/// Returns the failure for inputs that vanished after the survey. A reader has used their rows already, so that nothing
/// restarts without them.
pub(super) fn without_restart(failure: Failure) -> Failure {
    match failure.into_vanished_inputs() {
        Ok(vanished) => {
            let names: Vec<String> = vanished.iter().map(|input| input.path.display().to_string()).collect();
            Failure::input(format!(
                "{} changed or vanished while it was read; report again",
                names.join(", ")
            ))
        }
        Err(failure) => failure,
    }
}

impl UnwrittenMerge {
    /// Makes the rows of pieces of a table.
    pub(super) fn make_pieces(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        take: &mut TakePieceRows<'_>,
    ) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        let maker = row_maker(&self.args, inputs, agreed);
        // Nothing is written, so that these counts are not needed.
        let mut uncounted = WrittenRows::default();
        let what = PieceRows::OfTable(table, wanted);
        self.each_piece(table, pieces, &mut |number, place, loaded| {
            maker.make(place, what, loaded, &mut uncounted, &mut |rows| take(number, &rows.into_stored()))
        })
    }

    /// Calls `make` for each of these pieces of a table, with its index in `pieces` and the strings of its input.
    fn each_piece(
        &self,
        table: TableId,
        pieces: &[usize],
        make: &mut dyn FnMut(usize, PieceRef, &LoadedStrings) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        let all = self.pieces.of(table);
        for (number, piece) in pieces.iter().enumerate() {
            let Some(place) = all.get(*piece).map(|found| found.place) else { continue };
            let opened = &inputs.surveys[place.input].input;
            let loaded = self.loaded.get(place.input, opened, &agreed.strings);
            loaded.and_then(|loaded| make(number, place, &loaded)).map_err(without_restart)?;
            let next = pieces.get(number + 1).and_then(|next| all.get(*next));
            if next.is_none_or(|next| next.place.input != place.input) {
                opened.release();
            }
        }
        Ok(())
    }
}

impl RowSource for UnwrittenMerge {
    fn failure(&self, problem: &str) -> Failure {
        Failure::input(format!("the inputs of run {}: {problem}", self.merge.plan.run_id))
    }

    fn tag(&self, name: &str) -> Option<&str> {
        self.tags.get(name).map(String::as_str)
    }

    fn database(&self) -> Option<&Database> {
        None
    }

    fn divide_pieces(&mut self, _units: usize) {}

    fn pieces(&self, table: TableId) -> usize {
        match table {
            rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS => 1,
            table => self.pieces.of(table).len(),
        }
    }

    fn row_count(&self, table: TableId, piece: usize) -> u64 {
        match table {
            rocpd::STRING => self.merge.agreed.strings.distinct,
            rocpd::INFO_NODE => self.merge.agreed.findings.nodes.nodes().len() as u64,
            rocpd::INFO_PROCESS => self.processes.len as u64,
            table => self.pieces.of(table).get(piece).map_or(0, |piece| piece.rows),
        }
    }

    fn first_id(&self, table: TableId, piece: usize) -> Result<i64, Failure> {
        Ok(match table {
            rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS => 1,
            table => self.pieces.of(table).get(piece).map_or(i64::MAX, |piece| piece.first_id),
        })
    }

    fn id_bounds(&self, table: TableId) -> Result<Option<(i64, i64)>, Failure> {
        Ok(match table {
            rocpd::STRING | rocpd::INFO_NODE => {
                i64::try_from(self.row_count(table, 0)).ok().map(|last| (1, last))
            }
            table => self.bounds.get(&table).copied(),
        })
    }

    /// The unit of a process is where the process is. Rows of no process are read by one rank only, with all inputs.
    fn has_unit(&self, unit: &RowUnit) -> bool {
        let is_own = |place: &u32| {
            let is_there = (*place as usize) < self.processes.len;
            is_there && self.own_processes.contains(&self.processes.keys.get(*place as usize))
        };
        if unit.is_unclaimed { !self.pieces.bounds().is_empty() } else { unit.processes.iter().any(is_own) }
    }

    fn read_pieces(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        take: &mut TakePieceRows<'_>,
    ) -> Result<(), Failure> {
        match table {
            rocpd::STRING if !pieces.is_empty() => return self.read_strings(take),
            rocpd::INFO_NODE if !pieces.is_empty() => {
                let nodes = self.merge.agreed.findings.nodes.rows();
                return nodes.map_or(Ok(()), |rows| take(0, &rows.into_stored()));
            }
            rocpd::INFO_PROCESS if !pieces.is_empty() => return take(0, &self.processes),
            _ => {}
        }
        self.make_pieces(table, pieces, wanted, take)
    }

    fn is_joined(&self, table: TableId, piece: usize) -> bool {
        self.pieces.of(table).get(piece).is_some_and(|piece| piece.is_native)
    }

    fn read_joined(
        &self,
        table: TableId,
        pieces: &[usize],
        wanted: &'static [&'static str],
        whole_events: bool,
        take: &mut TakeJoinedRows<'_>,
    ) -> Result<(), Failure> {
        let AgreedMerge { inputs, agreed, .. } = &self.merge;
        let maker = row_maker(&self.args, inputs, agreed);
        let mut uncounted = WrittenRows::default();
        let what = PieceRows::OfTable(table, wanted);
        self.each_piece(table, pieces, &mut |number, place, loaded| {
            let request = (table, wanted, whole_events);
            if maker.make_joined(place, request, loaded, &mut |rows, joined| {
                take(number, &rows.into_stored(), joined)
            })? {
                return Ok(());
            }
            maker.make(place, what, loaded, &mut uncounted, &mut |rows| {
                take(number, &rows.into_stored(), None)
            })
        })
    }
}
