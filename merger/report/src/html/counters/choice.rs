//! Which counters of a rank are shown, and the median of the others.

use super::owner::{CounterKind, CounterOwner, RankPlace};
use super::sums::CounterCells;
use std::collections::BTreeMap;

/// Maximum number of counters that are shown.
pub(super) const MAX_SHOWN: usize = 10;

/// A counter of the named rank, of its node or of a GPU that it uses.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ChosenCounter {
    pub(super) kind: CounterKind,
    pub(super) owner: CounterOwner,
    /// Mean over the run.
    pub(super) mean: f64,
    /// Number of other nodes, GPUs or processes with this counter, and the median of their means.
    pub(super) others: usize,
    pub(super) median: Option<f64>,
}

impl ChosenCounter {
    /// Returns by how much the mean differs from the median: their difference as a part of the larger of their amounts;
    /// `None` if there is no median.
    pub(super) fn difference(&self) -> Option<f64> {
        let median = self.median?;
        let most = self.mean.abs().max(median.abs());
        // Halves do not overflow.
        Some(if most > 0.0 { (self.mean / 2.0 - median / 2.0).abs() / most * 2.0 } else { 0.0 })
    }
}

/// Returns the counters of the rank that differ most from the median of the others. Those without others are last, and
/// ties in the order of names.
pub(super) fn chosen(
    means: &BTreeMap<CounterKind, BTreeMap<CounterOwner, f64>>,
    place: &RankPlace,
) -> Vec<ChosenCounter> {
    let mut found = Vec::new();
    for (kind, owners) in means {
        let (own, others): (Vec<_>, Vec<_>) =
            owners.iter().partition(|(owner, _)| place.has(kind.scope, owner));
        let mut others: Vec<f64> = others.into_iter().map(|(_, mean)| *mean).collect();
        let (count, median) = (others.len(), median(&mut others));
        found.extend(own.into_iter().map(|(owner, mean)| ChosenCounter {
            kind: kind.clone(),
            owner: owner.clone(),
            mean: *mean,
            others: count,
            median,
        }));
    }
    // A stable sort keeps the order of names.
    found.sort_by(|one, other| {
        let key = |counter: &ChosenCounter| counter.difference().unwrap_or(-1.0);
        key(other).total_cmp(&key(one))
    });
    found.truncate(MAX_SHOWN);
    found
}

/// Returns the median of finite values: the middle one, or the mean of the two in the middle.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = if values.len().is_multiple_of(2) { *values.get(values.len() / 2 - 1)? } else { upper };
    Some(lower / 2.0 + upper / 2.0)
}

/// The points of a counter, one for each cell; NaN in a cell without a value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CounterPoints {
    pub(super) own: Vec<f64>,
    /// Median over the others that have a value in the cell.
    pub(super) median: Vec<f64>,
}

/// Returns the points of each counter from the cells of all units. `kinds` are those of the cells.
pub(super) fn points(
    chosen: &[ChosenCounter],
    kinds: &[CounterKind],
    place: &RankPlace,
    mut cells: Vec<CounterCells>,
    count: usize,
) -> Vec<CounterPoints> {
    cells.sort_by(|one, other| (one.kind, &one.owner, one.unit).cmp(&(other.kind, &other.owner, other.unit)));
    let of_chosen = |counter: &ChosenCounter| {
        let of_kind = cells.iter().filter(|cells| kinds.get(cells.kind as usize) == Some(&counter.kind));
        let (others, own): (Vec<_>, Vec<_>) =
            of_kind.partition(|cells| !place.has(counter.kind.scope, &cells.owner));
        let own: Vec<&CounterCells> = own.into_iter().filter(|cells| cells.owner == counter.owner).collect();
        let at = |cells: &CounterCells, cell: usize| {
            let value = cells.means.get(cell).copied().map(f64::from);
            value.filter(|value| value.is_finite())
        };
        let mean_of = |units: &[&CounterCells], cell: usize| {
            let values: Vec<f64> = units.iter().filter_map(|cells| at(cells, cell)).collect();
            let sum: f64 = values.iter().sum();
            (!values.is_empty()).then(|| sum / values.len() as f64)
        };
        // An owner that several units recorded counts once.
        let others: Vec<&[&CounterCells]> = others.chunk_by(|one, other| one.owner == other.owner).collect();
        let mut values: Vec<f64> = Vec::with_capacity(others.len());
        let mut median_of = |cell: usize| {
            values.clear();
            values.extend(others.iter().filter_map(|units| mean_of(units, cell)));
            median(&mut values)
        };
        CounterPoints {
            own: (0..count).map(|cell| mean_of(&own, cell).unwrap_or(f64::NAN)).collect(),
            median: (0..count).map(|cell| median_of(cell).unwrap_or(f64::NAN)).collect(),
        }
    };
    chosen.iter().map(of_chosen).collect()
}

