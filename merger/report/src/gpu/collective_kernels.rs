//! Collectives that kernels carry out: their time without waiting, their skew and bandwidth. docs/GPU.md has the formulas.

use crate::report::{Cell, ReportTable};
use crate::rows::{TimedRow, TimedRows};
use crate::statistics::{Distribution, DurationSummary};
use rpd_console::Failure;
use rpd_run::RowUnit;
use rpd_shard::model::{Value, rocpd};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const COLUMNS: [(&str, &str); 12] = [
    ("communicator", "communicator"),
    ("ranks", "ranks"),
    ("function", "function"),
    ("bytes", "size"),
    ("kernels", "kernels"),
    ("matched", "matched"),
    ("latency_p50_ns", "latency p50"),
    ("latency_p95_ns", "p95"),
    ("skew_p50_ns", "skew p50"),
    ("skew_p95_ns", "p95"),
    ("algorithm_bytes_per_s", "algorithm bandwidth"),
    ("bus_bytes_per_s", "bus bandwidth"),
];

const NO_MATCH: &str = "no collective of these kernels is recorded of all ranks";
/// Why values of a column are not known.
pub(super) const REASONS: [(&str, &str); 9] = [
    ("communicator", "the profiler did not record it"),
    ("ranks", "the profiler did not record it"),
    ("bytes", "the profiler did not record the elements or their type"),
    ("latency_p50_ns", NO_MATCH),
    ("latency_p95_ns", NO_MATCH),
    ("skew_p50_ns", NO_MATCH),
    ("skew_p95_ns", NO_MATCH),
    ("algorithm_bytes_per_s", "the size or the time without waiting is not known"),
    ("bus_bytes_per_s", "the size, the time without waiting or the traffic of the function is not known"),
];

/// Maximum length of a name. Longer ones are not read: a shard stores a text once, and each kernel has a copy here.
const MAX_TEXT: usize = 256;

/// A kernel of a collective.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct CollectiveKernel {
    /// Place of its process in the run.
    process: u32,
    /// Start and end, ns in job time.
    start: i64,
    end: i64,
    function: Option<String>,
    communicator: Option<String>,
    /// Number on the communicator.
    seq: Option<u64>,
    /// Elements that a rank passes, and their type.
    count: Option<u64>,
    datatype: Option<String>,
    /// Ranks of the communicator.
    size: Option<u64>,
}

/// Reads what is recorded about the kernels of a unit that communicate.
pub(super) fn read_collectives(
    rows: &TimedRows<'_>,
    unit: &RowUnit,
    kernels: &[TimedRow],
) -> Result<Vec<CollectiveKernel>, Failure> {
    let mut found: Vec<(i64, CollectiveKernel)> = Vec::with_capacity(kernels.len());
    for row in kernels {
        let (process, start, end) = (row.process, row.start, row.end.max(row.start));
        let kernel = CollectiveKernel { process, start, end, ..CollectiveKernel::default() };
        found.extend(row.event.map(|event| (event, kernel)));
    }
    found.sort_by_key(|(event, _)| *event);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let columns = &["event_id", "name", "value"];
    let tables = &rows.run.database.tables;
    tables.read_rows(rocpd::ARG, unit.ids(rocpd::ARG), columns, &mut |rows, places| {
        let [events, names, values] = ["event_id", "name", "value"].map(|column| rows.column(column));
        for i in places {
            let (Some(event), Value::Text(name)) = (events.int(i), names.get(i)) else { continue };
            if let Ok(place) = found.binary_search_by_key(&event, |(event, _)| *event) {
                found[place].1.read_arg(name, values.get(i));
            }
        }
        Ok(())
    })?;
    // A kernel without a function is not known to be a collective.
    Ok(found.into_iter().map(|(_, kernel)| kernel).filter(|kernel| kernel.function.is_some()).collect())
}

impl CollectiveKernel {
    fn read_arg(&mut self, name: &[u8], value: Value<'_>) {
        let text = || value.text_lossy().filter(|text| text.len() <= MAX_TEXT).map(|text| text.into_owned());
        let number = || text().and_then(|text| text.parse().ok());
        match name {
            b"collective" => self.function = text(),
            b"comm" => self.communicator = text(),
            b"seq" => self.seq = number(),
            b"count" => self.count = number(),
            b"datatype" => self.datatype = text(),
            b"size" => self.size = number(),
            _ => {}
        }
    }

    /// Returns the bytes by which bandwidths are counted: what a rank passes, and for gathers what it receives.
    fn bytes(&self) -> Option<u64> {
        let one = self.count?.checked_mul(element_bytes(self.datatype.as_deref()?)?)?;
        match CollectiveTraffic::of(self.function.as_deref()?) {
            Some(CollectiveTraffic::Gathers) => one.checked_mul(self.size?),
            _ => Some(one),
        }
    }
}

