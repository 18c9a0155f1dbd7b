//! Counters of the node and of the GPUs of the first named rank, beside the median of the others.
//!
//! [`NamedCounters::read`] reads the rows twice: first the mean of each counter over the run, from which rank 0 chooses
//! those that are shown, then the cells of these alone, so that the memory is bounded.

mod choice;
mod owner;
mod sums;
mod values;

use crate::input::ReportRun;
use crate::report::{Cell, ReportTable, Unavailable};
use crate::rows::TimedRows;
use choice::{ChosenCounter, CounterPoints, chosen, kinds_of, points};
use owner::{CounterScope, RankPlace};
use rpd_comm::{Comm, broadcast_result};
use rpd_console::Failure;
use rpd_console::wording::one_line;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sums::{AskedCounters, CounterCells, CounterMeans, MAX_UNIT_COUNTERS, means_by_kind};

/// Maximum number of cells of all counters, and of one.
const MAX_CELLS: usize = 1 << 24;
const MAX_COUNTER_CELLS: usize = 512;
/// Minimum number of cells of a counter. With more nodes than that allows, only the named rank is shown.
const MIN_COUNTER_CELLS: usize = 16;
/// Options that record counters.
const HOW_TO_RECORD: &str = "rpd-collect, of a command that takes a second or longer (counters of the node and its GPUs); rpd-collect --backend rocprofv3 --backend-arg=--pmc --backend-arg=COUNTER (counters of kernels)";

const COLUMNS: [(&str, &str); 7] = [
    ("counter", "counter"),
    ("owner", "of"),
    ("unit", "unit"),
    ("mean", "mean"),
    ("median", "median of the others"),
    ("others", "others"),
    ("difference", "differs by"),
];
const POINT_COLUMNS: [(&str, &str); 6] = [
    ("counter", "counter"),
    ("owner", "of"),
    ("at_ns", "from"),
    ("value", "mean"),
    ("median", "median of the others"),
    ("unit", "unit"),
];

/// The rank of which counters are read, and the times.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CounterRequest {
    pub(super) rank: u32,
    pub(super) host: String,
    /// Time of the first event of the run, ns in job time. Shown times count from it.
    pub(super) origin: i64,
    /// First and last time, ns in job time.
    pub(super) span: (i64, i64),
}

/// Counters of the node and of the GPUs of a rank, beside the median of the others.
#[derive(Debug)]
pub(super) struct NamedCounters {
    request: CounterRequest,
    chosen: Vec<ChosenCounter>,
    points: Vec<CounterPoints>,
    cells: usize,
    /// Whether it is known which GPUs of its node the rank uses, if it has counters.
    are_gpus_known: bool,
    /// Whether there are too many others for a median in each cell.
    lacks_others: bool,
    /// Whether a process has more counters than are compared.
    is_cut: bool,
}

impl NamedCounters {
    /// Reads the counters of the rank that `request` returns on rank 0; without a rank, there are none. Returns them on
    /// rank 0. Every merge rank calls this.
    pub(super) fn read(
        run: &ReportRun,
        comm: &dyn Comm,
        request: impl FnOnce() -> Option<CounterRequest>,
    ) -> Result<Option<NamedCounters>, Failure> {
        let Some(request) = broadcast_result(comm, || Ok(request()))? else { return Ok(None) };
        let (rows, span) = (TimedRows::new(run), request.span);
        let found = rows.fold_units(
            comm,
            |place, unit| CounterMeans::read(run, (place, unit), request.rank, span),
            CounterMeans::joined,
        )?;
        let CounterMeans { means, used_gpus, is_cut } = found;
        let mut chosen_counters = Vec::new();
        let asked = broadcast_result(comm, || {
            let place = RankPlace { rank: request.rank, host: request.host.clone(), gpus: used_gpus };
            let means = means_by_kind(means);
            chosen_counters = chosen(&means, &place);
            let kinds = kinds_of(&chosen_counters);
            let owners = kinds.iter().filter_map(|kind| means.get(kind)).map(|owners| owners.len()).sum();
            let (cells, only_named) = cell_count(owners);
            Ok(AskedCounters { kinds, place, only_named, cells })
        })?;
        let cells = rows.fold_units(
            comm,
            |place, unit| asked.read_cells(run, (place, unit), span),
            |mut one: Vec<CounterCells>, other| {
                one.extend(other);
                one
            },
        )?;
        if comm.rank() > 0 {
            return Ok(None);
        }
        let count = asked.cells as usize;
        let points = points(&chosen_counters, &asked.kinds, &asked.place, cells, count);
        // GPUs that the collector recorded are those of the node.
        let is_of_node = |counter: &&ChosenCounter| {
            counter.kind.scope == CounterScope::Gpu && counter.owner.rank.is_none()
        };
        let are_gpus_known =
            !asked.place.gpus.is_empty() || chosen_counters.iter().filter(is_of_node).count() == 0;
        let (chosen, lacks_others) = (chosen_counters, asked.only_named);
        Ok(Some(NamedCounters {
            request,
            chosen,
            points,
            cells: count,
            are_gpus_known,
            lacks_others,
            is_cut,
        }))
    }

    /// Returns that no counters are recorded, if there are none.
    pub(super) fn not_recorded(&self) -> Option<Unavailable> {
        let rank = self.request.rank;
        let reason =
            format!("none are recorded of the node and the GPUs of rank {rank} in this part of the run");
        let missing = || Unavailable::new("counters", reason).recorded_by(Some(HOW_TO_RECORD));
        self.chosen.is_empty().then(missing)
    }