/// Returns the quantities of the chosen counters, each once.
pub(super) fn kinds_of(chosen: &[ChosenCounter]) -> Vec<CounterKind> {
    let mut kinds: Vec<CounterKind> = Vec::new();
    for counter in chosen {
        if !kinds.contains(&counter.kind) {
            kinds.push(counter.kind.clone());
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::super::owner::CounterScope;
    use super::*;

    const NAN: f32 = f32::NAN;

    fn kind(name: &str) -> CounterKind {
        CounterKind::new(name, "%", CounterScope::Node)
    }

    fn node(host: &str) -> CounterOwner {
        CounterOwner { host: host.to_owned(), rank: None, device: String::new(), pci: None }
    }

    fn place() -> RankPlace {
        RankPlace { rank: 3, host: "n1".to_owned(), ..RankPlace::default() }
    }

    type MeansOfKinds = BTreeMap<CounterKind, BTreeMap<CounterOwner, f64>>;

    fn add(means: &mut MeansOfKinds, name: &str, values: &[(&str, f64)]) {
        let owners = values.iter().map(|(host, mean)| (node(host), *mean)).collect();
        means.insert(kind(name), owners);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0]), Some(3.0));
        assert_eq!(median(&mut [9.0, 1.0]), Some(5.0));
        assert_eq!(median(&mut [9.0, -1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [f64::MAX, f64::MAX]), Some(f64::MAX), "no overflow");
    }

    #[test]
    fn counters_that_differ_most_come_first_and_ties_by_name() {
        let mut means: MeansOfKinds = BTreeMap::new();
        add(&mut means, "twice", &[("n0", 10.0), ("n1", 20.0), ("n2", 10.0)]);
        add(&mut means, "equal", &[("n0", 5.0), ("n1", 5.0)]);
        add(&mut means, "also equal", &[("n0", 0.0), ("n1", 0.0)]);
        add(&mut means, "alone", &[("n1", 7.0)]);
        add(&mut means, "elsewhere", &[("n0", 7.0)]);
        add(&mut means, "other sign", &[("n0", -f64::MAX), ("n1", f64::MAX)]);
        let found = chosen(&means, &place());
        let names: Vec<&str> = found.iter().map(|counter| counter.kind.name.as_str()).collect();
        assert_eq!(names, ["other sign", "twice", "also equal", "equal", "alone"]);
        let differences: Vec<Option<f64>> = found.iter().map(ChosenCounter::difference).collect();
        assert_eq!(differences, [Some(2.0), Some(0.5), Some(0.0), Some(0.0), None]);
        assert_eq!((found[1].others, found[4].others), (2, 0));
        let many: Vec<String> = (0..MAX_SHOWN + 5).map(|number| format!("{number:02}")).collect();
        many.iter().for_each(|name| add(&mut means, name, &[("n0", 1.0), ("n1", 1.0)]));
        let found = chosen(&means, &place());
        assert_eq!((found.len(), found[2].kind.name.as_str()), (MAX_SHOWN, "00"));
    }

    #[test]
    fn points_are_beside_the_median_of_the_others_in_the_same_cell() {
        let kinds = [kind("cpu.user"), kind("cpu.idle")];
        let counter = |kind: &CounterKind| ChosenCounter {
            kind: kind.clone(),
            owner: node("n1"),
            mean: 0.0,
            others: 0,
            median: None,
        };
        let cells = |kind, host: &str, unit, means: &[f32]| CounterCells {
            kind,
            owner: node(host),
            unit,
            means: means.to_vec(),
        };
        let all = vec![
            cells(0, "n2", 5, &[3.0, NAN, NAN, 8.0]),
            cells(0, "n1", 1, &[1.0, 2.0, NAN, NAN]),
            cells(0, "n0", 0, &[7.0, 4.0, NAN, NAN]),
            // Two units recorded the same node.
            cells(0, "n2", 2, &[5.0, NAN, NAN, NAN]),
            cells(1, "n0", 0, &[9.0, 9.0, 9.0, 9.0]),
            cells(1, "n1", 1, &[8.0, 8.0, 8.0, 8.0]),
        ];
        let found = points(&[counter(&kinds[1]), counter(&kinds[0])], &kinds, &place(), all.clone(), 4);
        let shown = |values: &[f64]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!((shown(&found[0].own), shown(&found[0].median)), ("8 8 8 8".into(), "9 9 9 9".into()));
        assert_eq!(
            (shown(&found[1].own), shown(&found[1].median)),
            ("1 2 NaN NaN".into(), "5.5 4 NaN 8".into())
        );
        let reversed = points(&[counter(&kinds[0])], &kinds, &place(), all.into_iter().rev().collect(), 4);
        assert_eq!(shown(&reversed[0].median), "5.5 4 NaN 8", "whichever rank read a unit");
    }

    #[test]
    fn each_quantity_is_asked_for_once() {
        let of = |name: &str, host: &str| ChosenCounter {
            kind: kind(name),
            owner: node(host),
            mean: 1.0,
            others: 0,
            median: None,
        };
        assert_eq!(kinds_of(&[of("b", "n0"), of("a", "n0"), of("b", "n1")]), [kind("b"), kind("a")]);
    }
}
