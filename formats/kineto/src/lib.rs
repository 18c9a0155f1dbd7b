//! Traces of the PyTorch profiler (Kineto JSON), read as shards.
//!
//! ```text
//! {"baseTimeNanoseconds": N, "distributedInfo": {..}, "host_name": .., "traceEvents": [ {event}, ... ], ...}
//! [ {event}, ... ]                                        torch without Kineto
//! ```
//!
//! The file is one process. It is read as a stream, plain or gzip, an event at a time and without a tree; memory does not
//! grow with it, but for names. `ts` and `dur` are microseconds with three decimals and are never made a float.
//!
//! | event | shard |
//! |---|---|
//! | `X` on a thread: cpu_op, user_annotation, python_function, cuda_runtime, cuda_driver, overhead, Trace, any other | event, region |
//! | `X` kernel, gpu_memset | event, dispatch on agent, queue and stream. A memset is a dispatch of a kernel called like it. Sizes of grid and block are those of the file |
//! | `X` gpu_memcpy | event, memory copy. What it is called is `$.name` of its extdata |
//! | `X` gpu_user_annotation | event, region on a thread that stands for the stream |
//! | `i` `[memory]`, `C` | event, sample, and a counter value for each number (of `[memory]` the totals) |
//! | `i` other | event with `$.message`, sample on a track of its thread that is called like its category |
//! | `s`, `f` ac2g | nothing of their own: the correlation is the stack id of call and kernel |
//! | `s`, `f` fwdbwd, others | an arg of the event that they leave or reach: type `flow start` or `flow end`, its id |
//! | `M` thread_name, process_name, process_labels | name of the thread, command of the process, which pid is the rank |
//! | `M` sort indexes | nothing: how a screen sorts |
//! | `M` other | counted as without a place |
//! | any other phase | in the loss ledger |
//! | `cat` | category of the event, letter by letter |
//! | `args` | `$.args` of the event's extdata as JSON, letter by letter: seldom asked for one by one, and as rows they would be most of a database |
//! | `args` External id, correlation | correlation id and stack id of the event, too |
//! | `args` of collectives | args `collective`, `comm`, `ranks`, `size`, `seq`, `count`, `datatype`, too |
//!
//! A pid that is no number, and one that is not the rank's (a GPU's index), has threads with made-up ids above those that
//! Linux gives.

mod cursor;
mod document;
mod error;
mod event;
mod facts;
mod gpu;
mod input;
mod known;
mod number;
mod output;
mod rows;
mod text;
mod translate;

pub use error::TranslateError;
pub use output::Translation;
pub use translate::translate;

use std::io::Read;
use std::path::Path;

/// What torch without Kineto has in the place of a process id.
const LEGACY_PID: &[u8] = b"CPU functions";
/// How far into a file is looked for what tells it from others.
const HEAD_BYTES: u64 = 64 << 10;

/// Whether a file begins like a trace of the PyTorch profiler, plain or packed, whatever its name. Other programs write
/// `traceEvents`, too, and so do we: Kineto has members before them that others have not, or begins with them. A file
/// that cannot be read is none.
pub fn is_kineto(path: &Path) -> bool {
    let mut head = Vec::new();
    let Ok(source) = input::open(path) else { return false };
    // A packed file that is cut has a head all the same.
    let read = source.take(HEAD_BYTES).read_to_end(&mut head);
    if read.is_err() && head.is_empty() {
        return false;
    }
    let has = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
    let text = head.strip_prefix(input::BYTE_ORDER_MARK).unwrap_or(&head).trim_ascii_start();
    match text.first() {
        Some(b'[') => has(text, b"\"ph\"") && has(text, LEGACY_PID),
        Some(b'{') => {
            let events: &[u8] = b"\"traceEvents\"";
            let before = text.windows(events.len()).position(|window| window == events);
            let top = text.get(..before.unwrap_or(text.len())).unwrap_or_default();
            let members: [&[u8]; 4] = [
                b"\"schemaVersion\"",
                b"\"deviceProperties\"",
                b"\"baseTimeNanoseconds\"",
                b"\"distributedInfo\"",
            ];
            let begins = top.get(1..).is_some_and(|rest| rest.trim_ascii().is_empty());
            let words: [&[u8]; 3] = [b"\"External id\"", b"\"Ev Idx\"", b"\"cpu_op\""];
            members.iter().any(|member| has(top, member))
                || begins && words.iter().any(|word| has(text, word))
        }
        _ => false,
    }
}
