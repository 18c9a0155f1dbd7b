//! Parses files of `/proc` and `/sys`. Skips what it cannot parse.

use std::str::FromStr;

/// Time that all CPUs together spent, clock ticks since boot. Only the total includes steal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CpuTimes {
    user: u64,
    system: u64,
    iowait: u64,
    idle: u64,
    steal: u64,
}

impl CpuTimes {
    /// Returns percentages of all CPUs since an earlier reading: user, system, iowait, idle. `None` if no
    /// time has passed.
    pub(super) fn since(self, before: CpuTimes) -> Option<[f64; 4]> {
        // The kernel sometimes decreases iowait and idle a little.
        let parts = [
            self.user.saturating_sub(before.user),
            self.system.saturating_sub(before.system),
            self.iowait.saturating_sub(before.iowait),
            self.idle.saturating_sub(before.idle),
        ];
        let steal = self.steal.saturating_sub(before.steal);
        let total = parts.iter().fold(steal, |sum, part| sum.saturating_add(*part));
        (total > 0).then(|| parts.map(|part| 100.0 * part as f64 / total as f64))
    }
}

/// Parses the first line of `/proc/stat`.
pub(super) fn cpu_times(stat: &str) -> Option<CpuTimes> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut numbers = line.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next();
    let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
    let mut later = || next().unwrap_or(0);
    let (iowait, irq, softirq, steal) = (later(), later(), later(), later());
    Some(CpuTimes {
        user: user.saturating_add(nice),
        system: system.saturating_add(irq).saturating_add(softirq),
        iowait,
        idle,
        steal,
    })
}

/// Parses `/proc/meminfo`: memory used (total less available) and swap used, bytes.
pub(super) fn memory_used(meminfo: &str) -> Option<[f64; 2]> {
    let bytes = |name: &str| -> Option<u64> {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(kibibytes.saturating_mul(1024))
    };
    let used = bytes("MemTotal")?.saturating_sub(bytes("MemAvailable")?);
    let swap = bytes("SwapTotal").zip(bytes("SwapFree")).map_or(0, |(all, free)| all.saturating_sub(free));
    Some([used as f64, swap as f64])
}

/// A device and some of its counters.
pub(super) type DeviceFlow<'a, const N: usize> = (&'a str, [u64; N]);

/// Parses `/proc/net/dev`: bytes received and sent, and received packets dropped, per interface.
pub(super) fn interfaces(dev: &str) -> impl Iterator<Item = DeviceFlow<'_, 3>> {
    dev.lines().filter_map(|line| {
        let (name, counters) = line.split_once(':')?;
        let mut words = counters.split_ascii_whitespace();
        let received = words.next()?.parse().ok()?;
        let dropped = words.nth(2)?.parse().ok()?;
        let sent = words.nth(4)?.parse().ok()?;
        Some((name.trim(), [received, sent, dropped]))
    })
}

/// Parses `/proc/net/snmp`: TCP segments sent again. A line of names is before that of the numbers.
pub(super) fn retransmits(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (lines.next()?.split_ascii_whitespace(), lines.next()?.split_ascii_whitespace());
    names.zip(numbers).find(|(name, _)| *name == "RetransSegs").and_then(|(_, number)| number.parse().ok())
}

/// Parses `/proc/diskstats`: sectors of 512 bytes read and written per block device.
pub(super) fn disks(diskstats: &str) -> impl Iterator<Item = DeviceFlow<'_, 2>> {
    diskstats.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next()?;
        let read = words.nth(2)?.parse().ok()?;
        let written = words.nth(3)?.parse().ok()?;
        Some((name, [read, written]))
    })
}

/// Parses the first two numbers of the version of a kernel, as of `5.14.0-427.el9.x86_64`.
pub(super) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Parses the first word of a file as a number.
pub(super) fn number<N: FromStr>(text: &str) -> Option<N> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_a_real_system_are_understood() {
        let before = cpu_times("cpu  100 20 30 4000 50 6 7 8 0 0\ncpu0 1 2 3 4\nintr 9\n").unwrap();
        let after = cpu_times("cpu  140 30 50 4100 60 11 12 18 3 0\n").unwrap();
        assert_eq!(after.since(before), Some([25.0, 15.0, 5.0, 50.0]));
        assert_eq!(after.since(after), None);
        // An old kernel, and an iowait that decreased.
        let old = cpu_times("cpu 1 2 3 4").unwrap();
        assert_eq!(old.iowait, 0);
        let back = CpuTimes { iowait: 49, idle: 4010, ..before };
        assert_eq!(back.since(before), Some([0.0, 0.0, 0.0, 100.0]));
        assert_eq!(cpu_times("cpu0 1 2 3 4\n"), None);

        let meminfo =
            "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB";
        assert_eq!(memory_used(meminfo), Some([614_400.0, 30_720.0]));
        assert_eq!(memory_used("MemTotal: 1000 kB\nMemFree: 1 kB\n"), None);

        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10\n  \
                   eth0:18446744073709551615 0 0 0 0 0 0 0 42 0 0 0 0 0 0 0\n bad: 1 2 x\n";
        assert_eq!(interfaces(dev).collect::<Vec<_>>(), [("lo", [1, 9, 4]), ("eth0", [u64::MAX, 42, 0])]);

        let snmp =
            "Ip: Forwarding\nIp: 1\nTcp: RtoMin MaxConn OutSegs RetransSegs InErrs\nTcp: 200 -1 90 17 0\n";
        assert_eq!(retransmits(snmp), Some(17));
        assert_eq!(retransmits("Tcp: RtoMin RetransSegs\nTcp: 200\n"), None);

        let diskstats = " 254 0 vda 30 13 179 52 37 25 273 18 0 28\n 254 1 vda1 1\n";
        assert_eq!(disks(diskstats).collect::<Vec<_>>(), [("vda", [179, 273])]);
        assert_eq!((number("-40000\n"), number("")), (Some(-40_000_i64), None::<i64>));
        assert_eq!(number("7 8 9"), Some(7_u64));
        assert_eq!(kernel_version("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(kernel_version("6.18-rc1"), Some((6, 18)));
        assert_eq!((kernel_version("6"), kernel_version("linux"), kernel_version("")), (None, None, None));
    }

    /// Texts that resemble valid ones.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let words = proptest::sample::select(vec![
            "cpu ",
            "cpu",
            "MemTotal:",
            "MemAvailable:",
            "SwapTotal:",
            "eth0:",
            "Tcp:",
            "RetransSegs",
            ":",
            "sda",
            " ",
            "\n",
            "-1",
            "0",
            "18446744073709551615",
            "99999999999999999999",
            "kB",
        ]);
        let shaped = proptest::collection::vec(words, 0..60).prop_map(|words| words.join(" ").into_bytes());
        prop_oneof![shaped, proptest::collection::vec(any::<u8>(), 0..400)]
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(before in texts(), after in texts()) {
            let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&after));
            if let (Some(before), Some(after)) = (cpu_times(&before), cpu_times(&after))
                && let Some(percent) = after.since(before)
            {
                prop_assert!(percent.iter().all(|value| (0.0..=100.0).contains(value)));
            }
            if let Some(used) = memory_used(&before) {
                prop_assert!(used.iter().all(|bytes| *bytes >= 0.0 && bytes.is_finite()));
            }
            interfaces(&before).for_each(drop);
            disks(&before).for_each(drop);
            let _ = (number::<i64>(&before), number::<u64>(&before), retransmits(&before));
        }
    }
}
