//! Reads values of counters from files.

use super::file::{BoundedFile, MAX_FILE_BYTES};
use super::parse::{self, CpuTimes};
use crate::shard_output::{MetricAgent, MetricCounter};
use std::time::Instant;

/// Maximum number of counters of a node.
pub(super) const MAX_COUNTERS: usize = 512;
/// Number of consecutive failures after which a file is no longer read.
const MAX_FAILURES: u32 = 3;
/// Bytes of a sector in `/proc/diskstats`, independent of the device.
const SECTOR_BYTES: f64 = 512.0;

/// The counters of a node, and their files.
pub(super) struct NodeMetrics {
    pub(super) agents: Vec<MetricAgent>,
    pub(super) counters: Vec<MetricCounter>,
    files: Vec<SampledFile>,
    /// Number of files that stay open, and its maximum.
    open_files: usize,
    max_open_files: usize,
    buffer: Vec<u8>,
}

/// A file that is sampled.
struct SampledFile {
    file: BoundedFile,
    meaning: FileMeaning,
    /// Index of its first counter.
    first: usize,
    failures: u32,
}

/// Format of a file, with its previous content.
pub(super) enum FileMeaning {
    /// `/proc/stat`: four counters.
    Cpu(Option<CpuTimes>),
    /// `/proc/meminfo`: two counters.
    Memory,
    /// `/proc/net/dev`: three counters per interface.
    Interfaces(DeviceFlows<3>),
    /// `/proc/diskstats`: two counters per disk.
    Disks(DeviceFlows<2>),
    /// An increasing sum, reported as a rate.
    Rate(GrowingSum),
    /// A value, divided by this number.
    Value(f64),
    /// The mean of those of this file and others that can be read, divided by this number. The others stay open.
    Mean(Vec<BoundedFile>, f64),
}

/// Devices that have a line in a file, with some counters each.
pub(super) struct DeviceFlows<const N: usize> {
    names: Vec<String>,
    last: Vec<Option<[u64; N]>>,
    at: i64,
}

/// An increasing sum in a file.
pub(super) struct GrowingSum {
    parse: fn(&str) -> Option<u64>,
    /// Where it stays once it is reached: there is no rate from then on.
    max: u64,
    /// Factor of the rate per second.
    unit: f64,
    last: Option<(i64, u64)>,
}

impl GrowingSum {
    /// The first word of the file is the sum.
    pub(super) fn number(unit: f64) -> GrowingSum {
        GrowingSum::parsed(parse::number, unit)
    }

    /// The first word of the file is the sum, which stays at a maximum.
    pub(super) fn up_to(max: u64, unit: f64) -> GrowingSum {
        GrowingSum { max, ..GrowingSum::number(unit) }
    }

    /// `parse` finds the sum in the file.
    pub(super) fn parsed(parse: fn(&str) -> Option<u64>, unit: f64) -> GrowingSum {
        GrowingSum { parse, max: u64::MAX, unit, last: None }
    }
}

impl NodeMetrics {
    pub(super) fn new(max_open_files: usize) -> NodeMetrics {
        let (agents, counters, files) = (Vec::new(), Vec::new(), Vec::new());
        let buffer = vec![0; MAX_FILE_BYTES];
        NodeMetrics { agents, counters, files, open_files: 0, max_open_files, buffer }
    }

    /// Adds a counter that is the mean of files, unless these are too many to stay open.
    pub(super) fn add_mean(&mut self, mut files: Vec<BoundedFile>, divisor: f64, counter: MetricCounter) {
        let first = files.pop();
        if self.open_files + files.len() < self.max_open_files {
            self.open_files += files.len();
            self.add(first, FileMeaning::Mean(files, divisor), vec![counter]);
        }
    }

    /// Adds a file and its counters, unless there are too many.
    pub(super) fn add(
        &mut self,
        file: Option<BoundedFile>,
        meaning: FileMeaning,
        counters: Vec<MetricCounter>,
    ) {
        let Some(mut file) = file else { return };
        if self.open_files >= self.max_open_files {
            file.close();
        } else {
            self.open_files += 1;
        }
        if self.counters.len() + counters.len() <= MAX_COUNTERS {
            let first = self.counters.len();
            self.counters.extend(counters);
            self.files.push(SampledFile { file, meaning, first, failures: 0 });
        }
    }

    /// Reads all files until `until`. A value is `None` if there is none: at the first reading of a
    /// difference, or for a file that fails.
    pub(super) fn sample(&mut self, time: i64, until: Instant, values: &mut Vec<Option<f64>>) {
        values.clear();
        values.resize(self.counters.len(), None);
        for sampled in &mut self.files {
            if Instant::now() >= until {
                break;
            }
            let values = values.get_mut(sampled.first..).unwrap_or_default();
            let understood = sampled
                .file
                .read(&mut self.buffer)
                .is_ok_and(|bytes| sampled.meaning.read(&String::from_utf8_lossy(bytes), time, values));
            sampled.failures = if understood { 0 } else { sampled.failures + 1 };
        }
        self.files.retain(|sampled| sampled.failures < MAX_FAILURES);
    }
}

