//! Finds the MPI library of a Python program without running the program.

use super::finding::CheckFinding;
use super::library;
use crate::backend::query;
use std::ffi::OsStr;
use std::path::Path;

/// Prints the path of the mpi4py module that loads MPI, without loading it.
const FIND_MODULE: &str =
    "import importlib.util as u\nprint('module:' + (u.find_spec('mpi4py.MPI').origin or ''))";
/// Prefix of the answer. Any other line is a message of the interpreter.
const MODULE: &str = "module:";

/// Checks what mpi4py loads in the first of these programs that is a Python interpreter. `None` if there is
/// none, or it lacks mpi4py. The command itself comes before its interpreter, since it may be a script that
/// selects a Python.
pub(super) fn mpi_of(programs: &[&Path], loader: &Path) -> Option<CheckFinding> {
    let name_of = |program: &Path| Some(program.file_name()?.to_str()?.to_owned());
    let is_python = |program: &&&Path| name_of(program).is_some_and(|name| name.starts_with("python"));
    let interpreter = programs.iter().find(is_python)?;
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
