//! Computes running sums of allocated memory.

use super::placement::{MemoryLevel, TrackPlace};
use rpd_shard::model::Value;
use std::collections::HashMap;

/// Effect of a row on the allocated memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AllocationChange {
    /// Memory was allocated. It replaces memory at the same address.
    Grown,
    /// Memory was freed.
    Freed,
}

impl AllocationChange {
    /// Returns the effect of `ALLOC`, `REALLOC`, `FREE` or `RECLAIM`.
    pub(super) fn of(kind: Value<'_>) -> Option<AllocationChange> {
        match kind {
            Value::Text(b"ALLOC" | b"REALLOC") => Some(AllocationChange::Grown),
            Value::Text(b"FREE" | b"RECLAIM") => Some(AllocationChange::Freed),
            _ => None,
        }
    }
}

/// A change of the memory of a process.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Time, ns in job time.
    at: i64,
    process: u32,
    /// Agent; `None` matches any agent, because rows of freed memory do not name it.
    agent: Option<u32>,
    level: MemoryLevel,
    change: AllocationChange,
    address: Option<i64>,
    bytes: i64,
}

/// All changes of a unit.
#[derive(Debug, Default)]
pub(super) struct AllocationSums {
    steps: Vec<Step>,
}

impl AllocationSums {
    /// Adds a row of `rocpd_memory_allocate`. Memory counts from the end of its allocation to the beginning of
    /// its release.
    pub(super) fn add(
        &mut self,
        (process, place): (u32, TrackPlace),
        level: MemoryLevel,
        change: AllocationChange,
        (start, end): (i64, i64),
        address: Option<i64>,
        bytes: i64,
    ) {
        let TrackPlace::Allocations(agent) = place else { return };
        let at = if change == AllocationChange::Grown { end } else { start };
        self.steps.push(Step { at, process, agent, level, change, address, bytes: bytes.max(0) });
    }

    /// Passes on the sums in order of time: time, track, and number of bytes from then on.
    pub(super) fn sums<E>(
        mut self,
        mut take: impl FnMut(i64, (u32, TrackPlace), i64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.steps.sort_by_key(|step| step.at);
        // Memory at an address, by process and level: the agent to which it is charged, and its bytes.
        let mut held: HashMap<(u32, MemoryLevel, i64), (Option<u32>, i64)> = HashMap::new();
        let mut sums: HashMap<(u32, TrackPlace), i64> = HashMap::new();
        for step in self.steps {
            let at = step.address.map(|address| (step.process, step.level, address));
            let before = at.and_then(|at| held.remove(&at));
            if let Some((agent, bytes)) = before {
                let key = (step.process, TrackPlace::Sum(agent, step.level));
                let sum = sums.entry(key).or_default();
                *sum = sum.saturating_sub(bytes);
                if step.change == AllocationChange::Freed || agent != step.agent {
                    take(step.at, key, *sum)?;
                }
            }
            if step.change == AllocationChange::Grown {
                let key = (step.process, TrackPlace::Sum(step.agent, step.level));
                let sum = sums.entry(key).or_default();
                *sum = sum.saturating_add(step.bytes);
                take(step.at, key, *sum)?;
                if let Some(at) = at {
                    held.insert(at, (step.agent, step.bytes));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_from_the_end_of_an_allocation_to_the_beginning_of_its_release() {
        let mut memory = AllocationSums::default();
        let gpu = (0, TrackPlace::Allocations(Some(2)));
        let nobody = (0, TrackPlace::Allocations(None));
        let real = MemoryLevel::Real;
        memory.add(nobody, real, AllocationChange::Freed, (50, 60), Some(0x10), 0);
        memory.add(gpu, real, AllocationChange::Grown, (0, 10), Some(0x10), 100);
        memory.add(gpu, real, AllocationChange::Grown, (20, 30), Some(0x20), 11);
        memory.add(gpu, MemoryLevel::Scratch, AllocationChange::Grown, (30, 31), Some(0x20), 7);
        memory.add(nobody, real, AllocationChange::Freed, (55, 60), Some(0x99), 0);
        memory.add(gpu, real, AllocationChange::Grown, (60, 70), Some(0x20), 5);
        memory.add(gpu, real, AllocationChange::Grown, (70, 80), None, i64::MIN);
        let mut found = Vec::new();
        let take = |at, (_, place), sum| {
            found.push((at, matches!(place, TrackPlace::Sum(Some(2), MemoryLevel::Real)), sum));
            Ok::<(), ()>(())
        };
        memory.sums(take).unwrap();
        let expected =
            [(10, true, 100), (30, true, 111), (31, false, 7), (50, true, 11), (70, true, 5), (80, true, 5)];
        assert_eq!(found, expected);
    }
}
