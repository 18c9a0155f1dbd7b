//! Selects what is recorded.

use rpd_ring::message::TRACED;
use std::str::FromStr;

/// Word for the metrics that the collector itself records, besides the calls that the library records in the
/// program.
const SYSTEM: &str = "system";
/// Word for samples of Python stacks, which the collector takes from outside of the program.
const PYTHON: &str = "python";

/// Selection of APIs and metrics to record, as in `--trace roctx,mpi,rccl,system`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceSelection {
    /// Words of [`TRACED`] that the library records, in the order of that list.
    pub library: Vec<&'static str>,
    /// Record the metrics of the node and of recorded threads.
    pub system: bool,
    /// Sample the Python stacks of recorded threads.
    pub python: bool,
}

impl Default for TraceSelection {
    fn default() -> TraceSelection {
        TraceSelection { library: TRACED.to_vec(), system: true, python: false }
    }
}

impl TraceSelection {
    /// Describes the selection for users: `roctx, MPI and RCCL calls and system metrics`. Empty if nothing is
    /// selected.
    pub fn described(&self) -> String {
        let calls = self.library.iter().map(|word| name_of(word));
        let calls = match calls.collect::<Vec<_>>().as_slice() {
            [] => None,
            [one] => Some(format!("{one} calls")),
            [first @ .., last] => Some(format!("{} and {last} calls", first.join(", "))),
        };
        let stacks = self.python.then(|| "Python stacks".to_owned());
        let metrics = self.system.then(|| "system metrics".to_owned());
        calls.into_iter().chain(stacks).chain(metrics).collect::<Vec<_>>().join(" and ")
    }

    /// Returns whether the user chose calls. `python` records all of them without a choice.
    pub fn names_calls(&self) -> bool {
        let follows_python = self.python && self.library == TRACED;
        !self.library.is_empty() && !follows_python
    }

    /// Returns the value of [`rpd_ring::message::TRACE_VARIABLE`].
    pub fn library_words(&self) -> String {
        self.library.join(",")
    }
}

impl FromStr for TraceSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<TraceSelection, String> {
        let mut trace = TraceSelection { library: Vec::new(), system: false, python: false };
        let lower = text.to_ascii_lowercase();
        for word in lower.split(',').map(str::trim) {
            match TRACED.into_iter().find(|known| *known == word) {
                Some(known) if trace.library.contains(&known) => {}
                Some(known) => trace.library.push(known),
                None if word == SYSTEM => trace.system = true,
                None if word == PYTHON => trace.python = true,
                None if word == "all" => {
                    trace = TraceSelection { python: trace.python, ..TraceSelection::default() };
                }
                None if word == "none" => {}
                None => {
                    return Err(format!(
                        "{word:?} cannot be recorded; did you mean {}? There are roctx, mpi, rccl, python, system, all and none",
                        nearest(word)
                    ));
                }
            }
        }
        if trace.python && trace.library.is_empty() {
            // Stacks are sampled of threads that the library records.
            trace.library = TRACED.to_vec();
        }
        trace.library.sort_by_key(|word| TRACED.iter().position(|known| known == word));
        Ok(trace)
    }
}

impl std::fmt::Display for TraceSelection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others = self.python.then_some(PYTHON).into_iter().chain(self.system.then_some(SYSTEM));
        let words: Vec<&str> = self.library.iter().copied().chain(others).collect();
        f.write_str(if words.is_empty() { "none".to_owned() } else { words.join(",") }.as_str())
    }
}

/// Returns the usual name for a word of `--trace`.
pub(crate) fn name_of(word: &str) -> &str {
    match word {
        "mpi" => "MPI",
        "rccl" => "RCCL",
        word => word,
    }
}

/// Returns the known word with the smallest edit distance.
fn nearest(word: &str) -> &'static str {
    let known = TRACED.into_iter().chain([PYTHON, SYSTEM, "all", "none"]);
    known.min_by_key(|known| edits(word, known)).unwrap_or(SYSTEM)
}

/// Returns the edit distance of two words. Uses only the start of a long word.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (at, letter) in from.chars().take(64).enumerate() {
        let mut next = vec![at + 1];
        for (other, pair) in to.chars().zip(row.windows(2)) {
            let [replace, insert] = pair else { continue };
            let replace = replace + usize::from(other != letter);
            let remove = next.last().map_or(usize::MAX, |last| last + 1);
            next.push(replace.min(insert + 1).min(remove));
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_described() {
        for (trace, described) in [
            ("all", "roctx, MPI and RCCL calls and system metrics"),
            ("mpi,rccl", "MPI and RCCL calls"),
            ("roctx,system", "roctx calls and system metrics"),
            ("system", "system metrics"),
            ("python", "roctx, MPI and RCCL calls and Python stacks"),
            ("mpi,python", "MPI calls and Python stacks"),
            ("none", ""),
        ] {
            assert_eq!(trace.parse::<TraceSelection>().unwrap().described(), described);
        }
    }

    #[test]
    fn words_are_understood_and_a_wrong_one_names_the_nearest() {
        for (given, shown) in [
            ("all", "roctx,mpi,rccl,system"),
            ("mpi, ROCTX,mpi", "roctx,mpi"),
            ("system", "system"),
            ("none", "none"),
            ("none,mpi", "mpi"),
            ("python", "roctx,mpi,rccl,python"),
            ("python,all", "roctx,mpi,rccl,python,system"),
            ("all,python", "roctx,mpi,rccl,python,system"),
        ] {
            assert_eq!(given.parse::<TraceSelection>().unwrap().to_string(), shown);
        }
        assert_eq!(TraceSelection::default().to_string(), "roctx,mpi,rccl,system");
        for (wrong, nearest) in
            [("rocx", "roctx"), ("nccl", "rccl"), ("MPIC", "mpi"), ("sytem", "system"), ("", "mpi")]
        {
            let error = wrong.parse::<TraceSelection>().unwrap_err();
            assert!(error.contains(&format!("did you mean {nearest}?")), "{error}");
        }
    }
}
