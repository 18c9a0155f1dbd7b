//! The means of the counters of a unit: over the run, or in each cell of time.

use super::super::time_cells::TimeCells;
use super::owner::{CounterKind, CounterOwner, RankPlace};
use super::values::{HeldValue, TakesValues, read_values};
use crate::input::ReportRun;
use rpd_console::Failure;
use rpd_run::{RowUnit, UnitNames};
use rpd_shard::model::{IntColumn, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of counters of a unit that are compared, in the order of their values. Collectors have 256.
pub(super) const MAX_UNIT_COUNTERS: usize = 1_024;
/// Maximum number of GPUs that a rank may use.
const MAX_USED_GPUS: usize = 256;

/// The mean of a counter over the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct CounterMean {
    pub(super) kind: CounterKind,
    pub(super) owner: CounterOwner,
    /// Place of the unit in the run.
    pub(super) unit: u64,
    /// Sum of the values, each times the time for which it counts, and sum of these times, ns.
    pub(super) sum: f64,
    pub(super) weight: f64,
}

/// The means of the counters of units.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CounterMeans {
    pub(super) means: Vec<CounterMean>,
    /// PCI addresses of the GPUs that run kernels of the named rank.
    pub(super) used_gpus: BTreeSet<String>,
    /// Whether a unit has more counters than are compared.
    pub(super) is_cut: bool,
}

impl CounterMeans {
    pub(super) fn joined(mut self, other: CounterMeans) -> CounterMeans {
        self.means.extend(other.means);
        self.used_gpus.extend(other.used_gpus);
        self.is_cut |= other.is_cut;
        self
    }

    /// Reads the means of the unit at a place of the run, and the GPUs that `rank` uses. Times beyond the span do not
    /// count.
    pub(super) fn read(
        run: &ReportRun,
        (place, unit): (usize, &RowUnit),
        rank: u32,
        span: (i64, i64),
    ) -> Result<CounterMeans, Failure> {
        let is_of_rank = |place: &u32| run.process(*place).is_some_and(|process| process.rank == Some(rank));
        let has_kernels = unit.has_rows(rocpd::KERNEL_DISPATCH) && unit.processes.iter().any(is_of_rank);
        let has_values = unit.has_rows(rocpd::PMC_EVENT);
        if !has_kernels && !has_values {
            return Ok(CounterMeans::default());
        }
        let names = UnitNames::read(&run.database.tables, unit)?;
        let mut found = CounterMeans::default();
        if has_kernels {
            found.used_gpus = used_gpus(run, unit, &names, rank)?;
        }
        if has_values {
            let (counters, sums) = (UnitCounters::new(run, unit, &names), BTreeMap::new());
            let mut taker = MeanTaker { counters, span, sums };
            read_values(run, unit, |id| names.counters.place(id), &mut taker)?;
            let MeanTaker { counters, sums, .. } = taker;
            found.is_cut = counters.is_cut;
            found.means.extend(sums.into_iter().filter_map(|(counter, (sum, weight))| {
                let (kind, owner) = counters.describe(counter)?;
                Some(CounterMean { kind, owner, unit: place as u64, sum, weight })
            }));
        }
        Ok(found)
    }
}

/// Returns the PCI addresses of the GPUs that run kernels of a rank.
fn used_gpus(
    run: &ReportRun,
    unit: &RowUnit,
    names: &UnitNames,
    rank: u32,
) -> Result<BTreeSet<String>, Failure> {
    let identities = unit.processes.iter().filter_map(|place| run.process(*place));
    let of_rank: BTreeSet<i64> =
        identities.filter(|process| process.rank == Some(rank)).map(|process| process.id).collect();
    let mut agents: BTreeSet<i64> = BTreeSet::new();
    let (table, wanted) = (rocpd::KERNEL_DISPATCH, &["pid", "agent_id"]);
    run.database.tables.read_rows(table, unit.ids(table), wanted, &mut |rows, places| {
        let [processes, used] = ["pid", "agent_id"].map(|column| IntColumn::of(rows.column(column)));
        for i in places {
            let is_of_rank = || processes.at(i).is_some_and(|process| of_rank.contains(&process));
            if agents.len() < MAX_USED_GPUS && (!unit.is_unclaimed || is_of_rank()) {
                agents.extend(used.at(i));
            }
        }
        Ok(())
    })?;
    let agent = |id: i64| names.agents.at(names.agents.place(Some(id)));
    Ok(agents.into_iter().filter_map(|id| agent(id)?.pci.clone()).collect())
}

/// The counters of a unit that are compared.
struct UnitCounters<'u> {
    run: &'u ReportRun,
    unit: &'u RowUnit,
    names: &'u UnitNames,
    /// Places of the processes of the unit by their ids.
    processes: HashMap<i64, u32>,
    /// Counters with values, and whether they are compared.
    seen: HashMap<u32, bool>,
    compared: usize,
    is_cut: bool,
}

