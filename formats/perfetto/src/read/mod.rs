//! Reads Perfetto traces of track events as shards. Supports files of rocprof-sys (`perfetto-trace-*.proto`), of
//! Perfetto's interface, and of [`crate::Sequence`].
//!
//! | trace | shard |
//! |---|---|
//! | process id of a descriptor | a process; the file states neither its rank nor its node. Tracks without a process belong to the only process, or to one with the id 0 |
//! | track of a thread | that thread |
//! | any other track with slices: a GPU queue or stream of rocprof-sys, an asynchronous track | a thread with a negative id, named after the track and its parents: `GPU 0 / queue 1`. The reader creates no agents: kernels are regions, and their args hold all attributes |
//! | slice | event and region, with the event's category as it is spelled; several categories are joined with commas |
//! | slice without an end | a region up to the last time of its process, with `$.rpd.open` |
//! | instant | event and sample, on a track with the name of its category; its name is the event's `$.message` |
//! | counter, also one that an event states | `rocpd_info_pmc` with the unit of its track; per value an event, a sample and a value |
//! | debug annotation | an arg with its type; a list or dictionary is JSON |
//! | call stack of an event, sample of a profiler | the event's call stack, innermost frame first |
//! | flow | the stack id of the events that it joins; further flows of an event are counted |
//! | snapshot of clocks | times of all clocks are converted to one clock, see `clocks.rs`; the readings become clock sets |
//!
//! A slice ends where the slice of its writer and track that began last ends, in file order. So overlapping kernels
//! of rocprof-sys have their true lengths, which Perfetto does not show.
//!
//! Packets that refer to interned data after a gap (`ROCPROFSYS_PERFETTO_FILL_POLICY`) cannot be decoded and are in
//! the loss ledger. So is an end without a beginning. Unsupported fields are counted by their numbers. Files may be
//! compressed with gzip, and packets inside packets (`compressed_packets`).
//!
//! Memory is bounded for any file: 16 MiB for a packet, 256 MiB for interned data, a million tracks, and a million
//! open slices.

mod annotation_text;
mod annotations;
mod clocks;
mod event;
mod limits;
mod packets;
mod processes;
mod rows;
mod sequence;
mod slices;
mod stacks;
mod survey;
mod texts;
mod tracks;
mod translate;
mod wire;

pub use annotation_text::first_annotation_text;
pub use translate::{read_processes, translate};

use packets::{GZIP, PACKET};
use std::io::Read;
use std::path::Path;
use wire::{Field, Fields};

/// Number of bytes of a file that are examined to recognize its format.
const HEAD_BYTES: u64 = 64 << 10;

/// Returns whether a file, plain or compressed with gzip, begins like a Perfetto trace; false if it cannot be read.
pub fn is_perfetto(path: &Path) -> bool {
    let Ok(mut head) = rpd_files::read_head(path, HEAD_BYTES) else { return false };
    if head.starts_with(&GZIP) {
        let mut unpacked = Vec::new();
        // The end of the data is missing, but the bytes before it are decompressed.
        let _ = flate2::read::GzDecoder::new(&head[..]).take(HEAD_BYTES).read_to_end(&mut unpacked);
        head = unpacked;
    }
    begins_with_packets(&head)
}

/// Returns whether [`crate::file_head`] wrote the beginning of this trace; false if the file cannot be read.
pub fn is_ours(path: &Path) -> bool {
    let Ok(mut head) = rpd_files::read_head(path, HEAD_BYTES) else { return false };
    if head.starts_with(&GZIP) {
        head = crate::gunzip_start(&head[..], crate::MAX_HEAD).unwrap_or_default();
    }
    crate::is_file_head(&head)
}

/// Returns whether all complete packets of `head` have fields that packets have. Text that begins with an empty
/// line fails this test.
fn begins_with_packets(head: &[u8]) -> bool {
    let is_full = head.len() as u64 >= HEAD_BYTES;
    let mut packets = 0;
    for packet in Fields(head) {
        match packet {
            Ok((1, Field::Bytes(packet))) if is_packet(packet) => packets += 1,
            Ok(_) => return false,
            // The last packet is incomplete here.
            Err(_) => break,
        }
    }
    let starts = head.first() == Some(&PACKET);
    packets > 0 || starts && is_full && head.get(1).is_some_and(|length| length & 0x80 != 0)
}

fn is_packet(packet: &[u8]) -> bool {
    const MAX_FIELD_NUMBER: u32 = 2000;
    let mut known = packet.is_empty();
    for field in Fields(packet) {
        match field {
            // Times, sequences, flags; snapshots, events, interned data, defaults, tracks, compressed packets,
            // settings.
            Ok((8 | 10 | 13 | 58 | 3 | 79, Field::Varint(_))) => known = true,
            Ok((6 | 11 | 12 | 33 | 35 | 36 | 45 | 50 | 59 | 60 | 66 | 69 | 89, Field::Bytes(_))) => {
                known = true
            }
            Ok((1..=MAX_FIELD_NUMBER, _)) => {}
            _ => return false,
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_trace() {
        let head = crate::file_head(crate::Timestamp::default(), Some(5));
        assert!(begins_with_packets(&head) && begins_with_packets(&[&head[..], &[PACKET, 100, 1]].concat()));
        assert!(!begins_with_packets(b"") && !begins_with_packets(b"\n"));
        for text in [
            "\n{\"traceEvents\": []}",
            "\n\n\n\n\n\n\n\n\n\n\n\n",
            "\n  timestamp,metric\n1,2\n",
            "SQLite format 3",
        ] {
            assert!(!begins_with_packets(text.as_bytes()), "{text:?}");
        }
        assert!(!begins_with_packets(&[0x0a; 300]));
    }
}
