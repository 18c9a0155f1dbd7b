//! Distinguishes a trace of the PyTorch profiler from other JSON, by its members at the top and its first events.

use crate::document::next_member;
use crate::input::{JsonInput, open};
use std::io::Read;
use std::path::Path;

/// Unpacked bytes of a file that are examined, at most: members before the events may be large.
const MAX_HEAD_BYTES: u64 = 16 << 20;
/// Bytes of the events in which words of torch are looked for.
const EVENT_BYTES: usize = 64 << 10;
/// Members at the top that Kineto alone writes.
const MEMBERS: [&[u8]; 4] =
    [b"schemaVersion", b"deviceProperties", b"baseTimeNanoseconds", b"distributedInfo"];
/// Words that events of torch have.
const WORDS: [&[u8]; 3] = [b"\"External id\"", b"\"Ev Idx\"", b"\"cpu_op\""];

/// Whether a file begins like a trace of the PyTorch profiler, plain or packed, whatever its name. Other
/// programs write `traceEvents`, too, and so do we: Kineto has members beside them that others have not, in any
/// order, or events with words of torch. A file that cannot be read is none. Reads 16 MiB of the unpacked file
/// at most, and keeps few of them.
pub fn is_kineto(path: &Path) -> bool {
    let Ok(source) = open(path) else { return false };
    // A packed file that is cut has a head all the same.
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

/// Walks over the members at the top until one of them decides.
fn is_trace(input: &mut JsonInput) -> bool {
    input.pass(1);
    let (mut name, mut is_first) = (Vec::new(), true);
    let mut is_drawn = false;
    while let Ok(true) = next_member(input, &mut is_first, &mut name) {
        if MEMBERS.contains(&&name[..]) {
            return true;
        }
        // Kineto states "ms". The traces that rpd-merge draws state "ns", also of events with words of torch.
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

/// The next bytes, as many as are examined.
fn head(input: &mut JsonInput) -> &[u8] {
    while input.bytes().len() < EVENT_BYTES && input.more() {}
    let bytes = input.bytes();
    bytes.get(..EVENT_BYTES.min(bytes.len())).unwrap_or_default()
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}
