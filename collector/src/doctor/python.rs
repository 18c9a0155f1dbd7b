//! Checks a Python program without running it: its MPI library, and whether its stacks can be sampled.

use super::finding::CheckFinding;
use super::library;
use crate::backend::query;
use crate::python_samples::{SUPPORTED_VERSIONS, yama_level};
use rustix::fs::{Access, access};
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::OsStr;
use std::path::Path;

/// Prints the path of the mpi4py module that loads MPI, without loading it.
const FIND_MODULE: &str =
    "import importlib.util as u\nprint('module:' + (u.find_spec('mpi4py.MPI').origin or ''))";
/// Prefix of the answer. Any other line is a message of the interpreter.
const MODULE: &str = "module:";

/// Prints the version, whether the interpreter has no global lock, and whether it is older than the release of that version.
const FIND_VERSION: &str = "import sys, sysconfig\nprint('version:%d.%d%s%s' % (*sys.version_info[:2], \
     't' if sysconfig.get_config_var('Py_GIL_DISABLED') else '', \
     '' if sys.version_info[3] == 'final' else ' (%s)' % sys.version_info[3]))";
/// Prefix of the answer.
const VERSION: &str = "version:";

const RATE_AND_COST: &str = "99 times a second, or more rarely where that would take more than 0.8 % of a core for a thread or 2 % for the node; \
                             native functions are not seen";

/// Checks whether stacks of the first of these programs that is a Python interpreter can be sampled.
pub(super) fn samples_of(programs: &[&Path]) -> Vec<CheckFinding> {
    match yama_finding(yama_level(), may_trace()) {
        Some(problem @ CheckFinding::Problem { .. }) => vec![problem],
        note => note.into_iter().chain([samples_of_interpreter(programs)]).collect(),
    }
}

/// Returns whether this process has CAP_SYS_PTRACE.
fn may_trace() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Reports what a level of Yama allows a process that has CAP_SYS_PTRACE, or lacks it.
fn yama_finding(level: Option<u8>, may_trace: bool) -> Option<CheckFinding> {
    match level? {
        0 => None,
        1 => Some(CheckFinding::Note(
            "stacks are sampled by permission of the program (PR_SET_PTRACER), as kernel.yama.ptrace_scope is 1; this was never \
             tried on such a system"
                .to_owned(),
        )),
        2 if may_trace => Some(CheckFinding::Note(
            "stacks are sampled by CAP_SYS_PTRACE, as kernel.yama.ptrace_scope is 2; this was never tried on such a system"
                .to_owned(),
        )),
        level => {
            let what = format!("kernel.yama.ptrace_scope is {level}, so that no stacks can be read");
            let next = "record without `python` in --trace, or ask the administrator of the site";
            Some(CheckFinding::problem(what, next))
        }
    }
}

/// Checks the first of these programs that is a Python interpreter.
fn samples_of_interpreter(programs: &[&Path]) -> CheckFinding {
    if let Some(unreadable) = programs.iter().find(|program| access(**program, Access::READ_OK).is_err()) {
        let what = format!("{} is not readable, so that its stacks cannot be read", unreadable.display());
        return CheckFinding::problem(what, "make the file readable (chmod +r), or use another Python");
    }
    let Some(interpreter) = interpreter_in(programs) else {
        let Some(program) = programs.first() else {
            return CheckFinding::Ok(format!("stacks of recorded threads are sampled {RATE_AND_COST}"));
        };
        return CheckFinding::Note(format!(
            "{} is not named like an interpreter of Python; stacks of one that it is, contains or starts are sampled {RATE_AND_COST}",
            program.display()
        ));
    };
    let script = [OsStr::new("-c"), OsStr::new(FIND_VERSION)];
    let answer = query(interpreter, &script, Path::new(".")).unwrap_or_default();
    let Some(version) = answer.lines().find_map(|line| line.strip_prefix(VERSION)) else {
        return CheckFinding::Note(format!("{} does not say its version", interpreter.display()));
    };
    let supported = SUPPORTED_VERSIONS.iter().any(|(major, minor)| format!("{major}.{minor}") == version);
    if !supported {
        let what = format!(
            "stacks of Python {version} cannot be read, those of the releases 3.9 to 3.13 with a global interpreter lock can"
        );
        return CheckFinding::problem(what, "use another Python, or record without `python` in --trace");
    }
    CheckFinding::Ok(format!("stacks of recorded threads of Python {version} are sampled {RATE_AND_COST}"))
}

/// Returns the first program that is a Python interpreter.
fn interpreter_in<'a>(programs: &[&'a Path]) -> Option<&'a Path> {
    programs.iter().copied().find(|program| name_of(program).is_some_and(|name| name.starts_with("python")))
}

fn name_of(program: &Path) -> Option<String> {
    Some(program.file_name()?.to_str()?.to_owned())
}

/// Checks what mpi4py loads in the first of these programs that is a Python interpreter. `None` if there is
/// none, or it lacks mpi4py. The command itself comes before its interpreter, since it may be a script that
/// selects a Python.
pub(super) fn mpi_of(programs: &[&Path], loader: &Path) -> Option<CheckFinding> {
    let interpreter = interpreter_in(programs)?;
    let name = name_of(interpreter)?;
    let answer = query(interpreter, &[OsStr::new("-c"), OsStr::new(FIND_MODULE)], Path::new("."))?;
    let module = answer.lines().find_map(|line| line.strip_prefix(MODULE)).filter(|path| !path.is_empty())?;
    let list = library::needed(Path::new(module), loader, None).unwrap_or_default();
    let Some(line) = list.lines().find(|line| super::surroundings::is_mpi(line)) else {
        return Some(CheckFinding::Note(format!("{module} of {name} chooses its MPI when it is imported")));
    };
    if line.contains("not found") {
        let library = line.split_whitespace().next().unwrap_or_default();
        let what = format!("mpi4py of {name} ({module}) needs {library}, which is not found");
        return Some(CheckFinding::problem(
            what,
            "load the MPI that mpi4py was built with, or set LD_LIBRARY_PATH",
        ));
    }
    let library = super::surroundings::library_of(line);
    Some(CheckFinding::Ok(format!("mpi4py of {name} ({module}) loads {library}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_yama_has_its_words() {
        for (level, may_trace, is_problem) in [
            (None, false, None),
            (Some(0), false, None),
            (Some(1), false, Some(false)),
            (Some(2), false, Some(true)),
            (Some(2), true, Some(false)),
            (Some(3), true, Some(true)),
        ] {
            let found = yama_finding(level, may_trace);
            let found = found.map(|finding| matches!(finding, CheckFinding::Problem { .. }));
            assert_eq!(found, is_problem, "{level:?}");
        }
    }
}
