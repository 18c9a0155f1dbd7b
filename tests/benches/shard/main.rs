//! Bytes and speed of the shard format, beside raw structs and JSON lines under the same zstd.
//!
//! ```text
//! cargo bench -p rpd-tests --bench shard [-- EVENTS [ROUNDS]]
//! ```
//!
//! All three formats take turns in every round; times are CPU times of the one thread, so that a busy
//! machine disturbs little; each figure is a median over the rounds.

mod formats;
mod stages;
mod streams;

use formats::{Format, JsonLines, RawStructs, ShardFile};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::process::ExitCode;
use streams::{Event, mpi_calls, ranges};

/// Aim for encoding and decoding, events per second on one core.
const AIM_SPEED: f64 = 20e6;

fn main() -> ExitCode {
    // cargo passes --bench; `cargo test --benches` does not, and gets a short run.
    let numbers: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let benched = std::env::args().any(|arg| arg == "--bench");
    let events = numbers.first().copied().unwrap_or(if benched { 1_000_000 } else { 10_000 });
    let rounds = numbers.get(1).copied().unwrap_or(if benched { 9 } else { 1 });
    println!("{events} events, median of {rounds} rounds, one core, zstd level 1");
    let ranges_hold = measure("roctx range", 8.0, &ranges(events), rounds);
    let calls_hold = measure("MPI call", 16.0, &mpi_calls(events), rounds);
    if !ranges_hold || !calls_hold {
        println!("some aims are missed");
    }
    ExitCode::SUCCESS
}

/// Measures one kind of event in all formats and prints a table; whether the aims hold.
fn measure<E: Event>(name: &str, aim_bytes: f64, events: &[E], rounds: usize) -> bool {
    let formats: [&dyn Format<E>; 3] = [&ShardFile, &RawStructs, &JsonLines];
    let mut seconds = [[const { Vec::new() }; 2], [const { Vec::new() }; 2], [const { Vec::new() }; 2]];
    let mut bytes = [0; 3];
    let wanted: u64 = events.iter().fold(0, |sum, event| sum.wrapping_add(event.sum()));
    for _ in 0..rounds {
        for (i, format) in formats.iter().enumerate() {
            let began = cpu_seconds();
            let encoded = format.encode(black_box(events));
            seconds[i][0].push(cpu_seconds() - began);
            bytes[i] = encoded.len();
            let began = cpu_seconds();
            let sum = format.decode(black_box(&encoded));
            seconds[i][1].push(cpu_seconds() - began);
            assert_eq!(sum, wanted, "{} decodes to something else", format.name());
        }
    }
    let count = events.len() as f64;
    println!("\n{name:<14} {:>12} {:>8} {:>16} {:>16}", "bytes/event", "ratio", "encode M/s", "decode M/s");
    let mut measured = Vec::new();
    for (i, format) in formats.iter().enumerate() {
        let each = bytes[i] as f64 / count;
        let [encode, decode] = seconds[i].each_mut().map(|times| count / median(times));
        measured.push((each, encode, decode));
        let ratio = each / measured[0].0;
        let name = format.name();
        println!("{name:<14} {each:>12.2} {ratio:>8.2} {:>16.2} {:>16.2}", encode / 1e6, decode / 1e6);
    }
    let (each, encode, decode) = measured[0];
    let aims = [
        (format!("at most {aim_bytes} bytes/event"), each <= aim_bytes),
        ("encode over 20 M/s".to_owned(), encode > AIM_SPEED),
        ("decode over 20 M/s".to_owned(), decode > AIM_SPEED),
    ];
    for (aim, holds) in &aims {
        println!("aim: {aim}: {}", if *holds { "holds" } else { "MISSED" });
    }
    stages::print(events, rounds);
    aims.iter().all(|(_, holds)| *holds)
}

/// CPU time of this thread.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub(crate) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
