//! A simulated tree of `/proc` and `/sys`, and the exact values that it must give.

use super::metrics::{MAX_COUNTERS, NodeMetrics};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// ns between the two samples.
const PASSED: i64 = 500_000_000;

/// A simulated node.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Node {
        Node(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// A card with its device at a PCI address.
    fn card(&self, card: &str, pci: &str, vendor: &str) -> String {
        let device = format!("sys/devices/pci0000:00/{pci}");
        self.write(&format!("{device}/vendor"), &format!("{vendor}\n"));
        self.link(&format!("sys/class/drm/{card}/device"), &format!("../../../devices/pci0000:00/{pci}"));
        device
    }
}

/// Values of the counters by name. Those of GPUs have the number of the GPU.
fn sample(metrics: &mut NodeMetrics, time: i64) -> BTreeMap<String, f64> {
    let mut values = Vec::new();
    metrics.sample(time, Instant::now() + Duration::from_secs(60), &mut values);
    assert_eq!(values.len(), metrics.counters.len());
    let named = metrics.counters.iter().zip(values).filter_map(|(counter, value)| {
        let name = match counter.agent {
            0 => counter.name.clone(),
            gpu => format!("{gpu}:{}", counter.name),
        };
        Some((name, value?))
    });
    named.collect()
}

