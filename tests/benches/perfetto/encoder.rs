//! The encoder alone: what it makes of a job in memory, in one thread.
//!
//! Eight processes with eight threads each, and 300 names. All variants take turns in every round; times are CPU times
//! of the one thread, so that a busy machine disturbs little; each figure is a median over the rounds.

use crate::cpu_seconds;
use crate::job::{Call, Job, describe};
use rpd_perfetto::{Annotation, Event, Sequence, StringId, Timestamp, TrackId, Value, gzip_piece, packed};
use rpd_tests::measure::median;
use std::hint::black_box;
use std::mem;
use std::num::NonZeroU32;

/// Levels of gzip that are measured, and that of packed packets.
const LEVELS: [u32; 4] = [1, 3, 5, 6];
const PACKED: u32 = 3;

/// What is written of each slice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// Name and times.
    Plain,
    /// A category and two numbers, too.
    Annotated,
}

/// What is written from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// Beginnings and ends that are in order.
    Edges,
    /// Spans that are sorted.
    Spans,
}

#[derive(Default)]
struct Figures {
    encode: Vec<f64>,
    from_spans: Vec<f64>,
    gzip: [Vec<f64>; LEVELS.len()],
    packed: Vec<f64>,
    bytes: usize,
    packed_bytes: usize,
    gzipped: [usize; LEVELS.len()],
}

/// Measures and prints; whether all aims hold.
pub(crate) fn measure(slices: usize, rounds: usize) -> bool {
    let job = Job::new(slices);
    let slices = job.slices();
    let tracks: usize = job.processes.iter().map(Vec::len).sum();
    println!("THE ENCODER: {slices} slices, {tracks} tracks, medians of {rounds} rounds, one core");

    let mut sequence = Sequence::new(NonZeroU32::MIN);
    // One piece for each process, as a thread would write it. Their memory is used again.
    let mut pieces = vec![Vec::new(); job.processes.len()];
    let variants = [(Variant::Plain, 10e6, 43.0), (Variant::Annotated, 5e6, 65.0)];
    let mut measured = [Figures::default(), Figures::default()];
    for _ in 0..rounds {
        for ((variant, ..), figures) in variants.into_iter().zip(&mut measured) {
            for input in [Input::Edges, Input::Spans] {
                let began = cpu_seconds();
                write(&job, variant, input, &mut sequence, &mut pieces);
                let seconds = cpu_seconds() - began;
                match input {
                    Input::Edges => figures.encode.push(seconds),
                    Input::Spans => figures.from_spans.push(seconds),
                }
                figures.bytes = pieces.iter().map(Vec::len).sum();
            }
            for (i, level) in LEVELS.into_iter().enumerate() {
                let began = cpu_seconds();
                let mut file = Vec::new();
                for piece in &pieces {
                    gzip_piece(black_box(piece), level, &mut file).expect("memory takes all");
                }
                figures.gzip[i].push(cpu_seconds() - began);
                figures.gzipped[i] = file.len();
            }
            let began = cpu_seconds();
            let mut file = Vec::new();
            for piece in &pieces {
                packed(black_box(piece), PACKED, &mut file).expect("memory takes all");
            }
            figures.packed.push(cpu_seconds() - began);
            figures.packed_bytes = file.len();
        }
    }
    let mut hold = true;
    for ((variant, speed, bytes), figures) in variants.into_iter().zip(&mut measured) {
        hold &= print(variant, speed, bytes, figures, slices as f64);
    }
    hold
}

/// Writes a piece for each process.
fn write(job: &Job, variant: Variant, input: Input, sequence: &mut Sequence, pieces: &mut [Vec<u8>]) {
    for ((threads, piece), number) in job.processes.iter().zip(pieces).zip(1..) {
        sequence.restart(NonZeroU32::new(number).expect("numbers count from 1"));
        describe(number, threads, sequence);
        for thread in threads {
            let mut edge = |at, call: Option<u32>| match call {
                Some(call) => begin(job, variant, at, thread.track, &thread.calls[call as usize], sequence),
                None => sequence.end(at, thread.track),
            };
            match input {
                Input::Edges => thread.edges.iter().for_each(|&(at, call)| edge(at, call)),
                Input::Spans => thread.in_order(edge),
            }
        }
        *piece = sequence.take(mem::take(piece));
        black_box(piece);
    }
}

fn begin(job: &Job, variant: Variant, at: Timestamp, track: TrackId, call: &Call, sequence: &mut Sequence) {
    let name = sequence.event_name(StringId(call.name), || job.name(call.name));
    let plain = Event::new(at, track, name);
    if variant == Variant::Plain {
        return sequence.begin(&plain);
    }
    let category = sequence.category(StringId(call.category), || job.category(call.category));
    let annotations = [
        Annotation { name: sequence.annotation_name(StringId(0), || "size"), value: Value::Int(call.size) },
        Annotation {
            name: sequence.annotation_name(StringId(1), || "correlation"),
            value: Value::Int(call.correlation),
        },
    ];
    sequence.begin(&Event { category: Some(category), annotations: &annotations, ..plain });
}

/// Prints the figures of a variant; whether its aims hold.
fn print(variant: Variant, aim_speed: f64, aim_bytes: f64, figures: &mut Figures, slices: f64) -> bool {
    println!(
        "\n{}",
        match variant {
            Variant::Plain => "name and times",
            Variant::Annotated => "with a category and two numbers",
        }
    );
    let [encode, from_spans] =
        [&mut figures.encode, &mut figures.from_spans].map(|times| slices / median(times.iter().copied()));
    let each = figures.bytes as f64 / slices;
    println!("  encode              {:>8.2} M slices/s", encode / 1e6);
    println!("  order and encode    {:>8.2} M slices/s", from_spans / 1e6);
    println!("  raw                 {each:>8.2} bytes/slice");
    let compressed = |what: String, bytes: usize, times: &mut [f64]| {
        let seconds = median(times.iter().copied());
        println!(
            "  {what:<20}{:>8.2} bytes/slice, {:.2} M slices/s, {:.0} MB/s",
            bytes as f64 / slices,
            slices / seconds / 1e6,
            figures.bytes as f64 / seconds / 1e6
        );
    };
    for ((level, times), bytes) in LEVELS.into_iter().zip(&mut figures.gzip).zip(figures.gzipped) {
        compressed(format!("gzip level {level}"), bytes, times);
    }
    compressed(format!("packed, level {PACKED}"), figures.packed_bytes, &mut figures.packed);
    let aims = [
        (format!("encode over {} M slices/s", aim_speed / 1e6), encode > aim_speed),
        (format!("at most {aim_bytes} bytes/slice raw"), each <= aim_bytes),
    ];
    for (aim, holds) in &aims {
        println!("  aim: {aim}: {}", if *holds { "holds" } else { "MISSED" });
    }
    aims.iter().all(|(_, holds)| *holds)
}
