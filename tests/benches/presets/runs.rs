//! Runs, a line of JSON each.

use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One run of a program.
#[derive(Serialize, Deserialize)]
pub(crate) struct ProgramRun {
    pub(crate) program: String,
    /// The preset, or "alone".
    pub(crate) way: String,
    pub(crate) round: usize,
    /// Checksum of the library and the collector.
    pub(crate) build: String,
    /// Lines that must be the same in each run.
    pub(crate) result: String,
    /// User and system time of the processes of the program, s.
    pub(crate) cpu_s: f64,
    /// Mean of that of a step of a rank, s.
    pub(crate) step_s: f64,
    /// Share of the steps that count in the mean: each rank had a whole core.
    pub(crate) counted: f64,
    /// Best time of the loop by which whole cores are found, s.
    pub(crate) control_s: f64,
    /// That of the launcher and the collectors, s.
    pub(crate) other_cpu_s: f64,
}

/// All runs of a build so far.
#[derive(Default)]
pub(crate) struct RunResults {
    path: Option<PathBuf>,
    runs: Vec<ProgramRun>,
}

impl RunResults {
    /// Reads the runs of a build in a file. A line that was cut is a run that is missing.
    pub(crate) fn open(path: &Path, build: &str) -> RunResults {
        let text = fs::read_to_string(path).unwrap_or_default();
        let runs = text.lines().filter_map(|line| serde_json::from_str::<ProgramRun>(line).ok());
        RunResults { path: Some(path.to_owned()), runs: runs.filter(|run| run.build == build).collect() }
    }

    pub(crate) fn has(&self, program: &str, way: &str, round: usize) -> bool {
        self.runs.iter().any(|run| run.program == program && run.way == way && run.round == round)
    }

    /// Adds a run, and appends it to the file.
    pub(crate) fn add(&mut self, run: ProgramRun) -> io::Result<()> {
        if let Some(path) = &self.path {
            let line = serde_json::to_string(&run)?;
            writeln!(OpenOptions::new().create(true).append(true).open(path)?, "{line}")?;
        }
        self.runs.push(run);
        Ok(())
    }

    /// Returns the names of the programs that ran alone.
    pub(crate) fn programs(&self) -> Vec<String> {
        let mut names: Vec<String> = self.runs.iter().map(|run| run.program.clone()).collect();
        names.sort();
        names.dedup();
        names.retain(|name| !self.of(name, crate::ALONE).is_empty());
        names
    }

    pub(crate) fn of(&self, program: &str, way: &str) -> Vec<&ProgramRun> {
        self.of_program(program).filter(|run| run.way == way).collect()
    }

    pub(crate) fn of_program(&self, program: &str) -> impl Iterator<Item = &ProgramRun> {
        self.runs.iter().filter(move |run| run.program == program)
    }
}