    /// Returns what the page's script gets.
    pub(super) fn json(&self) -> Json {
        let CounterRequest { origin, span: (start, end), .. } = self.request;
        let shown = self.chosen.iter().map(|counter| {
            json!({
                "counter": one_line(&counter.kind.name),
                "unit": one_line(&counter.kind.unit),
                "owner": one_line(&counter.owner.text(counter.kind.scope)),
                "noun": counter.kind.scope.noun(),
                "others": if self.lacks_others { 0 } else { counter.others },
            })
        });
        json!({
            "rank": self.request.rank, "cells": self.cells, "from_ns": start.saturating_sub(origin),
            "length_ns": end.saturating_sub(start),
            "are_gpus_known": self.are_gpus_known, "lacks_others": self.lacks_others,
            "compared": self.is_cut.then_some(MAX_UNIT_COUNTERS),
            "shown": shown.collect::<Vec<_>>(),
        })
    }

    /// Returns the counters with their means.
    pub(super) fn table(&self) -> ReportTable {
        let mut table = ReportTable::new("counters", &COLUMNS);
        for counter in &self.chosen {
            let row = vec![
                Cell::Text(counter.kind.name.clone()),
                Cell::Text(counter.owner.text(counter.kind.scope)),
                Cell::Text(counter.kind.unit.clone()),
                Cell::Amount(counter.mean),
                Cell::known(counter.median, Cell::Amount),
                Cell::Count(counter.others as u64),
                Cell::known(counter.difference(), Cell::Ratio),
            ];
            table.push_up_to(usize::MAX, row);
        }
        table
    }

    /// Returns the points of all counters, one after another.
    pub(super) fn points_table(&self) -> ReportTable {
        let mut table = ReportTable::new("counter_points", &POINT_COLUMNS);
        let CounterRequest { origin, span: (start, end), .. } = self.request;
        let first = i128::from(start) - i128::from(origin);
        let length = i128::from(end) - i128::from(start);
        let amount =
            |value: Option<&f64>| Cell::known(value.copied().filter(|value| value.is_finite()), Cell::Amount);
        for (counter, points) in self.chosen.iter().zip(&self.points) {
            let owner = counter.owner.text(counter.kind.scope);
            for cell in 0..self.cells {
                let row = vec![
                    Cell::Text(counter.kind.name.clone()),
                    Cell::Text(owner.clone()),
                    Cell::sum(first + length * cell as i128 / self.cells.max(1) as i128),
                    amount(points.own.get(cell)),
                    amount(points.median.get(cell)),
                    Cell::Text(counter.kind.unit.clone()),
                ];
                table.push_up_to(usize::MAX, row);
            }
        }
        table
    }
}

/// Returns the number of cells of a counter if this many nodes, GPUs and processes have those that are shown, and whether
/// these are too many, so that only the named rank is read.
fn cell_count(owners: usize) -> (u32, bool) {
    let cells = MAX_CELLS / owners.max(1);
    let only_named = cells < MIN_COUNTER_CELLS;
    let cells = if only_named { MAX_COUNTER_CELLS } else { cells.min(MAX_COUNTER_CELLS) };
    (u32::try_from(cells).unwrap_or(0), only_named)
}

#[cfg(test)]
mod tests {
    use super::owner::{CounterKind, CounterOwner};
    use super::*;

    #[test]
    fn the_cells_of_many_nodes_are_bounded() {
        assert_eq!(cell_count(0), (512, false));
        assert_eq!(cell_count(5_120), (512, false));
        assert_eq!(cell_count(40_960), (409, false));
        assert_eq!(cell_count(MAX_CELLS), (512, true));
    }

    #[test]
    fn points_are_listed_counter_by_counter() {
        let request = CounterRequest { rank: 3, host: "n0".to_owned(), origin: 900, span: (1_000, 2_000) };
        let chosen = |name: &str, others: usize| ChosenCounter {
            kind: CounterKind::new(name, "%", CounterScope::Node),
            owner: CounterOwner { host: "n0".to_owned(), rank: None, device: String::new(), pci: None },
            mean: 2.0,
            others,
            median: (others > 0).then_some(1.0),
        };
        let counters = NamedCounters {
            request,
            chosen: vec![chosen("cpu.user", 1), chosen("cpu\n<b>", 0)],
            points: vec![
                CounterPoints { own: vec![1.0, f64::NAN], median: vec![f64::NAN, 4.0] },
                CounterPoints { own: vec![5.0, 6.0], median: vec![f64::NAN, f64::NAN] },
            ],
            cells: 2,
            are_gpus_known: true,
            lacks_others: false,
            is_cut: false,
        };
        let rows = counters.points_table().rows;
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1][2..5], [Cell::Nanoseconds(600), Cell::Unknown, Cell::Amount(4.0)]);
        assert_eq!(rows[2][2..5], [Cell::Nanoseconds(100), Cell::Amount(5.0), Cell::Unknown]);
        let means = counters.table().rows;
        assert_eq!((&means[0][6], &means[1][6]), (&Cell::Ratio(0.5), &Cell::Unknown));
        let json = counters.json();
        assert_eq!((&json["shown"][0]["others"], &json["shown"][1]["others"]), (&json!(1), &json!(0)));
        assert!(!json["shown"][1]["counter"].as_str().unwrap().contains('\n'));
        assert_eq!(counters.not_recorded(), None);
    }
}
