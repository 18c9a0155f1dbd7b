use super::binaries::repository;
use super::job::Job;
use super::skip;
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A row of an answer: integers are `i64`, blobs an object with their size.
pub type Row = Vec<Value>;

/// Perfetto's own reader of traces, of one version, run by Node as its UI runs it.
#[derive(Clone, Debug)]
pub struct TraceProcessor {
    /// The folder of the UI that it is part of.
    ui: PathBuf,
}

impl TraceProcessor {
    /// Finds everything that the trace processor takes to be wrong with a trace: name and count.
    pub const COMPLAINTS: &str =
        "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0";

    /// All versions that ci/setup installed; where there are none, says that `what` is skipped.
    ///
    /// They are below `target/tools/perfetto`, or below the folder that `RPD_PERFETTO` names.
    ///
    /// # Panics
    /// If there are none, and `RPD_CI_TRACE_PROCESSOR` is 1.
    pub fn all(what: &str) -> Vec<TraceProcessor> {
        let asked = env::var("RPD_CI_TRACE_PROCESSOR").unwrap_or_default();
        let found = if asked == "0" { Err("RPD_CI_TRACE_PROCESSOR is 0") } else { installed() };
        found.unwrap_or_else(|why| {
            assert!(asked != "1", "{what}: RPD_CI_TRACE_PROCESSOR is 1, but {why}");
            skip(what, why);
            Vec::new()
        })
    }

    /// The version of Perfetto: `v52.0-6b9586def`.
    pub fn version(&self) -> &str {
        self.ui.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// The folder of the UI's first page, if it is there.
    pub(super) fn site(&self) -> Option<PathBuf> {
        self.ui.parent().filter(|site| site.join("index.html").is_file()).map(Path::to_path_buf)
    }

    /// What a query finds in a trace.
    ///
    /// # Panics
    /// If the trace or the query is refused.
    pub fn query(&self, trace: &Path, sql: &str) -> Vec<Row> {
        let [rows] = self.queries(trace, [sql]);
        rows
    }

    /// What each query finds in a trace, which is loaded once.
    ///
    /// # Panics
    /// If the trace or a query is refused.
    pub fn queries<const N: usize>(&self, trace: &Path, sql: [&str; N]) -> [Vec<Row>; N] {
        let [answers] =
            <[_; 1]>::try_from(self.each(&[trace.to_owned()], sql)).expect("an answer to a trace");
        answers
    }

    /// The same for several traces, each alone: one start of Node, which takes a second, does for all.
    ///
    /// # Panics
    /// If a trace or a query is refused.
    pub fn each<const N: usize>(&self, traces: &[PathBuf], sql: [&str; N]) -> Vec<[Vec<Row>; N]> {
        self.answers(traces, sql).0
    }

    /// How many seconds a trace takes to load, without the start of the trace processor, and what queries find in it.
    ///
    /// # Panics
    /// If the trace or a query is refused.
    pub fn load<const N: usize>(&self, trace: &Path, sql: [&str; N]) -> (f64, [Vec<Row>; N]) {
        let (mut answers, said) = self.answers(&[trace.to_owned()], sql);
        let seconds = said.lines().find_map(|line| line.strip_prefix("loaded in ")?.strip_suffix(" s"));
        let seconds = seconds.and_then(|seconds| seconds.parse().ok());
        (seconds.expect("the script tells how long it took"), answers.pop().expect("an answer to a trace"))
    }

    /// What queries find in traces, and what the script says.
    fn answers<const N: usize>(&self, traces: &[PathBuf], sql: [&str; N]) -> (Vec<[Vec<Row>; N]>, String) {
        let outcome = Job::new("node")
            .arg(repository().join("tests/perfetto/trace_processor.mjs"))
            .arg(&self.ui)
            .args(traces)
            .arg("--")
            .args(sql)
            .limit(Duration::from_secs(200))
            .run()
            .success();
        let answers: Vec<Vec<Row>> = outcome.stdout.lines().map(rows).collect();
        assert_eq!(answers.len(), traces.len() * N, "not an answer to each query:\n{}", outcome.stderr);
        let mut answers = answers.into_iter();
        let answers = traces.iter().map(|_| std::array::from_fn(|_| answers.next().unwrap_or_default()));
        (answers.collect(), outcome.stderr)
    }
}

fn rows(line: &str) -> Vec<Row> {
    let answer: Value = serde_json::from_str(line).expect("the script writes JSON");
    serde_json::from_value(answer["rows"].clone()).expect("an answer has rows of values")
}

fn installed() -> Result<Vec<TraceProcessor>, &'static str> {
    if Job::new("sh").args(["-c", "command -v node"]).run().code() != Some(0) {
        return Err("node is not here");
    }
    let tools =
        env::var_os("RPD_PERFETTO").map_or_else(|| repository().join("target/tools/perfetto"), PathBuf::from);
    // A folder for each version of the package, and in it one for the version of the UI.
    let mut found: Vec<_> = folders(&tools)
        .iter()
        .flat_map(|package| folders(package))
        .filter(|ui| ui.join("engine_bundle.js").is_file())
        .map(|ui| TraceProcessor { ui })
        .collect();
    found.sort_by(|a, b| a.ui.cmp(&b.ui));
    if found.is_empty() { Err("no trace processor is here: ci/setup --test installs it") } else { Ok(found) }
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}
