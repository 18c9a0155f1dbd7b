use super::TraceProcessor;
use super::binaries::repository;
use super::job::Job;
use super::skip;
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Perfetto's UI in a Chromium without a window.
#[derive(Clone, Debug)]
pub struct PerfettoUi {
    /// The folder with its index.html.
    site: PathBuf,
    version: String,
}

/// How a trace is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenedBy {
    /// The address names the trace.
    Address,
    /// A user opens the file on the page.
    User,
}

/// What the UI shows of a trace.
#[derive(Clone, Debug)]
pub struct OpenedTrace {
    /// The tracks below each other: `{"name", "children"}`.
    pub tracks: Vec<Value>,
    /// How many slices it has loaded; `None` for UIs up to v47, which do not say so.
    pub slices: Option<u64>,
    /// Its complaints about the trace: import errors, a dialog, exceptions of its own.
    pub errors: Vec<String>,
}

impl PerfettoUi {
    /// All versions that ci/setup installed, the oldest first; where there is none, or no Chromium, says that `what` is
    /// skipped.
    ///
    /// # Panics
    /// If there is none, and `RPD_CI_CHROMIUM` is 1.
    pub fn all(what: &str) -> Vec<PerfettoUi> {
        let asked = env::var("RPD_CI_CHROMIUM").unwrap_or_default();
        let found = if asked == "0" { Err("RPD_CI_CHROMIUM is 0") } else { found(what) };
        found.unwrap_or_else(|why| {
            assert!(asked != "1", "{what}: RPD_CI_CHROMIUM is 1, but {why}");
            skip(what, why);
            Vec::new()
        })
    }

    /// The newest of [`PerfettoUi::all`].
    ///
    /// # Panics
    /// As [`PerfettoUi::all`].
    pub fn newest(what: &str) -> Option<PerfettoUi> {
        PerfettoUi::all(what).pop()
    }

    /// The version of Perfetto: `v52.0-6b9586def`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Opens a trace with its processes and GPUs unfolded, and writes a picture of it.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn open(&self, trace: &Path, picture: &Path) -> OpenedTrace {
        self.open_with_commands(trace, picture, "", OpenedBy::Address)
    }

    /// Opens a trace as [`PerfettoUi::open`] does, at an address with these commands, which are escaped.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn open_with_commands(
        &self,
        trace: &Path,
        picture: &Path,
        commands: &str,
        way: OpenedBy,
    ) -> OpenedTrace {
        let way = if way == OpenedBy::User { "file" } else { "address" };
        let outcome = Job::new("node")
            .arg(repository().join("tests/perfetto/ui.mjs"))
            .args([&self.site, trace, picture])
            .args(["2", commands, way])
            .limit(Duration::from_secs(100))
            .run()
            .success();
        let shown: Value = serde_json::from_str(&outcome.stdout).expect("the script writes JSON");
        let list = |what: &str| shown[what].as_array().cloned().unwrap_or_default();
        let mut errors: Vec<String> = list("errors").iter().map(Value::to_string).collect();
        errors.extend(shown["dialog"].as_str().map(str::to_owned));
        OpenedTrace { tracks: list("tracks"), slices: shown["slices"].as_u64(), errors }
    }
}

fn found(what: &str) -> Result<Vec<PerfettoUi>, &'static str> {
    let chromium = env::var_os("RPD_CHROMIUM").unwrap_or_else(|| "chromium".into());
    if Job::new("sh").args(["-c", "command -v \"$0\""]).arg(chromium).run().code() != Some(0) {
        return Err("chromium is not here");
    }
    let of = |tp: &TraceProcessor| Some(PerfettoUi { site: tp.site()?, version: tp.version().to_owned() });
    let all: Vec<PerfettoUi> = TraceProcessor::all(what).iter().filter_map(of).collect();
    if all.is_empty() { Err("no UI is here: ci/setup --test installs it") } else { Ok(all) }
}

impl OpenedTrace {
    /// The names of the tracks, a line each, two more spaces for each level; without those of the UI itself.
    pub fn tree(&self) -> String {
        fn lines(tracks: &[Value], depth: usize, out: &mut String) {
            for track in tracks {
                let name = track["name"].as_str().unwrap_or_default();
                out.push_str(&format!("{:width$}{name}\n", "", width = 2 * depth));
                lines(track["children"].as_array().map_or(&[], Vec::as_slice), depth + 1, out);
            }
        }
        let own: Vec<Value> = self.tracks.iter().filter(|track| track["name"] != "System").cloned().collect();
        let mut out = String::new();
        lines(&own, 0, &mut out);
        out
    }
}
