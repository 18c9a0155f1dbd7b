//! How much memory the machine and its cgroups leave a process.

mod cgroup;

pub use cgroup::MemoryCgroup;

/// Returns the bytes of memory that this process may use at most: those of the machine, or the limit of its cgroup if that
/// is lower.
pub fn usable_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let of_machine = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let of_cgroup = MemoryCgroup::tightest().map_or(u64::MAX, |cgroup| cgroup.limit);
    of_machine.min(of_cgroup)
}
