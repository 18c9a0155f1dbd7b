//! Distinguishes traces of the PyTorch profiler from other JSON by top-level members and the first events.

use crate::document::next_member;
use crate::input::{JsonInput, open};
use std::io::Read;
use std::path::Path;

/// Maximum number of decompressed bytes that are examined: members before the events may be large.
const MAX_HEAD_BYTES: u64 = 16 << 20;
/// Number of bytes of the events that are searched for words of torch.
const EVENT_BYTES: usize = 64 << 10;
/// Top-level members that only Kineto writes.
const MEMBERS: [&[u8]; 4] =
    [b"schemaVersion", b"deviceProperties", b"baseTimeNanoseconds", b"distributedInfo"];
/// Words that occur in events of torch.
const WORDS: [&[u8]; 3] = [b"\"External id\"", b"\"Ev Idx\"", b"\"cpu_op\""];

/// Returns whether a file begins like a trace of the PyTorch profiler, plain or compressed, whatever its name.
///
/// Other programs, including `rpd-merge`, write `traceEvents` too. Kineto also writes members that others do not,
/// in any order, or events that contain words of torch. The result is false for an unreadable file. Reads at most
/// 16 MiB of the decompressed file, and keeps little of it.
pub fn is_kineto(path: &Path) -> bool {
    let Ok(source) = open(path) else { return false };
    // A truncated compressed file still has a readable head.
    let mut input = JsonInput::new(Box::new(source.take(MAX_HEAD_BYTES)));
    input.pass_mark();
    match input.peek() {
        Some(b'[') => is_legacy(head(&mut input)),
        Some(b'{') => is_trace(&mut input),
        _ => false,
    }
}

fn is_legacy(text: &[u8]) -> bool {
    has(text, b"\"ph\"") && has(text, crate::LEGACY_PID)
}

/// Walks over the top-level members until one of them decides.
fn is_trace(input: &mut JsonInput) -> bool {
    input.pass(1);
    let (mut name, mut is_first) = (Vec::new(), true);
    let mut is_drawn = false;
    while let Ok(true) = next_member(input, &mut is_first, &mut name) {
        if MEMBERS.contains(&&name[..]) {
            return true;
        }
        // Kineto states "ms". Traces that rpd-merge draws state "ns", even if their events contain words of torch.
        is_drawn |= name == b"displayTimeUnit" && head(input).trim_ascii_start().starts_with(b"\"ns\"");
        if name == b"traceEvents" && !is_drawn && WORDS.iter().any(|word| has(head(input), word)) {
            return true;
        }
        if !input.pass_value() {
            return false;
        }
    }
    false
}

/// Returns the next bytes, as many as are examined.
fn head(input: &mut JsonInput) -> &[u8] {
    while input.bytes().len() < EVENT_BYTES && input.more() {}
    let bytes = input.bytes();
    bytes.get(..EVENT_BYTES.min(bytes.len())).unwrap_or_default()
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
