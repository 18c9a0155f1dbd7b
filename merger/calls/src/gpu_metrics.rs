//! Clock, power and temperature of GPUs, which the collector of each node samples.

use crate::cpu_shares::{CpuShare, in_few_intervals, values_between};
use crate::thread_cpus::read_counters;
use rpd_console::Failure;
use rpd_run::{RowUnit, RunDatabase, UnitNames};
use rpd_shard::model::rocpd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names of the counters: shader clock, power, junction temperature, and the power that must not be exceeded.
const COUNTERS: [&str; 4] = ["gpu.clock_shader", "gpu.power", "gpu.temperature_junction", "gpu.power_cap"];
/// Maximum number of GPUs of a unit.
const MAX_GPUS: usize = 256;
/// Maximum length of a PCI address.
const MAX_PCI_BYTES: usize = 64;
/// Maximum number of values of a GPU; of more, means of neighbours are kept.
const MAX_VALUES: usize = 512;
/// Share of the time in which a value may be exceeded and still counts as the highest one.
const MAX_EXCEEDED: f64 = 0.1;
/// Maximum absolute value.
const MAX_VALUE: f64 = 1e9;

/// A value until the time of the next one. The last one has no end and no meaning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct HeldValue {
    /// Start, ns in job time.
    start_ns: i64,
    value: f32,
}

/// Recorded clock, power and temperature of a GPU over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GpuMetrics {
    /// Values of each of [`COUNTERS`], by time; empty if they are not recorded.
    values: [Vec<HeldValue>; COUNTERS.len()],
}

impl GpuMetrics {
    /// Returns the mean of the shader clock between two times in job time, MHz, and of how much of that time it is known, ns.
    pub fn shader_clock_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        self.mean_between(0, from_ns, to_ns)
    }

    /// Returns the shader clock between two times in job time that is not exceeded in nine tenths of the time, MHz, and of how
    /// much of it the clock is known, ns.
    pub fn highest_shader_clock_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        let held = values_between(&self.values[0], |held| held.start_ns, from_ns, to_ns);
        let mut held: Vec<(f64, f64)> = held.map(|(held, length)| (f64::from(held.value), length)).collect();
        held.sort_by(|one, other| other.0.total_cmp(&one.0));
        let known_ns: f64 = held.iter().map(|(_, length)| length).sum();
        let mut longer_ns = 0.0;
        let highest = held.iter().find(|(_, length)| {
            longer_ns += length;
            longer_ns > known_ns * MAX_EXCEEDED
        });
        (highest.map_or(0.0, |(value, _)| *value), known_ns)
    }

    /// Returns the mean of the power in the same way, W.
    pub fn power_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        self.mean_between(1, from_ns, to_ns)
    }

    /// Returns the mean of the junction temperature in the same way, degrees Celsius.
    pub fn temperature_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        self.mean_between(2, from_ns, to_ns)
    }

    /// Returns the mean of the power that it must not exceed in the same way, W.
    pub fn power_cap_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        self.mean_between(3, from_ns, to_ns)
    }

    fn mean_between(&self, counter: usize, from_ns: i64, to_ns: i64) -> (f64, f64) {
        let held = values_between(&self.values[counter], |held| held.start_ns, from_ns, to_ns);
        let (sum, known_ns) = held.fold((0.0, 0.0), |(sum, known), (held, length)| {
            (sum + f64::from(held.value) * length, known + length)
        });
        (sum / known_ns.max(1.0), known_ns)
    }

    /// Returns how many bytes its lists take.
    fn bytes(&self) -> usize {
        self.values.iter().map(|values| size_of_val(&values[..])).sum()
    }

    fn is_valid(&self) -> bool {
        self.values.iter().all(|values| {
            values.len() <= MAX_VALUES
                && values.iter().all(|held| f64::from(held.value).abs() <= MAX_VALUE)
                && values.is_sorted_by(|one, other| one.start_ns < other.start_ns)
        })
    }
}

/// The GPUs on which a process has work.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessGpus {
    /// Their number.
    pub count: usize,
    /// Recorded metrics of the GPU, if it is the only one.
    pub metrics: GpuMetrics,
}

