//! One table, to be pasted into a document.

use crate::command::{Checked, Contestant, From, How, Lap};
use rpd_tests::measure::{machine, median};
use std::collections::BTreeSet;
use std::path::Path;

const MIB: f64 = (1 << 20) as f64;

/// All there is about a contestant.
pub(crate) struct Row {
    pub(crate) contestant: Contestant,
    checked: Option<Checked>,
    pub(crate) laps: Vec<Lap>,
}

impl Row {
    pub(crate) fn new(contestant: Contestant, checked: Option<Checked>) -> Row {
        Row { contestant, checked, laps: Vec::new() }
    }

    fn seconds(&self) -> impl Iterator<Item = f64> {
        self.laps.iter().map(|lap| lap.seconds)
    }

    fn cpu(&self) -> impl Iterator<Item = f64> {
        self.laps.iter().map(|lap| lap.cpu)
    }
}

/// CPU seconds of a thread that draws all into one file.
pub(crate) fn cpu_alone(rows: &[Row], annotations: bool) -> f64 {
    let wanted = drawn(How::Threads(1), false, annotations);
    median(rows.iter().filter(|row| row.contestant == wanted).flat_map(Row::cpu))
}

fn drawn(how: How, split: bool, annotations: bool) -> Contestant {
    Contestant::Draw { from: From::Database, how, split, annotations }
}

/// Prints the table, and what follows from it.
pub(crate) fn print(folder: &Path, rows: &[Row]) {
    let rounds = rows.first().map_or(0, |row| row.laps.len());
    println!("\nTHE COMMAND: medians of {rounds} rounds. {}\n", machine(folder));
    println!(
        "| | s | least to most | M slices/s | CPU s | M slices/s per core | peak MiB | raw B/slice | gz B/slice |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    rows.iter().for_each(line);
    println!();
    same(rows);
    for annotations in [true, false] {
        for split in [false, true] {
            scaling(rows, split, annotations);
        }
    }
}

fn line(row: &Row) {
    let least = row.seconds().fold(f64::INFINITY, f64::min);
    let most = row.seconds().fold(0.0, f64::max);
    let (seconds, cpu) = (median(row.seconds()), median(row.cpu()));
    print!("| {} | {seconds:.2} | {least:.2} to {most:.2} |", row.contestant);
    let Some(checked) = &row.checked else {
        println!(" | {cpu:.2} | | | | |");
        return;
    };
    let slices = checked.slices as f64;
    println!(
        " {:.2} | {cpu:.2} | {:.2} | {:.0} | {:.1} | {:.1} |",
        slices / seconds / 1e6,
        slices / cpu / 1e6,
        checked.peak as f64 / MIB,
        checked.raw_bytes as f64 / slices,
        checked.bytes as f64 / slices
    );
}

/// Whether outputs differ that must not.
fn same(rows: &[Row]) {
    let mut forms = BTreeSet::new();
    let mut outputs = BTreeSet::new();
    for row in rows {
        if let (Contestant::Draw { split, annotations, .. }, Some(checked)) = (row.contestant, row.checked) {
            forms.insert((split, annotations));
            outputs.insert((split, annotations, checked.digest));
        }
    }
    let same = if forms.len() == outputs.len() { "the same, byte for byte" } else { "DIFFERENT" };
    println!("Files of any number of threads and ranks, and from shards or a database: {same}.");
}

fn scaling(rows: &[Row], split: bool, annotations: bool) {
    let laps = |how: How| {
        let wanted = drawn(how, split, annotations);
        rows.iter().filter(move |row| row.contestant == wanted).flat_map(|row| &row.laps)
    };
    let faster =
        |one: How, two: How| median(laps(one).zip(laps(two)).map(|(one, two)| one.seconds / two.seconds));
    let starts = |ranks: usize| {
        let start = rows.iter().filter(move |row| row.contestant == Contestant::Start(ranks));
        median(start.flat_map(Row::seconds))
    };
    let [one, two] =
        [1, 2].map(|ranks| median(laps(How::Ranks(ranks)).map(|lap| lap.seconds)) - starts(ranks));
    println!(
        "{}, {} annotations: two threads are {:.2} times as fast as one, two ranks {:.2} times ({:.2} without the \
         start of mpirun).",
        if split { "32 files" } else { "One file" },
        if annotations { "with" } else { "without" },
        faster(How::Threads(1), How::Threads(2)),
        faster(How::Ranks(1), How::Ranks(2)),
        one / two
    );
}
