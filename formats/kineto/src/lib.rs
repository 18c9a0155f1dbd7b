//! Reads traces of the PyTorch profiler (Kineto JSON) as shards.
//!
//! ```text
//! {"baseTimeNanoseconds": N, "distributedInfo": {..}, "host_name": .., "traceEvents": [ {event}, ... ], ...}
//!     members in any order, and any others
//! [ {event}, ... ]                                        torch without Kineto
//! ```
//!
//! A file is one process. The reader processes it as a stream, plain or gzip, one event at a time and without a
//! tree. Its memory grows only with the number of names. `ts` and `dur` are microseconds with three decimals and
//! are never converted to floating point.
//!
//! | event | shard |
//! |---|---|
//! | `X` on a thread: cpu_op, user_annotation, python_function, cuda_runtime, cuda_driver, overhead, Trace, any other | event, region |
//! | `X` kernel, gpu_memset | event, dispatch on agent, queue and stream. A memset is a dispatch of a kernel with its name. Sizes of grid and block are those of the file. Missing sizes are 0, and `$.rpd.no_grid` or `$.rpd.no_workgroup` of the dispatch's extdata is true |
//! | `X` gpu_memcpy | event, memory copy. Its name is an arg `name`, and `$.name` of its extdata |
//! | `X` gpu_user_annotation | event, region on a thread that represents the stream |
//! | `C` | event, sample, and a counter value for each number |
//! | `i` | event with `$.message`, sample on a track of its thread with the name of its category; for `[memory]` also counter values of the totals |
//! | `X` Operator, Runtime, Kernel, Memcpy, Memset of old releases | as cpu_op, cuda_runtime, kernel, gpu_memcpy, gpu_memset |
//! | `s`, `f` ac2g, async_gpu, async launch | no row: the correlation is the stack id of call and kernel |
//! | `s`, `f` fwdbwd, others | an arg of the event where they start or end: type `flow start` or `flow end`, value the id |
//! | `M` thread_name, process_name, process_labels | name of the thread, command of the process, pid of the rank. May be anywhere in the file; the last name of a thread counts |
//! | `M` sort indexes | not read: they only order a display |
//! | `M` other | counted as unsupported |
//! | any other phase | in the loss ledger |
//! | `cat` | category of the event, unchanged |
//! | `args` | `$.args` of the event's extdata as JSON, unchanged. Queries seldom need single args, and as rows they would be most of a database |
//! | `args` External id, correlation | additionally correlation id and stack id of the event |
//! | `args` of collectives | additionally args `collective`, `comm`, `ranks`, `size`, `seq`, `count`, `datatype` |
//!
//! A pid that is not a number, or not the rank's (the index of a GPU), gets threads with ids above those that Linux
//! assigns, 4194304. The file does not name the thread that launched a kernel: its `tid` is 0.
//!
//! Times are `CLOCK_REALTIME`. A file is read twice if `baseTimeNanoseconds` follows the events. Torch without Kineto
//! counts from the start of its profiler. `start_boottime_ns` in `TRACE.rpd.json` beside `TRACE` places these times;
//! without it, a warning states that they do not line up.
//!
//! The first 16 MiB, decompressed, must show that a file is a trace. Of a truncated or malformed file, all whole events
//! are read, and the warning names the byte. A gzip file with a wrong or missing checksum or length is damaged, too.
//! Data after the end of the trace, such as a second trace, is not read and is in the loss ledger.

mod cursor;
mod document;
mod event;
mod facts;
mod gpu;
mod input;
mod known;
mod lost_events;
mod number;
mod rank_process;
mod recognize;
mod rows;
mod text;
mod threads;
mod translate;

pub use recognize::is_kineto;
pub use translate::translate;

/// Source number of the rank's process, the only one of the shard.
const SOURCE: u32 = 1;
/// Text that torch without Kineto writes in place of a process id.
const LEGACY_PID: &[u8] = b"CPU functions";