/// Returns the bytes of an element of a type of PyTorch.
fn element_bytes(datatype: &str) -> Option<u64> {
    Some(match datatype {
        "Double" | "Long" | "double" | "long" | "ComplexFloat" => 8,
        "Float" | "Int" | "float" | "int" => 4,
        "Half" | "BFloat16" | "Short" | "c10::Half" | "c10::BFloat16" | "short" => 2,
        "Byte" | "Char" | "Bool" | "unsigned char" | "signed char" | "bool" => 1,
        name if name.starts_with("Float8") || name.starts_with("c10::Float8") => 1,
        _ => return None,
    })
}

/// How much of its size a collective moves over each link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CollectiveTraffic {
    /// All-reduce.
    Reduces,
    /// All-gather.
    Gathers,
    /// Reduce-scatter and all-to-all.
    Scatters,
    /// From or to one rank.
    Passes,
}

impl CollectiveTraffic {
    /// Returns the kind of a function by its name, in any spelling.
    fn of(function: &str) -> Option<CollectiveTraffic> {
        let name: String =
            function.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect();
        let has = |word: &str| name.contains(word);
        Some(match () {
            () if has("allreduce") => CollectiveTraffic::Reduces,
            () if has("allgather") => CollectiveTraffic::Gathers,
            () if has("reducescatter") || has("alltoall") => CollectiveTraffic::Scatters,
            () if has("broadcast") || has("reduce") || has("send") || has("recv") => {
                CollectiveTraffic::Passes
            }
            () => return None,
        })
    }

    /// Returns the bus bandwidth for each algorithm bandwidth, among this many ranks.
    fn factor(self, ranks: u64) -> f64 {
        let others = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        match self {
            CollectiveTraffic::Reduces => 2.0 * others,
            CollectiveTraffic::Gathers | CollectiveTraffic::Scatters => others,
            CollectiveTraffic::Passes => 1.0,
        }
    }
}

/// Communicator, number of ranks, function and bytes of the kernels of a line.
type LineKey = (Option<String>, Option<u64>, String, Option<u64>);

#[derive(Debug, Default)]
struct CollectiveLine {
    kernels: u64,
    total: i128,
    latencies: Distribution,
    skews: Distribution,
}

