//! The user's request for backends, and the plan for starting the command.

use super::choice::{BackendChoice, BackendKind};
use super::scratch::ScratchFolder;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options about backends.
#[derive(Clone, Copy, Debug)]
pub struct BackendRequest<'a> {
    /// The backends.
    pub choice: &'a BackendChoice,
    /// An option or a variable named them.
    pub named: bool,
    /// The user selected what our own library records.
    pub library: bool,
    /// Words of [`rpd_ring::message::TRACED`] that the collector's own library records, if it is one of the
    /// backends.
    pub words: &'a [&'static str],
    /// Arguments for the profiler.
    pub arguments: &'a [OsString],
    /// Configuration of the profiler.
    pub config: Option<&'a Path>,
    /// Run under the debug agent.
    pub debug_agent: bool,
    /// Folder on the node for scratch folders.
    pub scratch: &'a Path,
    /// Keep the scratch folder.
    pub keep: bool,
    /// Maximum time for a profiler to start the command.
    pub wait: Duration,
}

/// The reason why a profiler is not used: one line, with the next step.
#[derive(Debug)]
pub(super) struct UnavailableBackend(pub(super) String);

impl BackendRequest<'_> {
    /// Returns the configuration, if one was named.
    ///
    /// # Errors
    /// If it is not a readable file.
    pub(super) fn readable_config(&self) -> Result<Option<&Path>, UnavailableBackend> {
        let Some(path) = self.config else { return Ok(None) };
        let readable = File::open(path).and_then(|file| match file.metadata()?.is_file() {
            true => Ok(()),
            false => Err(io::Error::other("it is not a file")),
        });
        let refused = |error| {
            UnavailableBackend(format!(
                "--backend-config {}: {error}: the command runs without a profiler; name a file that each node can read",
                path.display()
            ))
        };
        readable.map(|()| Some(path)).map_err(refused)
    }
}

impl UnavailableBackend {
    pub(super) fn missing(backend: &str, looked_for: &str) -> UnavailableBackend {
        UnavailableBackend(format!(
            "backend {backend} is not installed: {looked_for}; load ROCm's module, or use --backend native"
        ))
    }
}

/// How GPU work is recorded, if `auto` found a GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpuRecording {
    /// rocprofv3, because this device exists.
    Profiler(PathBuf),
    /// Nothing, because rocprofv3 is not installed.
    NotInstalled(String),
    /// Nothing, because rocprofv3 cannot be used.
    Unusable(String),
}

/// How to start the command.
#[derive(Debug, Default)]
pub struct BackendPlan {
    /// Command line of the profiler that starts the command, up to its argument for the command.
    pub profiler_command: Vec<OsString>,
    /// Variables in addition to those of the library.
    pub variables: Vec<(String, OsString)>,
    /// Libraries to preload, before those that are set.
    pub preload: Vec<PathBuf>,
    /// Folder that Python searches first for modules.
    pub python: Option<PathBuf>,
    /// Whether our own library records.
    pub native: bool,
    /// Words of [`rpd_ring::message::TRACED`] that our own library leaves to a profiler.
    pub left_to_profiler: Vec<&'static str>,
    /// How the work of the GPU that `auto` found is recorded.
    pub gpu: Option<GpuRecording>,
    /// The user requested only identity and clocks.
    pub nothing: bool,
    /// Log lines about what was chosen and why, and what is missing.
    pub notes: Vec<String>,
    /// Files to import after the command has ended.
    pub harvest: Option<HarvestRequest>,
    /// The folder on the node, which this process owns.
    pub scratch: Option<ScratchFolder>,
    /// An early signal must end the program normally, or the profiler writes nothing.
    pub ends_early: bool,
}

impl BackendPlan {
    /// Whether there is a profiler besides our own library.
    pub fn has_profiler(&self) -> bool {
        self.harvest.as_ref().is_some_and(|harvest| !harvest.backends.is_empty())
    }

    pub(super) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Continues without a profiler. If `auto` chose it, the line about what records what has the reason.
    pub(super) fn refuse(&mut self, why: UnavailableBackend) {
        match &mut self.gpu {
            Some(gpu) => *gpu = GpuRecording::Unusable(why.0),
            None => self.notes.push(format!("warning: {}", why.0)),
        }
    }
}

/// Files to import after the command has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HarvestRequest {
    /// The folder on the node.
    pub scratch: OsString,
    /// The profilers. Each has a folder with its name in it.
    pub backends: Vec<BackendKind>,
    /// The debug agent ran as well.
    pub debug_agent: bool,
    /// Keep the folder.
    pub keep: bool,
    /// Maximum time for a profiler to start the command, s.
    pub wait_seconds: u64,
}
