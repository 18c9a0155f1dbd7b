//! What was asked of the backends, and what the command is started with for them.

use super::choice::BackendChoice;
use super::scratch::ScratchFolder;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the user asked for.
#[derive(Clone, Copy, Debug)]
pub struct BackendRequest<'a> {
    /// Which profilers.
    pub choice: &'a BackendChoice,
    /// Whether they were named, by an option or a variable.
    pub named: bool,
    /// Whether it was said what our own library records.
    pub library: bool,
    /// What our own library records, if it is one of them: words of [`rpd_ring::message::TRACED`].
    pub words: &'a [&'static str],
    /// Handed on to the profiler.
    pub arguments: &'a [OsString],
    /// Its configuration.
    pub config: Option<&'a Path>,
    /// Under the debug agent.
    pub debug_agent: bool,
    /// Where folders for files are made on the node.
    pub scratch: &'a Path,
    /// They stay.
    pub keep: bool,
    /// A profiler that has not started the command by then is given up.
    pub wait: Duration,
}

/// Why a profiler is not used: one line, with the next step.
#[derive(Debug)]
pub(super) struct UnavailableBackend(pub(super) String);

impl BackendRequest<'_> {
    /// The configuration, if one was named; it has to be a file that can be read.
    pub(super) fn readable_config(&self) -> Result<Option<&Path>, UnavailableBackend> {
        let Some(path) = self.config else { return Ok(None) };
        let readable = File::open(path).and_then(|file| match file.metadata()?.is_file() {
            true => Ok(()),
            false => Err(io::Error::other("it is no file")),
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

/// What records the work of a GPU, where `auto` found one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpuRecording {
    /// rocprofv3, since this device is there.
    Profiler(PathBuf),
    /// Nothing, since rocprofv3 is not installed.
    NotInstalled(String),
    /// Nothing, since rocprofv3 cannot be used.
    Unusable(String),
}

/// What the command is started with.
#[derive(Debug, Default)]
pub struct BackendPlan {
    /// Words in front of the command.
    pub front: Vec<OsString>,
    /// Variables beyond those of the library.
    pub variables: Vec<(String, OsString)>,
    /// Libraries to preload, in front of what is there.
    pub preload: Vec<PathBuf>,
    /// Folder that comes first where Python looks for modules.
    pub python: Option<PathBuf>,
    /// Whether our own library records.
    pub native: bool,
    /// Words of [`rpd_ring::message::TRACED`] that our own library leaves to a profiler, which records them, too.
    pub left_to_profiler: Vec<&'static str>,
    /// What records the work of the GPU that `auto` found.
    pub gpu: Option<GpuRecording>,
    /// Identity and clocks alone were asked for.
    pub nothing: bool,
    /// What was chosen and why, and what is not there: for the log.
    pub said: Vec<String>,
    /// What is fetched when the command has ended.
    pub harvest: Option<HarvestRequest>,
    /// The folder on the node, which we look after.
    pub scratch: Option<ScratchFolder>,
    /// A signal before the end has to end the program well, or nothing is written.
    pub ends_early: bool,
}

impl BackendPlan {
    /// Whether a profiler is there, beside our own library.
    pub fn has_profiler(&self) -> bool {
        self.harvest.as_ref().is_some_and(|harvest| !harvest.backends.is_empty())
    }

    pub(super) fn say(&mut self, line: String) {
        self.said.push(line);
    }

    /// Goes on without a profiler. Where `auto` chose it, the line about what records what has the reason.
    pub(super) fn refuse(&mut self, why: UnavailableBackend) {
        match &mut self.gpu {
            Some(gpu) => *gpu = GpuRecording::Unusable(why.0),
            None => self.said.push(format!("warning: {}", why.0)),
        }
    }
}

/// What is fetched when the command has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HarvestRequest {
    /// The folder on the node.
    pub scratch: OsString,
    /// Folders in it: the names of backends.
    pub backends: Vec<String>,
    /// The debug agent ran, too.
    pub debug_agent: bool,
    /// The folder stays.
    pub keep: bool,
    /// How long a profiler has to start the command, s.
    pub wait_seconds: u64,
}