/// Returns the table of the collectives of all kernels.
pub(super) fn collective_table(kernels: &[CollectiveKernel], is_whole: bool, max_rows: usize) -> ReportTable {
    let mut lines: BTreeMap<LineKey, CollectiveLine> = BTreeMap::new();
    let key = |kernel: &CollectiveKernel| -> LineKey {
        let function = kernel.function.clone().unwrap_or_default();
        (kernel.communicator.clone(), kernel.size, function, kernel.bytes())
    };
    for kernel in kernels {
        let line = lines.entry(key(kernel)).or_default();
        line.kernels += 1;
        line.total += i128::from(kernel.end - kernel.start);
    }
    for instance in instances(kernels, is_whole) {
        let (Some(first), Some(latency)) =
            (instance.first(), instance.iter().map(|kernel| kernel.end - kernel.start).min())
        else {
            continue;
        };
        let starts = || instance.iter().map(|kernel| kernel.start);
        let skew = starts().max().zip(starts().min()).map_or(0, |(last, first)| last - first);
        let line = lines.entry(key(first)).or_default();
        line.latencies.add(latency);
        line.skews.add(skew);
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by(|(one, times), (other, others)| {
        (Reverse(times.total), one).cmp(&(Reverse(others.total), other))
    });
    let mut table = ReportTable::new("gpu_collectives", &COLUMNS);
    lines.into_iter().for_each(|(key, line)| table.push_up_to(max_rows, line.cells(key)));
    table
}

/// Returns the kernels of each collective that all ranks of its communicator carried out. Kernels without numbers match by
/// their order, if `is_whole`: none of them may be left out.
fn instances(kernels: &[CollectiveKernel], is_whole: bool) -> Vec<Vec<&CollectiveKernel>> {
    let mut by_communicator: BTreeMap<&str, Vec<&CollectiveKernel>> = BTreeMap::new();
    for kernel in kernels {
        if let Some(communicator) = &kernel.communicator {
            by_communicator.entry(communicator).or_default().push(kernel);
        }
    }
    let mut all = Vec::new();
    for mut kernels in by_communicator.into_values() {
        kernels.sort_by_key(|kernel| (kernel.process, kernel.start));
        let processes: BTreeSet<u32> = kernels.iter().map(|kernel| kernel.process).collect();
        let are_numbered = kernels.iter().all(|kernel| kernel.seq.is_some());
        let mut counts: HashMap<u32, u64> = HashMap::new();
        let mut numbered: BTreeMap<u64, Vec<&CollectiveKernel>> = BTreeMap::new();
        for kernel in kernels {
            let count = counts.entry(kernel.process).or_default();
            *count += 1;
            let number = kernel.seq.filter(|_| are_numbered).unwrap_or(*count);
            numbered.entry(number).or_default().push(kernel);
        }
        let is_complete = |found: &Vec<&CollectiveKernel>| {
            let ranks = found[0].size.unwrap_or(processes.len() as u64);
            let same = |kernel: &&CollectiveKernel| {
                let first = found[0];
                (&kernel.function, kernel.count, &kernel.datatype)
                    == (&first.function, first.count, &first.datatype)
            };
            let distinct: BTreeSet<u32> = found.iter().map(|kernel| kernel.process).collect();
            (are_numbered || is_whole)
                && ranks > 1
                && found.len() as u64 == ranks
                && distinct.len() == found.len()
                && found.iter().all(same)
        };
        let found: Vec<Vec<&CollectiveKernel>> = numbered.into_values().filter(is_complete).collect();
        // A collective ends on no rank before all have begun it. If orders say otherwise, recordings began apart.
        let overlaps = |kernels: &Vec<&CollectiveKernel>| {
            kernels.iter().map(|kernel| kernel.start).max() <= kernels.iter().map(|kernel| kernel.end).min()
        };
        if are_numbered || found.iter().all(overlaps) {
            all.extend(found);
        }
    }
    all
}

impl CollectiveLine {
    fn cells(self, (communicator, ranks, function, bytes): LineKey) -> Vec<Cell> {
        let (latencies, skews) = (self.latencies.summary(), self.skews.summary());
        let time = |times: Option<DurationSummary>, place: usize| {
            Cell::known(times, |times| Cell::Nanoseconds(times.percentiles[place]))
        };
        let latency = latencies.map(|times| times.percentiles[0]).filter(|ns| *ns > 0);
        let algorithm = bytes.zip(latency).map(|(bytes, ns)| bytes as f64 * 1e9 / ns as f64);
        let factor =
            CollectiveTraffic::of(&function).zip(ranks).map(|(traffic, ranks)| traffic.factor(ranks));
        let bus = algorithm.zip(factor).map(|(algorithm, factor)| algorithm * factor);
        let speed =
            |speed: Option<f64>| Cell::known(speed, |speed| Cell::BytesPerSecond(speed.round() as u64));
        vec![
            Cell::known(communicator, Cell::Text),
            Cell::known(ranks, Cell::Count),
            Cell::Text(function),
            Cell::known(bytes, Cell::Bytes),
            Cell::Count(self.kernels),
            Cell::Count(latencies.map_or(0, |times| times.count)),
            time(latencies, 0),
            time(latencies, 1),
            time(skews, 0),
            time(skews, 1),
            speed(algorithm),
            speed(bus),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_traffic_of_their_kind_in_any_spelling() {
        for (name, traffic) in [
            ("allreduce", Some(CollectiveTraffic::Reduces)),
            ("_allgather_base", Some(CollectiveTraffic::Gathers)),
            ("all_gather_into_tensor_coalesced", Some(CollectiveTraffic::Gathers)),
            ("_reduce_scatter_base", Some(CollectiveTraffic::Scatters)),
            ("all_to_allv", Some(CollectiveTraffic::Scatters)),
            ("broadcast", Some(CollectiveTraffic::Passes)),
            ("barrier", None),
        ] {
            assert_eq!(CollectiveTraffic::of(name), traffic, "{name}");
        }
        assert!((CollectiveTraffic::Reduces.factor(8) - 1.75).abs() < 1e-12);
    }

    #[test]
    fn a_collective_that_differs_between_ranks_is_no_match() {
        let kernel = |process, start, count| CollectiveKernel {
            process,
            start,
            end: start + 10,
            function: Some("allreduce".to_owned()),
            communicator: Some("0".to_owned()),
            count: Some(count),
            size: Some(2),
            ..CollectiveKernel::default()
        };
        let all = [kernel(0, 0, 5), kernel(1, 3, 5), kernel(0, 20, 5), kernel(1, 22, 6)];
        assert_eq!(instances(&all, true), [vec![&all[0], &all[1]]]);
        assert!(instances(&all, false).is_empty(), "kernels may be left out");
        let apart = [kernel(0, 0, 5), kernel(0, 20, 5), kernel(1, 20, 5), kernel(1, 40, 5)];
        assert!(instances(&apart, true).is_empty(), "the first recording began earlier");
    }
}