impl<'u> UnitCounters<'u> {
    fn new(run: &'u ReportRun, unit: &'u RowUnit, names: &'u UnitNames) -> UnitCounters<'u> {
        let id = |place: &u32| Some((run.process(*place)?.id, *place));
        let processes = unit.processes.iter().filter_map(id).collect();
        UnitCounters { run, unit, names, processes, seen: HashMap::new(), compared: 0, is_cut: false }
    }

    /// Returns the quantity and the owner of a counter of a selected process.
    fn describe(&self, counter: u32) -> Option<(CounterKind, CounterOwner)> {
        let source = self.names.counters.at(Some(counter))?;
        let place = match self.unit.is_unclaimed {
            true => source.process.and_then(|id| self.processes.get(&id).copied()),
            false => self.unit.processes.first().copied(),
        };
        let place = place.filter(|place| self.run.selection.contains(*place))?;
        let agent = self.names.agents.at(self.names.agents.place(source.agent));
        let (scope, owner) = CounterOwner::of(self.run.process(place)?, agent);
        Some((CounterKind::new(&source.name, &source.unit, scope), owner))
    }

    /// Returns whether a counter is compared.
    fn compares(&mut self, counter: u32) -> bool {
        if let Some(is_compared) = self.seen.get(&counter) {
            return *is_compared;
        }
        let is_described = self.describe(counter).is_some();
        let is_compared = is_described && self.compared < MAX_UNIT_COUNTERS;
        self.is_cut |= is_described && !is_compared;
        self.compared += usize::from(is_compared);
        self.seen.insert(counter, is_compared);
        is_compared
    }
}

/// Sums up the values of counters over the run.
struct MeanTaker<'u> {
    counters: UnitCounters<'u>,
    span: (i64, i64),
    sums: BTreeMap<u32, (f64, f64)>,
}

impl TakesValues for MeanTaker<'_> {
    fn wants(&mut self, counter: u32) -> bool {
        self.counters.compares(counter)
    }

    fn take(&mut self, HeldValue { counter, start, end, value }: HeldValue) {
        let ns = end.min(self.span.1).saturating_sub(start.max(self.span.0));
        if ns > 0 {
            let (sum, weight) = self.sums.entry(counter).or_default();
            *sum += value * ns as f64;
            *weight += ns as f64;
        }
    }
}

/// The means of a counter in cells of time; NaN in a cell without a value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct CounterCells {
    /// Place of the quantity among those that are asked for.
    pub(super) kind: u32,
    pub(super) owner: CounterOwner,
    /// Place of the unit in the run.
    pub(super) unit: u64,
    pub(super) means: Vec<f32>,
}

/// The counters of which the cells are read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct AskedCounters {
    pub(super) kinds: Vec<CounterKind>,
    pub(super) place: RankPlace,
    /// Whether only those of the named rank are read.
    pub(super) only_named: bool,
    /// Number of cells.
    pub(super) cells: u32,
}

impl AskedCounters {
    /// Reads the cells of the unit at a place of the run.
    pub(super) fn read_cells(
        &self,
        run: &ReportRun,
        (place, unit): (usize, &RowUnit),
        span: (i64, i64),
    ) -> Result<Vec<CounterCells>, Failure> {
        if self.kinds.is_empty() || !unit.has_rows(rocpd::PMC_EVENT) {
            return Ok(Vec::new());
        }
        let names = UnitNames::read(&run.database.tables, unit)?;
        let mut taker = CellTaker {
            asked: self,
            counters: UnitCounters::new(run, unit, &names),
            grid: TimeCells { span, cells: self.cells as usize },
            of_counters: HashMap::new(),
            slots: BTreeMap::new(),
            sums: Vec::new(),
        };
        read_values(run, unit, |id| names.counters.place(id), &mut taker)?;
        let CellTaker { slots, sums, .. } = taker;
        let cells = slots.into_iter().map(|((kind, owner), slot)| CounterCells {
            kind,
            owner,
            unit: place as u64,
            means: sums.get(slot).into_iter().flatten().map(|sums| mean_of_cell(*sums)).collect(),
        });
        Ok(cells.collect())
    }
}

/// Returns the mean of a cell from the sum of its values and that of their times. A point of a plot needs no more digits.
fn mean_of_cell((sum, weight): (f64, f64)) -> f32 {
    let mean = (sum / weight) as f32;
    if weight > 0.0 && mean.is_finite() { mean } else { f32::NAN }
}

/// A quantity by its place among those that are asked for, of one owner.
type CellSlot = (u32, CounterOwner);

/// Sums up the values of counters in cells of time.
struct CellTaker<'u> {
    asked: &'u AskedCounters,
    counters: UnitCounters<'u>,
    grid: TimeCells,
    /// Number of the slot of each counter, if it is asked for. Several counters may have the same.
    of_counters: HashMap<u32, Option<usize>>,
    slots: BTreeMap<CellSlot, usize>,
    /// Sums of the cells of each slot.
    sums: Vec<Vec<(f64, f64)>>,
}