impl FileMeaning {
    /// Sets the values of the counters, starting with the first. Returns `false` if the text is invalid.
    fn read(&mut self, text: &str, time: i64, values: &mut [Option<f64>]) -> bool {
        match self {
            FileMeaning::Cpu(last) => {
                let Some(now) = parse::cpu_times(text) else { return false };
                let percent = last.replace(now).and_then(|before| now.since(before));
                set(values, percent.map(|parts| parts.map(|part| Some(hundredths(part)))));
                true
            }
            FileMeaning::Memory => {
                let used = parse::memory_used(text);
                set(values, used.map(|bytes| bytes.map(Some)));
                used.is_some()
            }
            FileMeaning::Interfaces(flows) => flows.read(parse::interfaces(text), 1.0, time, values),
            FileMeaning::Disks(flows) => flows.read(parse::disks(text), SECTOR_BYTES, time, values),
            FileMeaning::Rate(sum) => {
                let Some(now) = (sum.parse)(text) else { return false };
                let before = sum.last.replace((time, now)).filter(|_| now < sum.max);
                let rate =
                    before.and_then(|(at, before)| growth_per_second(before, now, time.saturating_sub(at)));
                set(values, Some([rate.map(|rate| hundredths(rate * sum.unit))]));
                true
            }
            FileMeaning::Value(divisor) => {
                let value = parse::number::<i64>(text).map(|value| value as f64 / *divisor);
                set(values, Some([value]));
                value.is_some()
            }
            FileMeaning::Mean(others, divisor) => {
                // A CPU that went offline has none.
                let others = others.iter().filter_map(BoundedFile::number);
                let all: Vec<u64> = parse::number(text).into_iter().chain(others).collect();
                let sum = all.iter().map(|value| *value as f64).sum::<f64>();
                let mean = (!all.is_empty()).then(|| (sum / all.len() as f64 / *divisor).round());
                set(values, Some([mean]));
                mean.is_some()
            }
        }
    }
}

impl<const N: usize> DeviceFlows<N> {
    pub(super) fn of(names: Vec<String>) -> DeviceFlows<N> {
        let last = vec![None; names.len()];
        DeviceFlows { names, last, at: 0 }
    }

    fn read<'a>(
        &mut self,
        lines: impl Iterator<Item = parse::DeviceFlow<'a, N>>,
        unit: f64,
        time: i64,
        values: &mut [Option<f64>],
    ) -> bool {
        let passed = time.saturating_sub(std::mem::replace(&mut self.at, time));
        let before = std::mem::replace(&mut self.last, vec![None; self.names.len()]);
        for (name, now) in lines {
            let Some(place) = self.names.iter().position(|known| known == name) else { continue };
            if let Some(Some(before)) = before.get(place) {
                let rates: [Option<f64>; N] =
                    std::array::from_fn(|of| growth_per_second(before[of], now[of], passed));
                let values = values.get_mut(N * place..).unwrap_or_default();
                set(values, Some(rates.map(|rate| rate.map(|rate| (rate * unit).round()))));
            }
            if let Some(last) = self.last.get_mut(place) {
                *last = Some(now);
            }
        }
        self.last.iter().any(Option::is_some)
    }
}

/// Returns the increase per second over `ns`. `None` for a sum that decreased, as after a reset.
pub(super) fn growth_per_second(before: u64, now: u64, ns: i64) -> Option<f64> {
    let growth = now.checked_sub(before)?;
    (ns > 0).then(|| growth as f64 * 1e9 / ns as f64)
}

/// Rounds, because digits without significance cost space.
pub(super) fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn set<const N: usize>(values: &mut [Option<f64>], new: Option<[Option<f64>; N]>) {
    for (value, new) in values.iter_mut().zip(new.into_iter().flatten()) {
        *value = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_that_fails_three_times_in_a_row_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        let counter = MetricCounter {
            name: "c".to_owned(),
            description: "",
            units: "",
            component: "",
            agent: 0,
            instance: 0,
            thread: None,
        };
        std::fs::write(&path, "7\n").unwrap();
        let mut metrics = NodeMetrics::new(1);
        metrics.add(BoundedFile::page(&path), FileMeaning::Value(1.0), vec![counter]);
        let mut read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut values = Vec::new();
            metrics.sample(0, Instant::now() + Duration::from_secs(60), &mut values);
            values
        };
        assert_eq!(read("7\n"), [Some(7.0)]);
        assert_eq!(read("x"), [None]);
        assert_eq!(read(""), [None]);
        assert_eq!(read("8"), [Some(8.0)]);
        for _ in 0..3 {
            assert_eq!(read("x"), [None]);
        }
        assert_eq!(read("9"), [None], "it is given up");
    }

    #[test]
    fn no_file_is_read_past_the_slot_and_counters_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        std::fs::write(&path, "7\n").unwrap();
        let counter = MetricCounter {
            name: "c".to_owned(),
            description: "",
            units: "",
            component: "",
            agent: 0,
            instance: 0,
            thread: None,
        };
        let mut metrics = NodeMetrics::new(1);
        for _ in 0..MAX_COUNTERS + 10 {
            metrics.add(BoundedFile::page(&path), FileMeaning::Value(1.0), vec![counter.clone()]);
        }
        let mut values = Vec::new();
        metrics.sample(0, Instant::now(), &mut values);
        assert_eq!(values, vec![None; MAX_COUNTERS]);
    }
}
