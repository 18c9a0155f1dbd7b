//! What the chosen profilers need, put together.

use super::choice::{Backend, BackendChoice, ResolvedBackends};
use super::harvest::Harvest;
use super::scratch::Scratch;
use super::{debug_agent, rocprof_sys, rocprofv3, rpd_tracer, tool, torch};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the user asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
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
pub(super) struct Unavailable(pub(super) String);

impl Asked<'_> {
    /// The configuration, if one was named; it has to be a file that can be read.
    pub(super) fn readable_config(&self) -> Result<Option<&Path>, Unavailable> {
        let Some(path) = self.config else { return Ok(None) };
        let readable = File::open(path).and_then(|file| match file.metadata()?.is_file() {
            true => Ok(()),
            false => Err(io::Error::other("it is no file")),
        });
        let refused = |error| {
            Unavailable(format!(
                "--backend-config {}: {error}: the command runs without a profiler; name a file that each node can read",
                path.display()
            ))
        };
        readable.map(|()| Some(path)).map_err(refused)
    }
}

impl Unavailable {
    pub(super) fn missing(backend: &str, looked_for: &str) -> Unavailable {
        Unavailable(format!(
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
pub struct Plan {
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
    pub harvest: Option<Harvest>,
    /// The folder on the node, which we look after.
    pub scratch: Option<Scratch>,
    /// A signal before the end has to end the program well, or nothing is written.
    pub ends_early: bool,
}

impl Plan {
    /// Whether a profiler is there, beside our own library.
    pub fn has_profiler(&self) -> bool {
        self.harvest.as_ref().is_some_and(|harvest| !harvest.backends.is_empty())
    }

    pub(super) fn say(&mut self, line: String) {
        self.said.push(line);
    }

    /// Goes on without a profiler. Where `auto` chose it, the line about what records what has the reason.
    fn refuse(&mut self, why: Unavailable) {
        match &mut self.gpu {
            Some(gpu) => *gpu = GpuRecording::Unusable(why.0),
            None => self.said.push(format!("warning: {}", why.0)),
        }
    }
}

/// Finds the profilers and prepares them. What is missing is said, and the command runs without it. `rank` names the
/// folder on the node; one that is not recorded gets no profiler.
pub fn plan(asked: &Asked<'_>, rank: &str, is_recorded: bool) -> Plan {
    let ResolvedBackends { backends: chosen, reason, gpu } = asked.choice.resolve(asked.library);
    let mut plan = Plan { nothing: chosen.is_empty() && asked.named, ..Plan::default() };
    plan.native = chosen.contains(&Backend::Native);
    plan.gpu = gpu.map(|device| match chosen.contains(&Backend::Rocprofv3) {
        true => GpuRecording::Profiler(device),
        false => GpuRecording::NotInstalled(format!(
            "{} is there, and no rocprofv3 in {}",
            device.display(),
            tool::PLACES
        )),
    });
    // Who asked for nothing hears only of what is unusual.
    plan.said.extend(reason.filter(|_| asked.named && plan.gpu.is_none()));
    let others: Vec<Backend> = chosen.iter().copied().filter(|backend| *backend != Backend::Native).collect();
    if asked.library && !plan.native {
        plan.say("warning: --trace is about roctx, MPI and RCCL of native, which was not chosen: add native to --backend".to_owned());
    }
    if !asked.arguments.is_empty() && others.is_empty() {
        plan.say(
            "warning: --backend-arg is for rocprofv3, rocprof-sys, rpd-tracer and torch: it has no effect"
                .to_owned(),
        );
    }
    if asked.config.is_some() && !others.iter().any(|backend| backend.has_configuration()) {
        plan.say("warning: --backend-config is for rocprofv3 and rocprof-sys: it has no effect".to_owned());
    }
    if others.is_empty() && !asked.debug_agent || !is_recorded {
        return plan;
    }
    let scratch = match Scratch::make(asked.scratch, rank) {
        Ok(scratch) => scratch,
        Err(error) => {
            plan.refuse(Unavailable(format!(
                "no folder for the files of a profiler in {}: {error}; the command runs without one: choose another \
                 with --scratch",
                asked.scratch.display()
            )));
            return plan;
        }
    };
    let mut used = Vec::new();
    for backend in others {
        let prepared = scratch
            .folder(backend.name())
            .map_err(|error| Unavailable(error.to_string()))
            .and_then(|folder| match backend {
                Backend::Native => Ok(()),
                Backend::Rocprofv3 => rocprofv3::prepare(asked, &folder, &mut plan),
                Backend::RocprofSys => rocprof_sys::prepare(asked, &folder, &mut plan),
                Backend::RpdTracer => rpd_tracer::prepare(asked, &folder, &mut plan),
                Backend::Torch => torch::prepare(asked, &folder, &mut plan),
            });
        match prepared {
            Ok(()) => {
                plan.ends_early |= backend.writes_at_exit();
                used.push(backend.name().to_owned());
            }
            Err(why) => plan.refuse(why),
        }
    }
    let mut agent = false;
    if asked.debug_agent {
        let folder = scratch.path().to_owned();
        match debug_agent::prepare(&folder, &mut plan) {
            Ok(()) => agent = true,
            Err(why) => plan.say(format!("warning: {}", why.0)),
        }
    }
    if used.is_empty() && !agent {
        scratch.remove();
        return plan;
    }
    plan.harvest = Some(Harvest {
        scratch: scratch.path().to_owned().into(),
        backends: used,
        debug_agent: agent,
        keep: asked.keep,
        wait_seconds: asked.wait.as_secs(),
    });
    plan.scratch = Some(scratch);
    plan
}