/// The GPUs of a unit by their PCI addresses.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct UnitGpus {
    /// The ones on which the unit has work; empty addresses, where these are not known.
    pub(crate) used: Vec<String>,
    /// Metrics of the GPUs of its node that the unit records.
    pub(crate) metrics: BTreeMap<String, GpuMetrics>,
}

impl UnitGpus {
    /// Reads the metrics that a unit records.
    pub(crate) fn read_metrics(
        run: &RunDatabase,
        unit: &RowUnit,
    ) -> Result<BTreeMap<String, GpuMetrics>, Failure> {
        let mut found: BTreeMap<String, GpuMetrics> = BTreeMap::new();
        if unit.is_unclaimed || !unit.has_rows(rocpd::PMC_EVENT) {
            return Ok(found);
        }
        let names = UnitNames::read(&run.tables, unit)?;
        let mut addresses: Vec<&str> = Vec::new();
        let counters = names.counters.iter().map(|counter| {
            let number = COUNTERS.iter().position(|name| *name == counter.name)?;
            let agent = names.agents.at(names.agents.place(counter.agent)).filter(|agent| agent.is_gpu)?;
            let pci = agent.pci.as_deref().filter(|pci| (1..=MAX_PCI_BYTES).contains(&pci.len()))?;
            let gpu = addresses.iter().position(|known| *known == pci).unwrap_or_else(|| {
                addresses.push(pci);
                addresses.len() - 1
            });
            (gpu < MAX_GPUS).then_some((gpu, number))
        });
        let counters: Vec<Option<(usize, usize)>> = counters.collect();
        if counters.iter().all(Option::is_none) {
            return Ok(found);
        }
        let place = |id: Option<i64>| counters.get(names.counters.place(id)? as usize).copied().flatten();
        for ((gpu, number), values) in read_counters(run, unit, place)? {
            let of_gpu = found.entry(addresses[gpu].to_owned()).or_default();
            let shares = values
                .into_iter()
                .map(|(start_ns, value)| CpuShare { start_ns, share: value.clamp(-MAX_VALUE, MAX_VALUE) });
            let held = |share: CpuShare| HeldValue { start_ns: share.start_ns, value: share.share as f32 };
            of_gpu.values[number] =
                in_few_intervals(shares.collect(), MAX_VALUES).into_iter().map(held).collect();
        }
        Ok(found)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.metrics.values().map(|metrics| metrics.bytes() as u64).sum()
    }

    /// Returns whether it is one that a unit can have.
    pub(crate) fn is_valid(&self) -> bool {
        let are_short = |pci: &String| pci.len() <= MAX_PCI_BYTES;
        self.used.len() <= MAX_GPUS
            && self.metrics.len() <= MAX_GPUS
            && self.used.iter().chain(self.metrics.keys()).all(are_short)
            && self.metrics.values().all(GpuMetrics::is_valid)
    }

    /// Adds a GPU on which the unit has work.
    pub(crate) fn add_used(&mut self, pci: Option<&str>) {
        let pci = pci.filter(|pci| pci.len() <= MAX_PCI_BYTES).unwrap_or_default();
        if self.used.len() < MAX_GPUS {
            self.used.push(pci.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_over_the_time_that_is_known() {
        let clock = [(100, 2000.0), (200, 1000.0), (400, 7.0)];
        let clock = clock.map(|(start_ns, value)| HeldValue { start_ns, value });
        let metrics = GpuMetrics { values: [clock.to_vec(), Vec::new(), Vec::new(), Vec::new()] };
        assert_eq!(metrics.shader_clock_between(0, 1000), (4000.0 / 3.0, 300.0));
        assert_eq!(metrics.shader_clock_between(150, 250), (1500.0, 100.0));
        assert_eq!(metrics.shader_clock_between(400, 1000), (0.0, 0.0));
        assert_eq!(metrics.power_between(0, 1000), (0.0, 0.0));
        assert_eq!(metrics.highest_shader_clock_between(0, 1000), (2000.0, 300.0));
        assert_eq!(metrics.highest_shader_clock_between(195, 1000), (1000.0, 205.0));
        assert_eq!(metrics.highest_shader_clock_between(400, 1000), (0.0, 0.0));
        assert!(metrics.is_valid());
    }
}
