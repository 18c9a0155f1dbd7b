//! Finds amdgpu devices and their files.

use super::file::{BoundedFile, names_in, text_of};
use super::metrics::{FileMeaning, NodeMetrics};
use crate::shard_output::{MetricAgent, MetricCounter};
use std::path::{Path, PathBuf};

/// Maximum number of devices.
const MAX_GPUS: usize = 16;
/// PCI vendor id of AMD.
const AMD: &str = "0x1002";
/// Number of temperature sensors to try, from `temp1` on.
const MAX_SENSORS: usize = 8;

/// Returns the folders of all devices of AMD, in the order of PCI addresses.
pub(crate) fn amd_devices(root: &Path) -> Vec<PathBuf> {
    let cards = root.join("sys/class/drm");
    let is_card = |name: &String| {
        name.strip_prefix("card").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut devices: Vec<PathBuf> = names_in(&cards)
        .into_iter()
        .filter(is_card)
        .filter_map(|card| std::fs::canonicalize(cards.join(card).join("device")).ok())
        .filter(|device| text_of(&device.join("vendor")).is_some_and(|vendor| vendor == AMD))
        .collect();
    devices.sort();
    devices.dedup();
    devices
}

/// Adds every device of AMD.
pub(super) fn find(root: &Path, metrics: &mut NodeMetrics) {
    for (instance, device) in amd_devices(root).iter().take(MAX_GPUS).enumerate() {
        let agent = metrics.agents.len();
        metrics.agents.push(describe(device));
        add_files(device, agent, instance, metrics);
    }
}

fn describe(device: &Path) -> MetricAgent {
    // The address goes into JSON without escaping.
    let pci: String = device
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || ":._-".contains(*c))
        .take(64)
        .collect();
    let product = text_of(&device.join("product_name")).unwrap_or_default();
    MetricAgent { is_gpu: true, name: format!("amdgpu {pci}"), product, pci }
}

fn add_files(device: &Path, agent: usize, instance: usize, metrics: &mut NodeMetrics) {
    let mut add = |path: PathBuf, divisor: f64, name: &str, description, units| {
        let name = name.to_owned();
        let counter =
            MetricCounter { name, description, units, component: "gpu", agent, instance, thread: None };
        metrics.add(BoundedFile::page(&path), FileMeaning::Value(divisor), vec![counter]);
    };
    for (file, name, description, units) in [
        ("gpu_busy_percent", "gpu.busy", "Share of time in which the GPU was busy", "%"),
        ("mem_busy_percent", "gpu.memory_busy", "Share of time in which its memory was busy", "%"),
        ("mem_info_vram_used", "gpu.vram_used", "Memory of the GPU in use", "B"),
    ] {
        add(device.join(file), 1.0, name, description, units);
    }
    let Some(sensors) = names_in(&device.join("hwmon")).into_iter().find(|name| name.starts_with("hwmon"))
    else {
        return;
    };
    let sensors = device.join("hwmon").join(sensors);
    let power = ["power1_average", "power1_input"].map(|name| sensors.join(name));
    if let Some(power) = power.into_iter().find(|path| path.exists()) {
        add(power, 1e6, "gpu.power", "Power of the GPU", "W");
    }
    add(sensors.join("power1_cap"), 1e6, "gpu.power_cap", "Power that the GPU must not exceed", "W");
    for sensor in 1..=MAX_SENSORS {
        let (name, description) = match text_of(&sensors.join(format!("temp{sensor}_label"))).as_deref() {
            Some("edge") => ("gpu.temperature_edge", "Temperature at the edge of the die"),
            Some("junction") => ("gpu.temperature_junction", "Temperature of the hottest place of the die"),
            Some("mem") => ("gpu.temperature_memory", "Temperature of its memory"),
            _ => continue,
        };
        add(sensors.join(format!("temp{sensor}_input")), 1000.0, name, description, "\u{b0}C");
    }
    for (sensor, usual) in [(1, "sclk"), (2, "mclk")] {
        let label = text_of(&sensors.join(format!("freq{sensor}_label")));
        let (name, description) = match label.as_deref().unwrap_or(usual) {
            "sclk" => ("gpu.clock_shader", "Clock of the shaders"),
            "mclk" => ("gpu.clock_memory", "Clock of its memory"),
            _ => continue,
        };
        add(sensors.join(format!("freq{sensor}_input")), 1e6, name, description, "MHz");
    }
}
