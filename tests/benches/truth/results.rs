use rpd_tests::truth::{AnswerVerdict, JudgedAnswer, RecordTreatment, Scenario, ScenarioKind};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

/// From what an answer is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerSource {
    /// The calls of the model, by the analysis.
    Calls,
    /// Shards, by `rpd-report`.
    Shards,
}

impl AnswerSource {
    pub(crate) const ALL: [AnswerSource; 2] = [AnswerSource::Calls, AnswerSource::Shards];

    /// Returns the name of a treatment of these records.
    pub(crate) fn treatment(self, treatment: RecordTreatment) -> String {
        match self {
            AnswerSource::Calls => treatment.name().to_owned(),
            AnswerSource::Shards => format!("{}, from shards", treatment.name()),
        }
    }
}

/// Which answer a line has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AnswerKey {
    pub(crate) scenario: String,
    pub(crate) treatment: String,
    pub(crate) seed: u64,
}

impl AnswerKey {
    pub(crate) fn new(
        source: AnswerSource,
        kind: ScenarioKind,
        treatment: RecordTreatment,
        seed: u64,
    ) -> AnswerKey {
        AnswerKey { scenario: kind.name(), treatment: source.treatment(treatment), seed }
    }

    pub(crate) fn large(scenario: &Scenario) -> AnswerKey {
        let key =
            AnswerKey::new(AnswerSource::Calls, scenario.kind, RecordTreatment::Complete, scenario.size.seed);
        AnswerKey { scenario: format!("30 large {}", key.scenario), ..key }
    }
}

/// A judged answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnswerLine {
    #[serde(flatten)]
    pub(crate) key: AnswerKey,
    pub(crate) verdict: String,
    pub(crate) ranks: u32,
    pub(crate) steps: u32,
    pub(crate) subject: u32,
    pub(crate) has_range: Option<bool>,
    pub(crate) has_pattern: Option<bool>,
    pub(crate) gain_ns: Option<i64>,
    pub(crate) error_bound_ns: Option<i64>,
    pub(crate) true_gain_ns: i64,
    pub(crate) length_ns: i64,
    pub(crate) gain_error: Option<f64>,
    pub(crate) covers_gain: Option<bool>,
    /// The verdict and its reasons, as text.
    pub(crate) says: String,
    pub(crate) seconds: f64,
}

impl AnswerLine {
    pub(crate) fn new(
        key: AnswerKey,
        scenario: &Scenario,
        answer: &JudgedAnswer,
        took: Duration,
    ) -> AnswerLine {
        AnswerLine {
            key,
            verdict: answer.verdict.name().to_owned(),
            ranks: scenario.size.ranks,
            steps: scenario.size.steps,
            subject: scenario.size.subject,
            has_range: answer.has_range,
            has_pattern: answer.has_pattern,
            gain_ns: answer.gain.map(|(ns, _)| ns),
            error_bound_ns: answer.gain.map(|(_, bound)| bound),
            true_gain_ns: answer.cost.gain_ns,
            length_ns: answer.cost.length_ns,
            gain_error: answer.gain_error(),
            covers_gain: answer.covers_gain(),
            says: answer.stated.text.clone(),
            seconds: took.as_secs_f64(),
        }
    }

    pub(crate) fn is(&self, verdict: AnswerVerdict) -> bool {
        self.verdict == verdict.name()
    }
}

/// The answers that are known, one in each line of a file.
pub(crate) struct ResultsFile {
    file: File,
    lines: Vec<AnswerLine>,
}

impl ResultsFile {
    pub(crate) fn open(path: &Path) -> io::Result<ResultsFile> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut lines = Vec::new();
        let mut ends_with_line = true;
        for line in BufReader::new(&file).split(b'\n') {
            // The last line of a run that was killed may be cut.
            let found = serde_json::from_slice(&line?);
            ends_with_line = found.is_ok();
            lines.extend(found);
        }
        if !ends_with_line {
            file.write_all(b"\n")?;
        }
        Ok(ResultsFile { file, lines })
    }

    pub(crate) fn has(&self, key: &AnswerKey) -> bool {
        self.lines.iter().any(|line| line.key == *key)
    }

    pub(crate) fn append(&mut self, line: AnswerLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.lines.push(line);
        Ok(())
    }

    pub(crate) fn lines(&self) -> &[AnswerLine] {
        &self.lines
    }
}