impl CellTaker<'_> {
    /// Returns the number of the slot of a counter that has not been seen yet.
    fn new_slot(&mut self, counter: u32) -> Option<usize> {
        // The same counters are compared as for the means, so that their number bounds that of the cells.
        if !self.counters.compares(counter) {
            return None;
        }
        let (kind, owner) = self.counters.describe(counter)?;
        let number = (0u32..).zip(&self.asked.kinds).find(|(_, asked)| **asked == kind)?.0;
        if self.asked.only_named && !self.asked.place.has(kind.scope, &owner) {
            return None;
        }
        let slot = *self.slots.entry((number, owner)).or_insert(self.sums.len());
        if slot == self.sums.len() {
            self.sums.push(vec![(0.0, 0.0); self.grid.cells]);
        }
        Some(slot)
    }
}

impl TakesValues for CellTaker<'_> {
    fn wants(&mut self, counter: u32) -> bool {
        if let Some(slot) = self.of_counters.get(&counter) {
            return slot.is_some();
        }
        let slot = self.new_slot(counter);
        self.of_counters.insert(counter, slot);
        slot.is_some()
    }

    fn take(&mut self, HeldValue { counter, start, end, value }: HeldValue) {
        let Some(Some(slot)) = self.of_counters.get(&counter) else { return };
        let Some(sums) = self.sums.get_mut(*slot) else { return };
        self.grid.add(start, end, |cell, ns| {
            if let Some((sum, weight)) = sums.get_mut(cell) {
                *sum += value * f64::from(ns);
                *weight += f64::from(ns);
            }
        });
    }
}

/// Returns the sums of the means of each quantity of each owner, in the order of the run's units.
pub(super) fn means_by_kind(
    mut means: Vec<CounterMean>,
) -> BTreeMap<CounterKind, BTreeMap<CounterOwner, f64>> {
    means.sort_by(|one, other| {
        (&one.kind, &one.owner, one.unit).cmp(&(&other.kind, &other.owner, other.unit))
    });
    let mut sums: BTreeMap<CounterKind, BTreeMap<CounterOwner, (f64, f64)>> = BTreeMap::new();
    for CounterMean { kind, owner, sum, weight, .. } in means {
        let (all, all_weight) = sums.entry(kind).or_default().entry(owner).or_default();
        (*all, *all_weight) = (*all + sum, *all_weight + weight);
    }
    let mean = |(owner, (sum, weight)): (CounterOwner, (f64, f64))| {
        let mean = sum / weight;
        (weight > 0.0 && mean.is_finite()).then_some((owner, mean))
    };
    let of_kind = |(kind, owners): (CounterKind, BTreeMap<CounterOwner, (f64, f64)>)| {
        (kind, owners.into_iter().filter_map(mean).collect())
    };
    sums.into_iter().map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use super::super::owner::CounterScope;
    use super::*;

    fn owner(host: &str) -> CounterOwner {
        CounterOwner { host: host.to_owned(), rank: None, device: String::new(), pci: None }
    }

    #[test]
    fn a_cell_has_the_mean_of_its_values_by_their_times() {
        assert_eq!(mean_of_cell((30.0, 20.0)), 1.5);
        for without_value in [(0.0, 0.0), (1e300, 1.0), (f64::INFINITY, 1.0), (f64::NAN, 1.0)] {
            assert!(mean_of_cell(without_value).is_nan());
        }
        let mut sums = vec![(0.0, 0.0); 4];
        let grid = TimeCells { span: (0, 40), cells: 4 };
        for (start, end, value) in [(5, 10, 2.0), (10, 20, 4.0), (10, 15, 1.0), (20, 25, 8.0)] {
            grid.add(start, end, |cell, ns| {
                let (sum, weight): &mut (f64, f64) = &mut sums[cell];
                *sum += value * f64::from(ns);
                *weight += f64::from(ns);
            });
        }
        let means: Vec<f32> = sums.into_iter().map(mean_of_cell).collect();
        assert_eq!(means[..3], [2.0, 3.0, 8.0]);
        assert!(means[3].is_nan(), "a cell without a value stays empty");
    }

    #[test]
    fn means_do_not_depend_on_the_order_of_units() {
        let mean = |name: &str, host: &str, unit, sum, weight| CounterMean {
            kind: CounterKind::new(name, "%", CounterScope::Node),
            owner: owner(host),
            unit,
            sum,
            weight,
        };
        let means = vec![
            mean("cpu.user", "n1", 2, 30.0, 10.0),
            mean("cpu.user", "n0", 1, 1.0, 1.0),
            mean("cpu.user", "n0", 0, 5.0, 2.0),
            mean("cpu.idle", "n0", 0, 5.0, 0.0),
        ];
        let found = means_by_kind(means.clone());
        assert_eq!(found, means_by_kind(means.into_iter().rev().collect()));
        let of = |name: &str| &found[&CounterKind::new(name, "%", CounterScope::Node)];
        assert_eq!(of("cpu.user").values().copied().collect::<Vec<_>>(), [2.0, 3.0]);
        assert!(of("cpu.idle").is_empty(), "no time, no mean");
    }
}
