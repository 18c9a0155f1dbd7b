//! Reads the calls of collectives, with the args that identify them.

use crate::input::ReportRun;
use crate::rows::{NameNumber, TimedRow, TimedRows, TimedTable};
use rayon::prelude::*;
use rpd_collectives::CollectiveFunction;
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_run::RowUnit;
use rpd_shard::model::{Cells, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum length of the name of a communicator. Longer ones are not read, as each call has a copy while it is read.
const MAX_NAME: usize = 4096;

/// A call of a collective. 64 bytes are kept of each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CollectiveCall {
    pub(super) function: CollectiveFunction,
    /// Place of its process in the run.
    pub(super) process: u32,
    /// Start and end, ns in job time.
    pub(super) start: i64,
    pub(super) end: i64,
    event: i64,
    /// Place in [`CollectiveCalls::communicators`].
    pub(super) communicator: Option<u32>,
    /// Number of the call among those of its process on the communicator.
    pub(super) seq: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// All calls of collectives, in the order of units and of their events.
#[derive(Debug, Default)]
pub(super) struct CollectiveCalls {
    pub(super) calls: Vec<CollectiveCall>,
    /// Distinct names of communicators.
    pub(super) communicators: Vec<String>,
    /// Whether calls were left out because only their args name the function.
    pub(super) has_unnamed_functions: bool,
}

/// An arg of a call.
#[derive(Debug, Serialize, Deserialize)]
enum CallArg {
    Communicator(String),
    Seq(u64),
    Bytes(u64),
}

/// The calls of a unit.
#[derive(Debug, Default, Serialize, Deserialize)]
struct UnitCalls {
    /// Position of the unit in the run.
    place: usize,
    calls: Vec<CollectiveCall>,
    has_unnamed_functions: bool,
    /// Args of the calls, by the places of these.
    args: Vec<(usize, CallArg)>,
}

#[derive(Debug, Default)]
struct FoundCalls {
    calls: Vec<CollectiveCall>,
    functions: HashMap<NameNumber, Option<CollectiveFunction>>,
    has_unnamed_functions: bool,
}

/// Reads the calls of the selected part of a run.
pub(super) fn read_calls(run: &ReportRun, comm: &dyn Comm) -> Result<CollectiveCalls, Failure> {
    let rows = TimedRows::new(run);
    let read_one = |place, unit: &RowUnit| Ok(vec![UnitCalls { place, ..read_unit(&rows, unit)? }]);
    let mut read: Vec<UnitCalls> = rows.fold_units(comm, read_one, |mut all, others| {
        all.extend(others);
        all
    })?;
    read.sort_by_key(|unit| unit.place);
    let mut all = CollectiveCalls::default();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    for UnitCalls { calls, has_unnamed_functions, args, .. } in read {
        let first = all.calls.len();
        all.calls.extend(calls);
        all.has_unnamed_functions |= has_unnamed_functions;
        for (place, arg) in args {
            let Some(call) = all.calls.get_mut(first + place) else { continue };
            match arg {
                CallArg::Seq(seq) => call.seq = Some(seq),
                CallArg::Bytes(bytes) => call.bytes = Some(bytes),
                CallArg::Communicator(name) => {
                    let number = numbers.get(&name).copied().unwrap_or_else(|| {
                        let number = all.communicators.len() as u32;
                        all.communicators.push(name.clone());
                        numbers.insert(name, number);
                        number
                    });
                    call.communicator = Some(number);
                }
            }
        }
    }
    Ok(all)
}

fn read_unit(rows: &TimedRows<'_>, unit: &RowUnit) -> Result<UnitCalls, Failure> {
    let take = |found: &mut FoundCalls, row: TimedRow| found.add(rows, row);
    let mut found =
        rows.fold_unit(unit, &[TimedTable::Region], FoundCalls::default, take, FoundCalls::join)?;
    found.calls.sort_by_key(|call| call.event);
    let (source, ids) = (&rows.run.database.tables, unit.ids(rocpd::ARG));
    let read_piece = |piece: usize| -> Result<Vec<(usize, CallArg)>, Failure> {
        let mut args = Vec::new();
        source.read_pieces(
            rocpd::ARG,
            &[piece],
            ids,
            &["event_id", "name", "value"],
            &mut |_, rows, places| {
                let [events, names, values] = ["event_id", "name", "value"].map(|column| rows.column(column));
                for i in places {
                    let Some(arg) = call_arg(names, values, i) else { continue };
                    let Some(event) = events.int(i) else { continue };
                    if let Ok(place) = found.calls.binary_search_by_key(&event, |call| call.event) {
                        args.push((place, arg));
                    }
                }
                Ok(())
            },
        )?;
        Ok(args)
    };
    let pieces = if found.calls.is_empty() { Vec::new() } else { source.pieces_with(rocpd::ARG, ids)? };
    let args: Vec<Vec<_>> = pieces.into_par_iter().map(read_piece).collect::<Result<_, _>>()?;
    let args = args.into_iter().flatten().collect();
    let FoundCalls { calls, has_unnamed_functions, .. } = found;
    Ok(UnitCalls { place: 0, calls, has_unnamed_functions, args })
}

impl FoundCalls {
    fn add(&mut self, rows: &TimedRows<'_>, row: TimedRow) {
        let (Some(name), Some(event)) = (row.name, row.event) else { return };
        let named = || CollectiveFunction::named(rows.names.text(name).as_bytes());
        let Some(function) = *self.functions.entry(name).or_insert_with(named) else { return };
        if function.is_by_args() {
            self.has_unnamed_functions = true;
            return;
        }
        let TimedRow { process, start, end, .. } = row;
        let (communicator, seq, bytes) = (None, None, None);
        self.calls.push(CollectiveCall { function, process, start, end, event, communicator, seq, bytes });
    }

    fn join(mut self, other: FoundCalls) -> FoundCalls {
        self.calls.extend(other.calls);
        self.has_unnamed_functions |= other.has_unnamed_functions;
        self
    }
}

/// Returns the arg of row `i` if it identifies a collective.
fn call_arg(names: &Cells, values: &Cells, i: usize) -> Option<CallArg> {
    let Value::Text(name) = names.get(i) else { return None };
    let number = || values.get(i).text_lossy()?.parse().ok();
    match name {
        b"comm" => {
            let value = values.get(i);
            let name = value.text_lossy().filter(|name| name.len() <= MAX_NAME);
            name.map(|name| CallArg::Communicator(name.into_owned()))
        }
        b"seq" => number().map(CallArg::Seq),
        b"bytes" => number().map(CallArg::Bytes),
        _ => None,
    }
}
