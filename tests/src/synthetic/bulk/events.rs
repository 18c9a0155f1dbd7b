//! What happens in a rank, in the order in which it begins.

use super::BulkRun;
use crate::synthetic::clock::RUN_START;
use crate::synthetic::random::RandomSource;
use std::ops::Range;

/// Events of one round.
pub(super) const ROUND: usize = 50;
/// Length of a round, ns.
const ROUND_NS: i64 = 20_000_000;
/// Time between the beginnings of two calls, ns: more than a call takes.
const SLOT_NS: i64 = 20_000;
/// GPUs, queues and streams of a rank.
pub(super) const GPUS: usize = 8;
pub(super) const QUEUES: usize = 4;
pub(super) const STREAMS: usize = 6;

/// One event. Things are named by their position, times are true ones.
pub(super) struct Event {
    pub(super) what: What,
    /// The call that it belongs to; a call's own.
    pub(super) stack: i64,
    pub(super) thread: usize,
    pub(super) time: Range<i64>,
    pub(super) stream: usize,
}

pub(super) enum What {
    /// A call of HIP. `arguments` says whether they were recorded.
    Call { function: &'static str, arguments: bool },
    /// A kernel; `blocks` of its grid.
    Dispatch { kernel: usize, gpu: usize, queue: usize, blocks: i64 },
    /// A copy to or from the GPU.
    Copy { to_device: bool, bytes: i64 },
    /// Memory that was allocated or, where `bytes` is 0, freed.
    Allocation { bytes: i64, address: i64 },
    /// A range with its name.
    Marker { name: usize },
    /// A call without length.
    Instant,
}

/// A place in a round.
#[derive(Clone, Copy)]
enum Slot {
    Marker,
    Launch,
    Dispatch,
    CopyCall,
    Copy,
    AllocationCall,
    Allocation,
    Instant,
}

/// Two groups of launches, copies and an allocation; each after a marker.
fn round() -> Vec<Slot> {
    let mut slots = Vec::with_capacity(ROUND);
    for _ in 0..2 {
        slots.push(Slot::Marker);
        for launch in 0..7 {
            slots.extend([Slot::Launch, Slot::Dispatch]);
            // Some calls start two kernels.
            slots.extend((launch < 3).then_some(Slot::Dispatch));
        }
        slots.extend([Slot::CopyCall, Slot::Copy, Slot::CopyCall, Slot::Copy]);
        slots.extend([Slot::AllocationCall, Slot::Allocation]);
    }
    slots.extend([Slot::Marker, Slot::Instant]);
    debug_assert_eq!(slots.len(), ROUND);
    slots
}

/// Hands every event of a rank to `each`, the same ones every time.
pub(super) fn events<E>(
    bulk: &BulkRun,
    rank: u32,
    each: &mut impl FnMut(Event) -> Result<(), E>,
) -> Result<(), E> {
    let mut random = RandomSource::new(&[bulk.seed, 6, u64::from(rank)]);
    let (names, _) = bulk.share(rank);
    let (kernels, threads) = (bulk.kernels.max(1), bulk.threads.max(1));
    let slots = round();
    let mut stack = 0;
    let (mut thread, mut stream, mut call) = (0, 0, 0..0);
    let mut name = 0;
    for i in 0..bulk.events_per_rank {
        let (round, slot) = (i / ROUND, i % ROUND);
        let from = RUN_START + round as i64 * ROUND_NS + slot as i64 * SLOT_NS;
        let bits = random.bits();
        let some = |shift: u32, below: usize| (bits >> shift) as usize % below;
        let own_call = !matches!(slots[slot], Slot::Dispatch | Slot::Copy | Slot::Allocation);
        if own_call {
            // Unrecorded calls take correlation ids, too.
            stack += 1 + some(0, 4) as i64;
            (thread, stream) = (some(2, threads), some(10, STREAMS));
            let start = from + some(16, 4_000) as i64;
            call = start..start + 1_000 + some(28, 12_000) as i64;
        }
        let behind = |typical: usize| {
            let start = call.end + 500 + some(16, 4_000) as i64;
            start..start + 1 + some(28, typical) as i64
        };
        let arguments = some(42, 3) == 0;
        let hip = |function| What::Call { function, arguments };
        let (what, time) = match slots[slot] {
            Slot::Launch => (hip("hipLaunchKernel"), call.clone()),
            Slot::CopyCall => (hip("hipMemcpyAsync"), call.clone()),
            Slot::AllocationCall => (hip("hipMalloc"), call.clone()),
            Slot::Dispatch => {
                // A few kernels take most of the dispatches.
                let kernel = some(2, kernels).min(some(20, kernels));
                let (gpu, queue) = (rank as usize % GPUS, stream % QUEUES);
                let blocks = 1 + some(34, 4_096) as i64;
                (What::Dispatch { kernel, gpu, queue, blocks }, behind(60_000))
            }
            Slot::Copy => {
                let bytes = 256 << some(2, 20);
                (What::Copy { to_device: some(1, 2) == 0, bytes }, behind(90_000))
            }
            Slot::Allocation => {
                let free = some(1, 5) < 2;
                let bytes = if free { 0 } else { 4_096 << some(4, 12) };
                let address = 0x4000_0000_0000 + ((some(8, 1 << 20) as i64) << 12);
                (What::Allocation { bytes, address }, call.start + 100..call.end)
            }
            Slot::Marker => {
                // In turn, so that each name is in use.
                name = if names > 0 { (name + 1) % names } else { 0 };
                (What::Marker { name }, call.start..call.start + 24 * SLOT_NS)
            }
            Slot::Instant => (What::Instant, call.start..call.start),
        };
        each(Event { what, stack, thread, time, stream })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_the_proportions_of_the_profiler() {
        let bulk = BulkRun { events_per_rank: 10 * ROUND, ..BulkRun::default() };
        let mut counts = [0; 6];
        let mut calls = std::collections::BTreeMap::new();
        let count = &mut |event: Event| {
            let i = match event.what {
                What::Call { .. } => 0,
                What::Dispatch { .. } => 1,
                What::Copy { .. } => 2,
                What::Allocation { .. } => 3,
                What::Marker { .. } => 4,
                What::Instant => 5,
            };
            counts[i] += 1;
            match i {
                0 => drop(calls.insert(event.stack, event.time.clone())),
                1..=3 => assert!(calls[&event.stack].start < event.time.start),
                _ => assert!(!calls.contains_key(&event.stack)),
            }
            assert_eq!(event.time.is_empty(), i == 5);
            Ok::<_, ()>(())
        };
        events(&bulk, 3, count).unwrap();
        assert_eq!(counts, [200, 200, 40, 20, 30, 10]);
        assert_eq!(calls.len(), 200);
    }
}
