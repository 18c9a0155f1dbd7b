//! Results of runs, a line of JSON each.

use rpd_tests::truth_real::{Judgement, Truth};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// One run.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) truth: Truth,
    /// None if there was no rpd-report.
    pub(crate) judgement: Option<Judgement>,
    /// What of the merged database differs from the logs.
    pub(crate) difference: Option<String>,
}

/// All runs so far.
pub(crate) struct Results {
    path: PathBuf,
    pub(crate) runs: Vec<RunResult>,
}

impl Results {
    /// Reads what is there. A line that was cut is a run that is missing.
    pub(crate) fn open(path: &Path) -> Results {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut results = Results { path: path.to_owned(), runs: Vec::new() };
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).for_each(|run| results.replace(run));
        results
    }

    /// Whether a run is there, with a judgement if it has to be judged.
    pub(crate) fn has(&self, scenario: &str, seed: u64, is_judged: bool) -> bool {
        let is_it = |run: &RunResult| run.truth.scenario == scenario && run.truth.seed == seed;
        self.runs.iter().any(|run| is_it(run) && (run.judgement.is_some() || !is_judged))
    }

    /// Adds a run, and appends it to the file.
    pub(crate) fn add(&mut self, run: RunResult) {
        let line = serde_json::to_string(&run).expect("a result as JSON");
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| writeln!(file, "{line}")).expect("the file of the results");
        self.replace(run);
    }

    fn replace(&mut self, run: RunResult) {
        self.runs
            .retain(|old| (&old.truth.scenario, old.truth.seed) != (&run.truth.scenario, run.truth.seed));
        self.runs.push(run);
    }
}
