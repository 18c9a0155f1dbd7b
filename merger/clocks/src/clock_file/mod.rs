//! `--clock-file`: clock offsets that a site measured itself. docs/MERGING.md shows an example.
//!
//! | word | meaning |
//! |---|---|
//! | `reference NODE` | once: the node of the reference clock of this file. It need not be in the job if the file relates it to the merge's reference |
//! | `NODE` | host name, machine id, boot id, or `BOOT_ID/NAMESPACE`; in quotes if it contains spaces, `#` or quotes (`\"`, `\\`) |
//! | `offset` | ns: time of the reference minus that of the node |
//! | `at` | ns: `CLOCK_BOOTTIME` of the node at that moment; optional for a single line without `error` and `drift_ppm` |
//! | `error` | ns: error of the offset at `at`; a node with lines without it has no error bound |
//! | `drift_ppm` | how much faster the node's clock is than the reference's, ppm |
//! | `drift_error_ppm` | error of the drift, ppm; 20 by default |
//!
//! * With one line, the error bound is `error` at `at`, and grows by `drift_error_ppm`, or by 20 ppm without
//!   `drift_ppm`: 20 us in a second.
//! * Several lines of a node are joined by straight lines. Between two, the error bound grows by 1 ppm up to the
//!   middle, because the rate of a clock follows its temperature. Before the first and after the last, `drift_ppm` of
//!   that line holds, and the bound grows by `drift_error_ppm`; without it, the rate of the adjacent piece holds, and
//!   the bound grows by 1 ppm and by the error of that rate.
//! * Lines of the merge's reference are not used. Nor is a name that several clocks have, as of a host that booted in
//!   between: a note prints the name `BOOT_ID/NAMESPACE` of each.
//! * Notes name nodes that are not in the job, clocks that probes or collectives align better, and rates above 500 ppm.
//! * An error with file, line and expected form rejects any other text, repeated keys or times, numbers beyond 70 years
//!   or 100,000 ppm, and lines by which the time of the reference would not advance.

mod parse;
mod resolve;
mod track;

pub use resolve::NamedDomain;

use serde::{Deserialize, Serialize};

/// Contents of a clock file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClockFile {
    /// The node with the clock to which the others are compared.
    reference: String,
    /// Entries by node and time.
    entries: Vec<Entry>,
    /// Warnings about lines with unusual rates.
    unusual_rates: Vec<String>,
}

/// One measurement: a line of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Entry {
    line: usize,
    node: String,
    /// Time of the reference minus that of the node, ns.
    offset: i64,
    /// Time of the measurement, ns of the node's clock; `None` for an offset that holds at all times.
    at: Option<i64>,
    /// Error of the offset at that time, ns.
    error: Option<i64>,
    drift: Option<Drift>,
}

/// How much faster a clock runs than the reference's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Drift {
    /// Drift, ppm.
    ppm: f64,
    /// Error of the drift, ppm.
    error: Option<f64>,
}

impl Entry {
    /// Returns the time of the measurement, ns of the node's clock. For an offset without a time, any value
    /// works.
    fn at(&self) -> i64 {
        self.at.unwrap_or(0)
    }

    /// Returns the time of the reference at the measurement, ns.
    fn site(&self) -> i128 {
        i128::from(self.at()) + i128::from(self.offset)
    }

    /// Returns whether the entry leaves times unchanged.
    fn is_identity(&self) -> bool {
        self.offset == 0 && self.drift.is_none_or(|drift| drift.ppm == 0.0)
    }
}

/// Largest usual difference between the rates of computer clocks, ppm: NTP corrects no more than that.
const USUAL_PPM: f64 = 500.0;
/// Largest accepted difference between the rates of two clocks, ppm.
const MAX_PPM: f64 = 100_000.0;

/// Checks the measurements of one clock, in order of time. Returns a warning for each unusual rate.
///
/// # Errors
/// The line and the reason, if the measurements contradict each other.
fn check(lines: &[&Entry]) -> Result<Vec<String>, (usize, String)> {
    let mut unusual_rates = Vec::new();
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
        if ppm.abs() > MAX_PPM {
            return wrong(format!("with line {first} the clock would be off by {ppm:.0} ppm, and none is"));
        }
        if ppm.abs() > USUAL_PPM {
            unusual_rates.push(unusual_rate(b.line, &format!("{ppm:.0} ppm since line {first}")));
        }
    }
    Ok(unusual_rates)
}

/// Describes a rate that is unusual for a clock.
fn unusual_rate(line: usize, rate: &str) -> String {
    format!(
        "clock file, line {line}: {rate} is used as it is, but clocks differ by less than {USUAL_PPM} ppm: \
         is all in ns of CLOCK_BOOTTIME?"
    )
}

#[cfg(test)]
mod tests;
