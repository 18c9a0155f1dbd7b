//! One table, to be pasted into a document.

use crate::checks::Checked;
use crate::contest::{Contestant, From, How, Lap};
use crate::inputs::Inputs;
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

    fn inputs<'a>(&self, inputs: &'a Inputs) -> (&'a str, u64) {
        match self.contestant {
            Contestant::Ours(From::Shards, _) => ("shards", inputs.shard_bytes),
            _ => ("databases", inputs.database_bytes),
        }
    }
}

/// Prints the table, the aims and the machine.
pub(crate) fn print(inputs: &Inputs, folder: &Path, rows: &[Row]) {
    let rounds = rows.first().map_or(0, |row| row.laps.len());
    let Inputs { ranks, events, .. } = inputs;
    println!("\n{ranks} ranks of {events} events. {}", machine(folder));
    println!(
        "Inputs: shards {:.1} MiB, databases {:.1} MiB, in the page cache. Medians of {rounds} rounds; `x` is how \
         many times faster than SQLite with ids shifted, the median of the ratios within a round.\n",
        inputs.shard_bytes as f64 / MIB,
        inputs.database_bytes as f64 / MIB
    );
    println!(
        "| | s | least to most | x | fsync, s | x with fsync | rows/s | peak MiB | output MiB | of input |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    rows.iter().for_each(|row| line(row, rows, inputs));
    println!();
    sound(rows);
    aims(rows, inputs);
}

fn line(row: &Row, rows: &[Row], inputs: &Inputs) {
    let seconds = median(row.seconds());
    let least = row.seconds().fold(f64::INFINITY, f64::min);
    let most = row.seconds().fold(0.0, f64::max);
    print!("| {} | {seconds:.3} | {least:.3} to {most:.3} |", row.contestant);
    let Some(checked) = &row.checked else {
        println!(" | | | | | | |");
        return;
    };
    let total = |lap: &Lap| lap.seconds + lap.sync;
    print!(" {:.2} |", ratio(rows, Contestant::Shifted, row.contestant, |lap| lap.seconds));
    print!(" {:.3} |", median(row.laps.iter().map(|lap| lap.sync)));
    print!(" {:.2} |", ratio(rows, Contestant::Shifted, row.contestant, total));
    match checked.rows {
        0 => print!(" |"),
        rows => print!(" {:.2} M |", rows as f64 / seconds / 1e6),
    }
    match checked.peak {
        0 => print!(" |"),
        peak => print!(" {:.0} |", peak as f64 / MIB),
    }
    let (_, input) = row.inputs(inputs);
    println!(" {:.1} | {:.2} |", checked.bytes as f64 / MIB, checked.bytes as f64 / input as f64);
}

/// What is wrong with outputs, or that nothing is.
fn sound(rows: &[Row]) {
    for row in rows {
        if let Some(integrity) = row.checked.as_ref().and_then(|checked| checked.integrity.as_ref())
            && integrity != "ok"
        {
            println!("UNSOUND: {}: {integrity}", row.contestant);
        }
    }
    for wanted in [From::Shards, From::Databases] {
        let of_it = |row: &&Row| matches!(row.contestant, Contestant::Ours(from, _) if from == wanted);
        let checked = || rows.iter().filter(of_it).filter_map(|row| row.checked.as_ref());
        let digests: BTreeSet<_> = checked().map(|checked| (checked.bytes, checked.digest)).collect();
        let count = checked().next().map_or(0, |checked| checked.rows);
        let same = match digests.len() {
            0 => "none",
            1 => "all the same, byte for byte",
            _ => "DIFFERENT",
        };
        println!("From {wanted:?}: {count} rows; outputs of rpd-merge: {same}.");
    }
}

fn aims(rows: &[Row], inputs: &Inputs) {
    let of = |contestant| rows.iter().find(|row| row.contestant == contestant);
    for (from, least, stretch) in [(From::Shards, 5.0, 10.0), (From::Databases, 3.0, 5.0)] {
        let [one, two] = [1, 2].map(|threads| Contestant::Ours(from, How::Threads(threads)));
        let faster = ratio(rows, Contestant::Shifted, two, |lap| lap.seconds);
        aim(&format!("from {from:?}, 2 threads: {least} times SQLite (is {faster:.2})"), faster >= least);
        aim(&format!("stretch: {stretch} times"), faster >= stretch);
        let scaling = ratio(rows, one, two, |lap| lap.seconds);
        aim(&format!("two threads 1.7 times one (is {scaling:.2})"), scaling >= 1.7);
        if let Some((row, checked)) = of(two).and_then(|row| Some((row, row.checked.as_ref()?)))
            && from == From::Databases
        {
            let (name, bytes) = row.inputs(inputs);
            aim(&format!("output smaller than the {name}"), checked.bytes < bytes);
        }
    }
    let ours = rows.iter().filter(|row| matches!(row.contestant, Contestant::Ours(..)));
    let ok = ours.filter_map(|row| row.checked.as_ref()).all(|c| c.integrity.as_deref() == Some("ok"));
    aim("PRAGMA integrity_check says ok", ok);
}

fn aim(what: &str, holds: bool) {
    println!("aim: {what}: {}", if holds { "holds" } else { "MISSED" });
}

/// How many times longer the first takes than the second: median of the rounds' ratios.
fn ratio(rows: &[Row], first: Contestant, second: Contestant, time: impl Fn(&Lap) -> f64) -> f64 {
    let laps = |contestant| rows.iter().filter(move |row| row.contestant == contestant).flat_map(|r| &r.laps);
    median(laps(first).zip(laps(second)).map(|(a, b)| time(a) / time(b)))
}
