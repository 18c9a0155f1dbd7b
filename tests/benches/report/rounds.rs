//! The seconds of each turn, round by round, in a file that outlives the benchmark.

use crate::CONTESTANTS;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Seconds of the turns of a round, in the order of the contestants.
pub(crate) type RoundSeconds = [f64; CONTESTANTS.len()];

/// Rounds that are done.
pub(crate) struct TimedRounds {
    done: Vec<RoundSeconds>,
    file: File,
}

impl TimedRounds {
    /// Reads the rounds of a file, to which others are appended: a line of comma-separated seconds for each.
    ///
    /// # Errors
    /// If the file cannot be read, or has other lines.
    pub(crate) fn open(path: &Path) -> Result<TimedRounds, Box<dyn Error>> {
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        let round = |line: &str| -> Result<RoundSeconds, Box<dyn Error>> {
            let seconds = line.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
            seconds.try_into().map_err(|_| format!("{}: not a round: {line}", path.display()).into())
        };
        let done = text.lines().map(round).collect::<Result<_, _>>()?;
        Ok(TimedRounds { done, file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    pub(crate) fn count(&self) -> usize {
        self.done.len()
    }

    pub(crate) fn add(&mut self, seconds: RoundSeconds) -> Result<(), std::io::Error> {
        let line = seconds.map(|seconds| format!("{seconds:.6}")).join(",");
        writeln!(self.file, "{line}")?;
        self.done.push(seconds);
        Ok(())
    }

    /// Returns the seconds of all rounds, by contestant.
    pub(crate) fn by_contestant(&self) -> [Vec<f64>; CONTESTANTS.len()] {
        std::array::from_fn(|at| self.done.iter().map(|round| round[at]).collect())
    }
}
