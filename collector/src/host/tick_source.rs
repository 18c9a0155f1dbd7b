//! Whether the processor's counter can serve as a clock.

use rpd_ring::ticks;
use std::fs;
use std::path::Path;

/// Why times are read from `CLOCK_BOOTTIME` and not as ticks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoTicks {
    /// The processor has no counter that this build reads, or `prctl(PR_SET_TSC)` forbids it.
    #[error("this processor has no counter that rpd reads, or this process may not read it")]
    Unreadable,
    /// The counter may stop or change its rate.
    #[error("the processor does not have the flag {0}")]
    NotSteady(&'static str),
    /// The kernel does not use the counter for its own clocks.
    #[error("the kernel's clock source is {0}, not tsc")]
    OtherSource(String),
}

/// Checks whether the counter runs at a constant rate and the kernel trusts it.
pub(crate) fn check() -> Result<(), NoTicks> {
    if !ticks::can_be_read() {
        return Err(NoTicks::Unreadable);
    }
    let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    judge(&read("/proc/cpuinfo"), source.trim())
}

fn judge(cpuinfo: &str, source: &str) -> Result<(), NoTicks> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let missing = ["constant_tsc", "nonstop_tsc", "rdtscp"]
        .into_iter()
        .find(|flag| !flags.split(' ').any(|word| word == *flag));
    match missing {
        Some(flag) => Err(NoTicks::NotSteady(flag)),
        None if source != "tsc" => Err(NoTicks::OtherSource(source.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_counter_that_the_kernel_trusts_is_a_clock() {
        let cpuinfo = "processor\t: 0\nflags\t\t: fpu tsc rdtscp constant_tsc nonstop_tsc sse\nbugs\t\t:\n";
        assert_eq!(judge(cpuinfo, "tsc"), Ok(()));
        assert_eq!(judge(cpuinfo, "kvm-clock"), Err(NoTicks::OtherSource("kvm-clock".to_owned())));
        assert_eq!(judge(&cpuinfo.replace("nonstop", ""), "tsc"), Err(NoTicks::NotSteady("nonstop_tsc")));
        assert_eq!(judge("", "tsc"), Err(NoTicks::NotSteady("constant_tsc")));
    }
}
