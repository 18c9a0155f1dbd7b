//! Finds the files of this node to sample.

use super::file::{BoundedFile, MAX_FILE_BYTES, MAX_NAME_BYTES, names_in, text_of};
use super::metrics::{DeviceFlows, FileMeaning, NodeMetrics};
use super::{gpu, parse};
use crate::shard_output::{MetricAgent, MetricCounter};
use std::path::Path;

/// Maximum number of interfaces, of disks and of InfiniBand ports.
const MAX_DEVICES: usize = 16;
/// Index of the agent for the CPUs and for the node as a whole.
const NODE: usize = 0;

impl NodeMetrics {
    /// Finds everything that can be sampled below `root`. At most `max_open_files` files stay open.
    pub(super) fn find(root: &Path, max_open_files: usize) -> NodeMetrics {
        let mut metrics = NodeMetrics::new(max_open_files);
        metrics.agents.push(MetricAgent {
            is_gpu: false,
            name: cpu_model(root),
            product: String::new(),
            pci: String::new(),
        });
        find_cpu_and_memory(root, &mut metrics);
        find_interfaces(root, &mut metrics);
        find_infiniband(root, &mut metrics);
        find_disks(root, &mut metrics);
        gpu::find(root, &mut metrics);
        metrics
    }
}

/// Returns the model of the CPUs, or their architecture.
pub(super) fn cpu_model(root: &Path) -> String {
    let cpuinfo = text_of(&root.join("proc/cpuinfo")).unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn of_node(
    name: String,
    description: &'static str,
    units: &'static str,
    component: &'static str,
) -> MetricCounter {
    MetricCounter { name, description, units, component, agent: NODE, instance: 0, thread: None }
}

fn find_cpu_and_memory(root: &Path, metrics: &mut NodeMetrics) {
    let cpu = |name: &str, description| of_node(name.to_owned(), description, "%", "cpu");
    metrics.add(
        BoundedFile::page(&root.join("proc/stat")),
        FileMeaning::Cpu(None),
        vec![
            cpu("cpu.user", "Share of all CPUs in programs"),
            cpu("cpu.system", "Share of all CPUs in the kernel, interrupts included"),
            cpu("cpu.iowait", "Share of all CPUs idle while a program waits for a disk"),
            cpu("cpu.idle", "Share of all CPUs idle"),
        ],
    );
    let memory = |name: &str, description| of_node(name.to_owned(), description, "B", "memory");
    metrics.add(
        BoundedFile::page(&root.join("proc/meminfo")),
        FileMeaning::Memory,
        vec![
            memory("memory.used", "Memory that is not available to programs"),
            memory("memory.swap_used", "Swap space in use"),
        ],
    );
    // Converts ns to percent. `thread-self` is the thread that opens the file: the sampling thread.
    metrics.add(
        BoundedFile::page(&root.join("proc/thread-self/schedstat")),
        FileMeaning::Rate(1e-7, None),
        vec![of_node("sampler.cpu".to_owned(), "Share of one CPU in this sampling", "%", "rpd")],
    );
}

fn find_interfaces(root: &Path, metrics: &mut NodeMetrics) {
    let path = root.join("proc/net/dev");
    let names = names_of(&path, |text| {
        parse::interfaces(text).map(|(name, _)| name.to_owned()).filter(|name| name != "lo").collect()
    });
    let directions = [("rx", "Bytes received by the interface"), ("tx", "Bytes sent by the interface")];
    add_flows(&path, names, "network", directions, FileMeaning::Interfaces, metrics);
}

fn find_disks(root: &Path, metrics: &mut NodeMetrics) {
    let path = root.join("proc/diskstats");
    let names = names_of(&path, |text| {
        let names = parse::disks(text).map(|(name, _)| name.to_owned());
        names.filter(|name| is_whole_disk(root, name)).collect()
    });
    let directions = [("read", "Bytes read from the device"), ("write", "Bytes written to the device")];
    add_flows(&path, names, "disk", directions, FileMeaning::Disks, metrics);
}

/// Partitions have no folder of their own below `/sys/block`. Loop and ram devices are not disks.
fn is_whole_disk(root: &Path, name: &str) -> bool {
    let no_disk = ["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
    !no_disk && root.join("sys/block").join(name.replace('/', "!")).exists()
}

fn find_infiniband(root: &Path, metrics: &mut NodeMetrics) {
    let devices = root.join("sys/class/infiniband");
    let ports = names_in(&devices).into_iter().flat_map(|device| {
        let ports = devices.join(&device).join("ports");
        names_in(&ports).into_iter().map(move |port| (format!("{device}.{port}"), ports.join(port)))
    });
    for (instance, (name, folder)) in ports.take(MAX_DEVICES).enumerate() {
        for (file, direction, description) in [
            ("port_rcv_data", "rx", "Bytes received by the port"),
            ("port_xmit_data", "tx", "Bytes sent by the port"),
        ] {
            let counter = of_node(format!("infiniband.{name}.{direction}"), description, "B/s", "infiniband");
            let file = BoundedFile::page(&folder.join("counters").join(file));
            // The port counts words of four bytes.
            metrics.add(file, FileMeaning::Rate(4.0, None), vec![MetricCounter { instance, ..counter }]);
        }
    }
}

/// Adds a file with two counters for each device that it lists.
fn add_flows(
    path: &Path,
    names: Vec<String>,
    component: &'static str,
    directions: [(&str, &'static str); 2],
    meaning: fn(DeviceFlows) -> FileMeaning,
    metrics: &mut NodeMetrics,
) {
    let counters = names.iter().enumerate().flat_map(|(instance, device)| {
        directions.map(|(direction, description)| {
            let name = format!("{component}.{device}.{direction}");
            MetricCounter { instance, ..of_node(name, description, "B/s", component) }
        })
    });
    let counters = counters.collect();
    if !names.is_empty() {
        metrics.add(BoundedFile::lines(path), meaning(DeviceFlows::of(names)), counters);
    }
}

/// Returns the devices that a file lists.
fn names_of(path: &Path, parse: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut buffer = vec![0; MAX_FILE_BYTES];
    let text =
        BoundedFile::lines(path).and_then(|file| file.read(&mut buffer).ok().map(String::from_utf8_lossy));
    let mut names = text.map(|text| parse(&text)).unwrap_or_default();
    names.retain(|name| name.len() <= MAX_NAME_BYTES);
    names.truncate(MAX_DEVICES);
    names
}
