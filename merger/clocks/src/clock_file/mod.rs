//! `--clock-file`: offsets of clocks that a site measured itself. docs/MERGING.md has the format.

mod parse;
mod resolve;
mod track;

pub use parse::ClockFileError;
pub use resolve::NamedDomain;

use serde::{Deserialize, Serialize};

/// What a clock file says.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClockFile {
    /// The node whose clock the others are compared with.
    reference: String,
    /// By node and time.
    entries: Vec<Entry>,
    /// What a reader of the file would ask about.
    doubts: Vec<String>,
}

/// One measurement: a line of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Entry {
    line: usize,
    node: String,
    /// Time of the reference minus that of the node, ns.
    offset: i64,
    /// When, ns of the node's clock; `None` for an offset that is said to hold always.
    at: Option<i64>,
    /// How far off the offset may be then, ns.
    error: Option<i64>,
    drift: Option<Drift>,
}

/// How much faster than the reference's a clock is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Drift {
    /// Parts per million.
    ppm: f64,
    /// How far off that may be, parts per million.
    error: Option<f64>,
}

impl Entry {
    /// When, ns of the node's clock; any time will do for an offset without one.
    fn at(&self) -> i64 {
        self.at.unwrap_or(0)
    }

    /// The time of the reference then, ns.
    fn site(&self) -> i128 {
        i128::from(self.at()) + i128::from(self.offset)
    }

    /// Whether it leaves times as they are.
    fn is_identity(&self) -> bool {
        self.offset == 0 && self.drift.is_none_or(|drift| drift.ppm == 0.0)
    }
}

/// Rates of clocks of computers differ by less, parts per million: NTP corrects no more than that.
const USUAL_PPM: f64 = 500.0;
/// No clock is so much faster than another, parts per million.
const MOST_PPM: f64 = 100_000.0;

/// Why measurements of one clock, by time, cannot all be right; `Ok` has what may be wrong with them.
fn check(lines: &[&Entry]) -> Result<Vec<String>, (usize, String)> {
    let mut doubts = Vec::new();
    for (a, b) in lines.iter().zip(lines.iter().skip(1)) {
        let first = a.line.min(b.line);
        let wrong = |what: String| Err((a.line.max(b.line), what));
        let (Some(from), Some(to)) = (a.at, b.at) else {
            return wrong(format!("line {first} is of the same node: each of them needs its own at=NS"));
        };
        if from == to {
            return wrong(format!("line {first} is of the same node and the same time"));
        }
        let (local, site) = (i128::from(to) - i128::from(from), b.site() - a.site());
        if site <= 0 {
            return wrong(format!(
                "with line {first} the time of the reference would stand still or go backwards"
            ));
        }
        let ppm = (local - site) as f64 / site as f64 * 1e6;
        if ppm.abs() > MOST_PPM {
            return wrong(format!("with line {first} the clock would be off by {ppm:.0} ppm, and none is"));
        }
        if ppm.abs() > USUAL_PPM {
            doubts.push(doubt(b.line, &format!("{ppm:.0} ppm since line {first}")));
        }
    }
    Ok(doubts)
}

/// What is said of a rate that clocks do not have.
fn doubt(line: usize, rate: &str) -> String {
    format!(
        "clock file, line {line}: {rate} is used as it is, but clocks differ by less than {USUAL_PPM} ppm: \
         is all in ns of CLOCK_BOOTTIME?"
    )
}

#[cfg(test)]
mod tests;
