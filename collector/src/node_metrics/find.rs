//! Finds the files of this node to sample.

use super::file::{BoundedFile, MAX_FILE_BYTES, MAX_NAME_BYTES, names_in, text_of};
use super::metrics::{DeviceFlows, FileMeaning, GrowingSum, NodeMetrics};
use super::{gpu, parse};
use crate::shard_output::{MetricAgent, MetricCounter};
use std::path::Path;

/// Maximum number of interfaces, of disks and of InfiniBand ports.
const MAX_DEVICES: usize = 16;
/// Maximum number of CPUs whose frequency is read.
const MAX_CPUS: usize = 16;
/// First kernel that reads the frequency of a CPU without an interrupt to it, and without a pause.
const QUIET_FREQUENCY: (u32, u32) = (5, 19);
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
        find_frequency(root, &mut metrics);
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
        FileMeaning::Rate(GrowingSum::number(1e-7)),
        vec![of_node("sampler.cpu".to_owned(), "Share of one CPU in this sampling", "%", "rpd")],
    );
}

/// Adds the mean frequency of up to [`MAX_CPUS`] CPUs, at equal distances in the order of their numbers, where reading it does
/// not disturb them.
fn find_frequency(root: &Path, metrics: &mut NodeMetrics) {
    let release = text_of(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    if parse::kernel_version(&release).is_none_or(|version| version < QUIET_FREQUENCY) {
        return;
    }
    let cpus = root.join("sys/devices/system/cpu");
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
    let names: Vec<String> = names_in(&cpus).into_iter().filter(is_cpu).collect();
    let distance = names.len().div_ceil(MAX_CPUS).max(1);
    let file = |name: &String| BoundedFile::page(&cpus.join(name).join("cpufreq/scaling_cur_freq"));
    let files = names.iter().step_by(distance).filter_map(file).collect();
    let description = "Mean frequency of at most 16 CPUs";
    metrics.add_mean(files, 1000.0, of_node("cpu.frequency".to_owned(), description, "MHz", "cpu"));
}

fn find_interfaces(root: &Path, metrics: &mut NodeMetrics) {
    let path = root.join("proc/net/dev");
    let names = names_of(&path, |text| {
        parse::interfaces(text).map(|(name, _)| name.to_owned()).filter(|name| name != "lo").collect()
    });
    let counters = [
        ("rx", "Bytes received by the interface", "B/s"),
        ("tx", "Bytes sent by the interface", "B/s"),
        ("rx_dropped", "Received packets that were dropped", "1/s"),
    ];
    add_flows(&path, names, "network", counters, FileMeaning::Interfaces, metrics);
    let description = "TCP segments that were sent again";
    metrics.add(
        BoundedFile::page(&root.join("proc/net/snmp")),
        FileMeaning::Rate(GrowingSum::parsed(parse::retransmits, 1.0)),
        vec![of_node("network.tcp_retransmits".to_owned(), description, "1/s", "network")],
    );
}

fn find_disks(root: &Path, metrics: &mut NodeMetrics) {
    let path = root.join("proc/diskstats");
    let names = names_of(&path, |text| {
        let names = parse::disks(text).map(|(name, _)| name.to_owned());
        names.filter(|name| is_whole_disk(root, name)).collect()
    });
    let counters =
        [("read", "Bytes read from the device", "B/s"), ("write", "Bytes written to the device", "B/s")];
    add_flows(&path, names, "disk", counters, FileMeaning::Disks, metrics);
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
        // The port counts words of four bytes.
        let ticks = "Ticks in which the port had data and sent none";
        for (file, counter, description, units, (unit, max)) in [
            ("port_rcv_data", "rx", "Bytes received by the port", "B/s", (4.0, u64::MAX)),
            ("port_xmit_data", "tx", "Bytes sent by the port", "B/s", (4.0, u64::MAX)),
            ("port_xmit_wait", "xmit_wait", ticks, "1/s", (1.0, u64::from(u32::MAX))),
            (
                "symbol_error",
                "symbol_errors",
                "Minor link errors of the port",
                "1/s",
                (1.0, u64::from(u16::MAX)),
            ),
            ("link_downed", "link_downed", "Failed recoveries of the link", "1/s", (1.0, u64::from(u8::MAX))),
        ] {
            let counter = of_node(format!("infiniband.{name}.{counter}"), description, units, "infiniband");
            let file = BoundedFile::page(&folder.join("counters").join(file));
            let counters = vec![MetricCounter { instance, ..counter }];
            metrics.add(file, FileMeaning::Rate(GrowingSum::up_to(max, unit)), counters);
        }
    }
}

/// Adds a file with these counters, by name, description and units, for each device that it lists.
fn add_flows<const N: usize>(
    path: &Path,
    names: Vec<String>,
    component: &'static str,
    of_device: [(&str, &'static str, &'static str); N],
    meaning: fn(DeviceFlows<N>) -> FileMeaning,
    metrics: &mut NodeMetrics,
) {
    let counters = names.iter().enumerate().flat_map(|(instance, device)| {
        of_device.map(|(counter, description, units)| {
            let name = format!("{component}.{device}.{counter}");
            MetricCounter { instance, ..of_node(name, description, units, component) }
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
