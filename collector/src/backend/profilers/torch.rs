//! PyTorch's profiler, started by a `sitecustomize` that Python imports at its start.

use crate::backend::request::{BackendPlan, BackendRequest, UnavailableBackend};
use crate::host::bounded_read::read_at_most;
use rpd_shard::record::ProcessExit;
use std::fs;
use std::path::Path;

/// The hook. It runs in the user's program; its own comments list its guarantees.
const HOOK: &str = include_str!("torch/sitecustomize.py");
/// Settings, and the variables that the hook reads.
const SETTINGS: [(&str, &str); 6] = [
    ("delay", "RPD_TORCH_DELAY"),
    ("duration", "RPD_TORCH_DURATION"),
    ("shapes", "RPD_TORCH_SHAPES"),
    ("stack", "RPD_TORCH_STACK"),
    ("memory", "RPD_TORCH_MEMORY"),
    ("flops", "RPD_TORCH_FLOPS"),
];

/// Maximum number of bytes of a mark.
const MAX_MARK_BYTES: u64 = 200;

pub(crate) fn prepare(
    request: &BackendRequest<'_>,
    folder: &Path,
    plan: &mut BackendPlan,
) -> Result<(), UnavailableBackend> {
    for argument in request.arguments {
        let text = argument.to_string_lossy();
        let setting = text.split_once('=').and_then(|(name, value)| {
            Some((SETTINGS.iter().find(|(setting, _)| *setting == name)?.1, value))
        });
        let Some((variable, value)) = setting else {
            let known: Vec<_> = SETTINGS.iter().map(|(setting, _)| *setting).collect();
            return Err(UnavailableBackend(format!(
                "--backend-arg {text}: torch takes {}, as duration=60",
                known.join(", ")
            )));
        };
        if value.parse::<f64>().is_err() && !["on", "true", "yes", "off", "false", "no"].contains(&value) {
            return Err(UnavailableBackend(format!("--backend-arg {text}: {value:?} is not a number")));
        }
        plan.variables.push((variable.to_owned(), value.into()));
    }
    let python = folder.join("python");
    let hook = python.join("sitecustomize.py");
    let written = std::fs::create_dir_all(&python).and_then(|()| std::fs::write(&hook, HOOK));
    written.map_err(|error| UnavailableBackend(format!("{}: cannot be written: {error}", hook.display())))?;
    plan.variables.push(("RPD_TORCH_OUTPUT".to_owned(), folder.into()));
    plan.python = Some(python);
    plan.note("backend torch: torch.profiler from the import of torch to the end of the program");
    Ok(())
}

/// A process in which the profiler ran and wrote no file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnwrittenProcess {
    pub(crate) pid: i32,
    /// Its rank or number, if known.
    label: String,
}

impl UnwrittenProcess {
    /// Formats a line for the log.
    pub(crate) fn line(&self) -> String {
        let UnwrittenProcess { pid, label } = self;
        let label = if label.is_empty() { String::new() } else { format!(" ({label})") };
        format!(
            "torch wrote no file for process {pid}{label}: a signal, os._exit or exec ended it before its profiler could \
             write; --backend-arg duration=60 has it write after a minute"
        )
    }
}

/// Returns the processes with marks that the hook did not remove.
pub(crate) fn unwritten(marks: &[std::path::PathBuf]) -> Vec<UnwrittenProcess> {
    let of_mark = |path: &std::path::PathBuf| {
        let name = path.file_stem()?.to_str()?;
        let pid = name.strip_prefix("torch-")?.parse().ok()?;
        let text = read_at_most(path, MAX_MARK_BYTES);
        let label = String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).collect();
        Some(UnwrittenProcess { pid, label })
    };
    marks.iter().filter_map(of_mark).collect()
}

/// Explains why there is neither a file nor a mark, by how far the hook came.
pub(crate) fn why_nothing(folder: &Path, exit: Option<ProcessExit>) -> String {
    let came_to = |state: &str| fs::exists(folder.join(format!("torch.{state}.state"))).unwrap_or(false);
    if !came_to("loaded") {
        return "no Python that the program runs has loaded its hook: with -E, -I or -S, or without PYTHONPATH, it cannot; \
                run Python without these options"
            .to_owned();
    }
    if !came_to("imported") {
        return "the program did not import torch".to_owned();
    }
    if let Some(ProcessExit::Signal(signal)) = exit {
        return format!(
            "it writes at the end of the program, which died by signal {signal}; --backend-arg duration=60 has it write \
             after a minute"
        );
    }
    if came_to("children") {
        return "the program itself computed nothing with torch, and its children of multiprocessing were left out; start \
                ranks by torchrun or torch.multiprocessing.spawn, or set multiprocessing's start method to spawn and have \
                them join a process group"
            .to_owned();
    }
    "the program computed nothing with torch, ended before --backend-arg delay was over, or runs its own profiler".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let marks: Vec<_> = [("torch-41.mark", "rank 1 of 2"), ("torch-42.mark", ""), ("torch-x.mark", "")]
            .map(|(name, text)| {
                let path = folder.path().join(name);
                fs::write(&path, text).unwrap();
                path
            })
            .into();
        let found = unwritten(&marks);
        assert_eq!(found.iter().map(|found| found.pid).collect::<Vec<_>>(), [41, 42]);
        assert!(found[0].line().starts_with("torch wrote no file for process 41 (rank 1 of 2): "));
        assert!(found[1].line().starts_with("torch wrote no file for process 42: "));
    }

    #[test]
    fn the_reason_for_no_file_follows_from_the_states_of_the_hook() {
        let folder = tempfile::tempdir().unwrap();
        let why = |exit| why_nothing(folder.path(), Some(exit));
        let came_to =
            |state: &str| fs::write(folder.path().join(format!("torch.{state}.state")), "").unwrap();
        assert!(why(ProcessExit::Code(0)).contains("-E, -I"));
        came_to("loaded");
        assert!(why(ProcessExit::Signal(15)).contains("did not import torch"));
        came_to("imported");
        assert!(why(ProcessExit::Code(0)).contains("computed nothing with torch"));
        assert!(why(ProcessExit::Signal(15)).contains("signal 15"));
        came_to("children");
        assert!(why(ProcessExit::Code(1)).contains("torchrun"));
    }
}
