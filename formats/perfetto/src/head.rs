use crate::time::Timestamp;
use crate::wire::{CLOCK_BOOTTIME, CLOCK_REALTIME, message, packet, uint};

/// Returns the start of a file. It states the wall clock time of `start`, the first time of the file, in ns since
/// 1970 if known. It also requests that processes and threads are listed in the order of their ranks.
///
/// Readers before Perfetto v57 ignore that order.
pub fn file_head(start: Timestamp, wall_clock_ns: Option<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    message(&mut out, 1, |out| {
        message(out, packet::CLOCK_SNAPSHOT, |out| {
            let wall_clock = wall_clock_ns.map(|time| (CLOCK_REALTIME, time));
            for (clock, time) in [(CLOCK_BOOTTIME, start.ns())].into_iter().chain(wall_clock) {
                message(out, 1, |out| {
                    uint(out, 1, clock);
                    uint(out, 2, time);
                });
            }
        });
    });
    order(&mut out);
    out
}

/// Writes the order of processes and threads.
fn order(out: &mut Vec<u8>) {
    message(out, 1, |out| {
        message(out, packet::TRACK_DESCRIPTOR, |out| {
            uint(out, 1, 0);
            uint(out, PROCESS_ORDERING, EXPLICIT);
            uint(out, THREAD_ORDERING, EXPLICIT);
        });
    });
}

/// Maximum length of a [`file_head`] in bytes.
pub const MAX_HEAD: usize = 128;

/// Returns whether [`file_head`] wrote the start of this file: a snapshot of clocks, and exactly this order of
/// processes.
pub fn is_file_head(start: &[u8]) -> bool {
    // A message of less than 128 bytes has a length of one byte.
    let [_, length, ..] = *start else { return false };
    let mut order_of_processes = Vec::new();
    order(&mut order_of_processes);
    start.first() == Some(&PACKET)
        && start.get(2).is_some_and(|tag| u32::from(tag >> 3) == packet::CLOCK_SNAPSHOT)
        && start.get(2 + usize::from(length)..).is_some_and(|rest| rest.starts_with(&order_of_processes))
}

/// Tag of `Trace.packet`: field 1, length-delimited.
const PACKET: u8 = 1 << 3 | 2;

const PROCESS_ORDERING: u32 = 19;
const THREAD_ORDERING: u32 = 20;
const EXPLICIT: u64 = 1;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{GZIP_HEAD, gunzip_start, gzip_piece, gzip_tail};

    #[test]
    fn a_file_is_known_by_its_head() {
        let wall_clocks = [None, Some(0), Some(1_700_000_000_000_007_000), Some(u64::MAX)];
        for (start, wall_clock) in [0, 7_000, 0, i64::MAX].into_iter().zip(wall_clocks) {
            let head = file_head(Timestamp::new(start).unwrap(), wall_clock);
            assert!(head.len() <= MAX_HEAD);
            assert!(is_file_head(&head) && is_file_head(&[&head[..], b"more"].concat()));
            for cut in 0..head.len() {
                assert!(!is_file_head(&head[..cut]), "{cut}");
            }
            let mut packed = GZIP_HEAD.to_vec();
            let checksum = gzip_piece(&head, 6, &mut packed).unwrap();
            packed.extend(gzip_tail(checksum));
            assert_eq!(gunzip_start(&packed[..], MAX_HEAD).unwrap(), head);
            assert_eq!(gunzip_start(&packed[..], 5).unwrap(), head[..5]);
        }
        assert!(!is_file_head(b"{\"traceEvents\":[]}") && !is_file_head(&[0x0a; 200]));
        assert!(gunzip_start(&b"no gzip"[..], 10).is_err());
    }
}
