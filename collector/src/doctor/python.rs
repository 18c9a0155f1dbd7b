//! Which MPI a Python program will load, without running it.

use super::{Finding, library};
use crate::backend::ask;
use std::ffi::OsStr;
use std::path::Path;

/// Prints where the module of mpi4py is that loads MPI, and loads neither.
const FIND_MODULE: &str =
    "import importlib.util as u\nprint('module:' + (u.find_spec('mpi4py.MPI').origin or ''))";
/// Prefix of the answer; any other line is a message of the interpreter.
const MODULE: &str = "module:";

/// What mpi4py loads in the first of these programs that is a Python; `None` if there is none, or it has no mpi4py. The
/// command itself comes before what interprets it, since it may be a script that chooses a Python.
pub(super) fn mpi_of(programs: &[&Path], loader: &Path) -> Option<Finding> {
    let name_of = |program: &Path| Some(program.file_name()?.to_str()?.to_owned());
    let is_python = |program: &&&Path| name_of(program).is_some_and(|name| name.starts_with("python"));
    let interpreter = programs.iter().find(is_python)?;
    let name = name_of(interpreter)?;
    let answer = ask(interpreter, &[OsStr::new("-c"), OsStr::new(FIND_MODULE)], Path::new("."))?;
    let module = answer.lines().find_map(|line| line.strip_prefix(MODULE)).filter(|path| !path.is_empty())?;
    let list = library::needed(Path::new(module), loader, None).unwrap_or_default();
    let Some(line) = list.lines().find(|line| super::surroundings::is_mpi(line)) else {
        return Some(Finding::Note(format!("{module} of {name} chooses its MPI when it is imported")));
    };
    if line.contains("not found") {
        let library = line.split_whitespace().next().unwrap_or_default();
        let what = format!("mpi4py of {name} ({module}) needs {library}, which is not found");
        return Some(Finding::problem(
            what,
            "load the MPI that mpi4py was built with, or set LD_LIBRARY_PATH",
        ));
    }
    let library = super::surroundings::library_of(line);
    Some(Finding::Ok(format!("mpi4py of {name} ({module}) loads {library}")))
}