fn map(expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// Everything that can be sampled, at the first moment.
fn full_node() -> Node {
    let node = Node::new();
    node.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9654\n");
    node.write("proc/stat", "cpu  1000 0 500 8000 100 0 0 0 0 0\ncpu0 1 2 3\n");
    node.write(
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n",
    );
    node.write("proc/thread-self/schedstat", "1000000 5 6\n");
    node.write("proc/sys/kernel/osrelease", "6.8.0-31-generic\n");
    // The CPU without a frequency is offline.
    for (cpu, khz) in [("cpu0", "2000000\n"), ("cpu1", "3000500\n"), ("cpuidle", "1\n")] {
        node.write(&format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_cur_freq"), khz);
    }
    node.write("sys/devices/system/cpu/cpu2/online", "0\n");
    node.write("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 9000 40\n");
    let interfaces = "    lo: 5 0 0 0 0 0 0 0 5 0\n  eth0: 1000 0 0 7 0 0 0 0 2000 0\n";
    node.write("proc/net/dev", &format!("Inter-|\n face |bytes\n{interfaces}"));
    let disks = [
        "7 0 loop0 1 1 100 1 1 1 100",
        "1 0 ram0 1 1 100 1 1 1 100",
        "259 0 nvme0n1 1 1 100 1 1 1 200 1",
        "259 1 nvme0n1p1 1 1 100 1 1 1 100",
    ];
    node.write("proc/diskstats", &(disks.join("\n") + "\n"));
    for disk in ["loop0", "ram0", "nvme0n1"] {
        node.write(&format!("sys/block/{disk}/size"), "1\n");
    }
    for (file, words) in [
        ("port_rcv_data", "100\n"),
        ("port_xmit_data", "18446744073709551000\n"),
        ("port_xmit_wait", "0\n"),
        ("symbol_error", "3\n"),
        ("link_downed", "1\n"),
    ] {
        node.write(&format!("sys/class/infiniband/mlx5_0/ports/1/counters/{file}"), words);
    }

    // The lower PCI address has the higher card number. Also a card of another vendor, and a connector.
    let first = node.card("card1", "0000:03:00.0", "0x1002");
    node.write(&format!("{first}/gpu_busy_percent"), "97\n");
    node.write(&format!("{first}/mem_busy_percent"), "40\n");
    node.write(&format!("{first}/mem_info_vram_used"), "68719476736\n");
    node.write(&format!("{first}/product_name"), "AMD Instinct MI300X\n");
    for (file, text) in [
        ("power1_input", "1\n"),
        ("power1_average", "750500000\n"),
        ("power1_cap", "751000000\n"),
        ("temp1_label", "edge\n"),
        ("temp1_input", "45000\n"),
        ("temp2_label", "junction\n"),
        ("temp2_input", "-500\n"),
        ("temp3_label", "mem\n"),
        ("temp3_input", "52000\n"),
        ("temp4_label", "HBM 0\n"),
        ("temp4_input", "1\n"),
        ("freq1_label", "sclk\n"),
        ("freq1_input", "2100000000\n"),
        ("freq2_label", "mclk\n"),
        ("freq2_input", "1300000000\n"),
    ] {
        node.write(&format!("{first}/hwmon/hwmon7/{file}"), text);
    }
    let second = node.card("card0", "0000:c1:00.0", "0x1002");
    node.write(&format!("{second}/gpu_busy_percent"), "0\n");
    node.write(&format!("{second}/hwmon/hwmon2/power1_input"), "90000000\n");
    let other = node.card("card2", "0000:04:00.0", "0x10de");
    node.write(&format!("{other}/gpu_busy_percent"), "50\n");
    node.write("sys/class/drm/card1-DP-1/device/vendor", "0x1002\n");
    node
}

#[test]
fn every_file_of_a_full_node_gives_its_values() {
    for most_open in [0, 5, 1000] {
        check_full_node(most_open);
    }
}

fn check_full_node(most_open: usize) {
    let node = full_node();
    let mut metrics = NodeMetrics::find(node.root(), most_open);
    // Where descriptors are few, the frequency is not read.
    let frequency = (most_open > 0).then_some(("cpu.frequency", 2500.0));
    let absolute: Vec<(&str, f64)> = [
        ("memory.used", 409_600.0),
        ("memory.swap_used", 10_240.0),
        ("1:gpu.busy", 97.0),
        ("1:gpu.memory_busy", 40.0),
        ("1:gpu.vram_used", 68_719_476_736.0),
        ("1:gpu.power", 750.5),
        ("1:gpu.power_cap", 751.0),
        ("1:gpu.temperature_edge", 45.0),
        ("1:gpu.temperature_junction", -0.5),
        ("1:gpu.temperature_memory", 52.0),
        ("1:gpu.clock_shader", 2100.0),
        ("1:gpu.clock_memory", 1300.0),
        ("2:gpu.busy", 0.0),
        ("2:gpu.power", 90.0),
    ]
    .into_iter()
    .chain(frequency)
    .collect();
    assert_eq!(sample(&mut metrics, 0), map(&absolute), "the first time there are no differences");

    // Half a second later.
    node.write("proc/stat", "cpu  1060 0 520 8100 120 0 0 0 0 0\n");
    node.write("proc/thread-self/schedstat", "2000000 5 6\n");
    let interfaces = "    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 2500 0 0 8 0 0 0 0 2000 0\n";
    node.write("proc/net/dev", interfaces);
    node.write("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 9900 46\n");
    node.write("proc/diskstats", "259 0 nvme0n1 1 1 110 1 1 1 200 1\n259 1 nvme0n1p1 1 1 900 1 1 1 900\n");
    for (file, words) in [
        ("port_rcv_data", "1100\n"),
        ("port_xmit_data", "18446744073709551500\n"),
        ("port_xmit_wait", "600\n"),
        ("symbol_error", "3\n"),
        ("link_downed", "2\n"),
    ] {
        node.write(&format!("sys/class/infiniband/mlx5_0/ports/1/counters/{file}"), words);
    }
    let mut expected = map(&absolute);
    expected.extend(map(&[
        ("cpu.user", 30.0),
        ("cpu.system", 10.0),
        ("cpu.iowait", 10.0),
        ("cpu.idle", 50.0),
        ("sampler.cpu", 0.2),
        ("network.eth0.rx", 3000.0),
        ("network.eth0.tx", 0.0),
        ("network.eth0.rx_dropped", 2.0),
        ("network.tcp_retransmits", 12.0),
        ("infiniband.mlx5_0.1.rx", 8000.0),
        ("infiniband.mlx5_0.1.tx", 4000.0),
        ("infiniband.mlx5_0.1.xmit_wait", 1200.0),
        ("infiniband.mlx5_0.1.symbol_errors", 0.0),
        ("infiniband.mlx5_0.1.link_downed", 2.0),
        ("disk.nvme0n1.read", 10_240.0),
        ("disk.nvme0n1.write", 0.0),
    ]));
    assert_eq!(sample(&mut metrics, PASSED), expected);
    assert_eq!(metrics.counters.len(), expected.len());

    let agents: Vec<_> =
        metrics.agents.iter().map(|a| (a.name.as_str(), a.pci.as_str(), a.product.as_str())).collect();
    let expected = [
        ("AMD EPYC 9654", "", ""),
        ("amdgpu 0000:03:00.0", "0000:03:00.0", "AMD Instinct MI300X"),
        ("amdgpu 0000:c1:00.0", "0000:c1:00.0", ""),
    ];
    assert_eq!(agents, expected);
}

#[test]
fn counters_that_go_back_or_away_give_no_value() {
    let node = full_node();
    let mut metrics = NodeMetrics::find(node.root(), 1000);
    let _ = sample(&mut metrics, 0);
    node.write("proc/net/dev", "  eth0: 10 0 0 0 0 0 0 0 2600 0\n");
    node.write("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "0\n");
    let values = sample(&mut metrics, PASSED);
    assert_eq!(values.get("network.eth0.rx"), None, "it was reset");
    assert_eq!(values.get("network.eth0.tx"), Some(&1200.0));
    assert_eq!(values.get("infiniband.mlx5_0.1.tx"), None);
    node.write("proc/net/dev", "  eth1: 10 0 0 0 0 0 0 0 2600 0\n");
    assert_eq!(sample(&mut metrics, 2 * PASSED).get("network.eth0.tx"), None, "it is gone");
    node.write("proc/net/dev", "  eth0: 20 0 0 0 0 0 0 0 2700 0\n");
    assert_eq!(sample(&mut metrics, 3 * PASSED).get("network.eth0.tx"), None, "nobody knows since when");
    node.write("proc/net/dev", "  eth0: 30 0 0 0 0 0 0 0 2700 0\n");
    assert_eq!(sample(&mut metrics, 4 * PASSED).get("network.eth0.rx"), Some(&20.0));
}

#[test]
fn sums_that_have_reached_their_maximum_have_no_rate() {
    let node = full_node();
    let mut metrics = NodeMetrics::find(node.root(), 1000);
    let _ = sample(&mut metrics, 0);
    let counters = "sys/class/infiniband/mlx5_0/ports/1/counters";
    node.write(&format!("{counters}/port_xmit_wait"), "4294967295\n");
    node.write(&format!("{counters}/symbol_error"), "65535\n");
    node.write(&format!("{counters}/link_downed"), "255\n");
    for time in [PASSED, 2 * PASSED] {
        let values = sample(&mut metrics, time);
        for counter in ["xmit_wait", "symbol_errors", "link_downed"] {
            assert_eq!(values.get(&format!("infiniband.mlx5_0.1.{counter}")), None, "{counter}");
        }
    }
}

#[test]
fn the_frequency_is_that_of_some_cpus_and_not_read_where_that_interrupts_them() {
    let node = Node::new();
    for cpu in 0..40 {
        // Every third one is sampled.
        let khz = if cpu % 3 == 0 { "2000000" } else { "1" };
        node.write(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"), khz);
    }
    node.write("proc/sys/kernel/osrelease", "5.14.0-427.el9.x86_64\n");
    assert_eq!(NodeMetrics::find(node.root(), 1000).counters.len(), 0);
    node.write("proc/sys/kernel/osrelease", "5.19.0\n");
    let mut metrics = NodeMetrics::find(node.root(), 1000);
    assert_eq!(sample(&mut metrics, 0), map(&[("cpu.frequency", 2000.0)]));
    // A CPU goes offline.
    node.write("sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq", "<unknown>\n");
    for time in 1..10 {
        assert_eq!(sample(&mut metrics, time * PASSED), map(&[("cpu.frequency", 2000.0)]));
    }
}

#[test]
fn a_node_with_nothing_has_no_counters() {
    let node = Node::new();
    let mut metrics = NodeMetrics::find(node.root(), 1000);
    assert_eq!(sample(&mut metrics, 0), map(&[]));
    assert_eq!((metrics.counters.len(), metrics.agents.len()), (0, 1));
}

#[test]
fn devices_are_limited() {
    let node = Node::new();
    let many = 40;
    let interface = |n: u32| format!("if{n}: 1 0 0 0 0 0 0 0 1 0\n");
    node.write("proc/net/dev", &(0..many).map(interface).collect::<String>());
    node.write(
        "proc/diskstats",
        &(0..many).map(|n| format!("8 {n} sd{n} 1 1 1 1 1 1 1\n")).collect::<String>(),
    );
    for n in 0..many {
        node.write(&format!("sys/block/sd{n}/size"), "1\n");
        for file in ["port_rcv_data", "port_xmit_data", "port_xmit_wait", "symbol_error", "link_downed"] {
            node.write(&format!("sys/class/infiniband/mlx{n}/ports/1/counters/{file}"), "1\n");
        }
        let device = node.card(&format!("card{n}"), &format!("0000:{n:02x}:00.0"), "0x1002");
        for file in ["gpu_busy_percent", "mem_busy_percent", "mem_info_vram_used"] {
            node.write(&format!("{device}/{file}"), "1\n");
        }
        let labels = ["edge", "junction", "mem"];
        for (sensor, label) in (1..).zip(labels) {
            node.write(&format!("{device}/hwmon/hwmon{n}/temp{sensor}_label"), label);
            node.write(&format!("{device}/hwmon/hwmon{n}/temp{sensor}_input"), "1\n");
        }
        for file in ["power1_average", "power1_cap", "freq1_input", "freq2_input"] {
            node.write(&format!("{device}/hwmon/hwmon{n}/{file}"), "1\n");
        }
    }
    let metrics = NodeMetrics::find(node.root(), 1000);
    assert_eq!(metrics.agents.len(), 1 + 16);
    assert_eq!(metrics.counters.len(), 16 * (3 + 2 + 5 + 10));
    assert!(metrics.counters.len() <= MAX_COUNTERS);
    assert_eq!(metrics.counters[0].name, "network.if0.rx");
}
