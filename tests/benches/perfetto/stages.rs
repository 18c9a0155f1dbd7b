//! Where the time goes: reading, and gzip, each alone in one thread.

use crate::cpu_seconds;
use flate2::read::GzDecoder;
use rpd_perfetto::gzip_piece;
use rpd_tests::measure::median;
use rpd_trace::{JobRows, TraceSelection};
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;

/// Levels of gzip that are measured.
const LEVELS: [u32; 5] = [1, 2, 3, 5, 6];
/// The level of rpd-merge.
const LEVEL: u32 = 3;
/// What rpd-merge compresses at once.
const PIECE: usize = 1 << 20;
/// Memory for what the events of a unit say.
const MEMORY: u64 = 256 << 20;

/// Seconds of CPU.
#[derive(Default)]
struct Times {
    look: Vec<f64>,
    read: Vec<f64>,
    gzip: [Vec<f64>; LEVELS.len()],
}

/// Measures and prints. `trace` was made of the database in `whole` seconds of CPU.
pub(crate) fn print(
    database: &Path,
    trace: &Path,
    annotations: bool,
    rounds: usize,
    whole: f64,
) -> Result<(), Box<dyn Error>> {
    let selection = TraceSelection { annotations, ..TraceSelection::default() };
    let mut raw = Vec::new();
    GzDecoder::new(File::open(trace)?).read_to_end(&mut raw)?;
    let mut times = Times::default();
    let mut items = 0u64;
    let mut lengths = [0; LEVELS.len()];
    for _ in 0..rounds {
        let began = cpu_seconds();
        let rows = JobRows::open(database, &selection)?;
        let units = 0..rows.units().len();
        let layouts = units.map(|unit| rows.survey(unit, &mut |start| _ = black_box(start)));
        let layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        times.look.push(cpu_seconds() - began);
        let began = cpu_seconds();
        items = 0;
        for (unit, layout) in layouts.iter().enumerate() {
            rows.items(unit, layout, MEMORY, &mut |item| {
                black_box(item);
                items += 1;
                Ok(())
            })?;
        }
        times.read.push(cpu_seconds() - began);
        for ((level, times), length) in LEVELS.into_iter().zip(&mut times.gzip).zip(&mut lengths) {
            let began = cpu_seconds();
            let mut file = Vec::with_capacity(raw.len() / 2);
            for piece in raw.chunks(PIECE) {
                gzip_piece(piece, level, &mut file)?;
            }
            *length = file.len();
            times.push(cpu_seconds() - began);
        }
    }
    let of = |times: &[f64]| median(times.iter().copied());
    let (look, read) = (of(&times.look), of(&times.read));
    let gzip = LEVELS
        .iter()
        .zip(&times.gzip)
        .find(|(level, _)| **level == LEVEL)
        .map_or(f64::NAN, |(_, gzip)| of(gzip));
    let share = |seconds: f64| format!("{seconds:.2} s ({:.0} %)", seconds / whole * 100.0);
    println!(
        "\n{} annotations, of {whole:.2} s of CPU in one thread: first pass {}, second pass {} ({:.2} M items/s), gzip {}, \
         the rest (sorting, encoding, files) {}.",
        if annotations { "With" } else { "Without" },
        share(look),
        share(read),
        items as f64 / read / 1e6,
        share(gzip),
        share(whole - look - read - gzip)
    );
    for ((level, seconds), length) in LEVELS.iter().zip(&times.gzip).zip(lengths) {
        let seconds = of(seconds);
        println!(
            "  gzip level {level}: {:.2} of {:.1} MB, {seconds:.2} s, {:.0} MB/s",
            length as f64 / raw.len() as f64,
            raw.len() as f64 / 1e6,
            raw.len() as f64 / seconds / 1e6
        );
    }
    Ok(())
}
