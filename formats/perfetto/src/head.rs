use crate::time::Timestamp;
use crate::wire::{CLOCK_BOOTTIME, CLOCK_REALTIME, message, packet, uint};

/// What a file starts with: which wall clock time, in ns since 1970, its first time was, and that processes and
/// threads are listed in the order of their ranks.
///
/// Readers before Perfetto v57 do not know that order and ignore it.
pub fn file_head(start: Timestamp, wall_clock_ns: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    message(&mut out, 1, |out| {
        message(out, packet::CLOCK_SNAPSHOT, |out| {
            for (clock, time) in [(CLOCK_BOOTTIME, start.ns()), (CLOCK_REALTIME, wall_clock_ns)] {
                message(out, 1, |out| {
                    uint(out, 1, clock);
                    uint(out, 2, time);
                });
            }
        });
    });
    message(&mut out, 1, |out| {
        message(out, packet::TRACK_DESCRIPTOR, |out| {
            uint(out, 1, 0);
            uint(out, PROCESS_ORDERING, EXPLICIT);
            uint(out, THREAD_ORDERING, EXPLICIT);
        });
    });
    out
}

const PROCESS_ORDERING: u32 = 19;
const THREAD_ORDERING: u32 = 20;
const EXPLICIT: u64 = 1;
