//! Finds the interpreter in a process: the program or library with `_PyRuntime`, and its version.

use super::layout::{InterpreterLayout, LayoutError, SUPPORTED_VERSIONS, layout_of};
use super::memory::{ProcessMemory, ReadError};
use crate::host::bounded_read::read_at_most;
use crate::host::descriptors;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache};
use rpd_files::open_input;
use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Maximum number of bytes of the list of mappings.
const MAX_MAPS_BYTES: u64 = 16 << 20;
/// Maximum number of bytes of a program or library that is examined.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Maximum number of symbols of such a file.
const MAX_SYMBOLS: usize = 1 << 18;
/// Maximum number of files without an interpreter that are remembered.
const MAX_EXAMINED: usize = 1 << 10;
/// Names of libraries with an interpreter begin so.
const LIBRARY: &str = "libpython";
/// Names of programs with an interpreter usually begin so.
const PROGRAM: &str = "python";

/// An interpreter in a process.
#[derive(Clone, Debug)]
pub(super) struct PythonInterpreter {
    /// Address of `_PyRuntime`.
    pub(super) runtime: u64,
    /// Address of the type of code objects.
    pub(super) code_type: u64,
    pub(super) layout: InterpreterLayout,
}

/// Why there is no interpreter that can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum InterpreterError {
    /// The process has no interpreter.
    #[error("no interpreter of CPython in it")]
    None,
    /// The interpreter does not say its version.
    #[error("the version of its interpreter {0} is not known")]
    UnknownVersion(String),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system does not show the process.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A file that is mapped from its start.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MappedFile<'a> {
    /// Address of its first byte.
    start: u64,
    inode: u64,
    path: &'a str,
}

/// Addresses of symbols in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct InterpreterSymbols {
    runtime: Option<u64>,
    code_type: Option<u64>,
    /// The number of the version, from 3.11 on.
    version: Option<u64>,
}

/// Files of a process that were examined and have no interpreter, by inode.
#[derive(Debug, Default)]
pub(super) struct ExaminedFiles(HashSet<u64>);

/// Finds the interpreter of a process. Skips files that were examined before.
///
/// # Errors
/// If there is none, or it cannot be read.
pub(super) fn find(
    pid: i32,
    memory: &ProcessMemory,
    examined: &mut ExaminedFiles,
) -> Result<PythonInterpreter, InterpreterError> {
    let maps = read_at_most(format!("/proc/{pid}/maps"), MAX_MAPS_BYTES);
    let maps = String::from_utf8_lossy(&maps);
    let program = std::fs::metadata(format!("/proc/{pid}/exe")).map_or(0, |program| program.ino());
    for file in maps.lines().filter_map(mapped_file) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let may_be = name.starts_with(LIBRARY) || name.starts_with(PROGRAM) || file.inode == program;
        if !may_be || examined.0.contains(&file.inode) {
            continue;
        }
        let symbols = symbols_of(pid, &file)?.unwrap_or_default();
        let InterpreterSymbols { runtime: Some(runtime), code_type: Some(code_type), version } = symbols
        else {
            // Before 3.7, there is no such symbol.
            if let Some((major, minor)) = version_in(name).filter(|version| *version < SUPPORTED_VERSIONS[0])
            {
                return Err(LayoutError::OtherVersion(major, minor).into());
            }
            if examined.0.len() < MAX_EXAMINED {
                examined.0.insert(file.inode);
            }
            continue;
        };
        let version = match version {
            // 0xMMmmuuRL: major, minor, micro, release level and serial. Until a release, structures change.
            Some(address) => {
                let number = memory.u64_at(address)? as u32;
                let is_release = (number >> 4) & 15 == 15;
                is_release.then_some(((number >> 24) as u8, (number >> 16) as u8))
            }
            None => version_in(name),
        };
        let version = version.ok_or_else(|| InterpreterError::UnknownVersion(shown(name)))?;
        let layout = layout_of(version, runtime, memory)?;
        return Ok(PythonInterpreter { runtime, code_type, layout });
    }
    Err(InterpreterError::None)
}

/// Parses a line as `55d0-55d4 r--p 00000000 08:01 123 /usr/bin/python3.11`. `None` if it does not map the start of a file.
fn mapped_file(line: &str) -> Option<MappedFile<'_>> {
    let mut fields = line.splitn(6, ' ');
    let (range, _, offset, _) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let inode = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
    let path = fields.next()?.trim_start();
    let is_start = u64::from_str_radix(offset, 16) == Ok(0);
    let start = u64::from_str_radix(range.split('-').next()?, 16).ok()?;
    (is_start && path.starts_with('/')).then_some(MappedFile { start, inode, path })
}

/// Finds the symbols of a mapped file. `None` if it is no such file, or not the one that is mapped any more.
///
/// # Errors
/// No file can be opened now.
fn symbols_of(pid: i32, mapped: &MappedFile<'_>) -> io::Result<Option<InterpreterSymbols>> {
    // In a container, the process has other files under this path.
    let file = match open_input(format!("/proc/{pid}/root{}", mapped.path).as_ref()) {
        Ok(file) => file,
        Err(error) if descriptors::is_exhaustion(&error) => return Err(error),
        Err(_) => return Ok(None),
    };
    let is_mapped = |found: Metadata| found.ino() == mapped.inode && found.len() <= MAX_FILE_BYTES;
    let is_readable = file.metadata().is_ok_and(is_mapped);
    Ok(is_readable.then(|| symbols_in(file, mapped.start)).flatten())
}

/// Finds the symbols of a file whose first byte is at an address.
fn symbols_in(file: File, start: u64) -> Option<InterpreterSymbols> {
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let first = object.segments().find(|segment| segment.file_range().0 == 0)?.address();
    let mut found = InterpreterSymbols::default();
    for symbol in object.dynamic_symbols().take(MAX_SYMBOLS).filter(|symbol| !symbol.is_undefined()) {
        let place = match symbol.name() {
            Ok("_PyRuntime") => &mut found.runtime,
            Ok("PyCode_Type") => &mut found.code_type,
            Ok("Py_Version") => &mut found.version,
            _ => continue,
        };
        *place = Some(start.wrapping_sub(first).wrapping_add(symbol.address()));
    }
    Some(found)
}

/// Returns the version in a name as `libpython3.9.so.1.0` or `python3.10`.
fn version_in(name: &str) -> Option<(u8, u8)> {
    let rest = name.strip_prefix(LIBRARY).or_else(|| name.strip_prefix(PROGRAM))?;
    let (major, rest) = rest.split_once('.')?;
    let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    Some((major.parse().ok()?, rest.get(..digits)?.parse().ok()?))
}

/// Returns the start of a name, for messages.
fn shown(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_and_versions_are_read() {
        let line = "7f12-7f14 r--p 00000000 fe:00 37118   /opt/a b/libpython3.9.so.1.0";
        let file = MappedFile { start: 0x7f12, inode: 37118, path: "/opt/a b/libpython3.9.so.1.0" };
        assert_eq!(mapped_file(line), Some(file));
        for other in
            ["", "7f12-7f14 r--p 00002000 fe:00 37118 /usr/bin/x", "7f12-7f14 rw-p 00000000 00:00 0 [heap]"]
        {
            assert_eq!(mapped_file(other), None, "{other}");
        }
        let versions =
            ["libpython3.9.so.1.0", "python3.10", "python3.11d", "python3", "ruby3.1", "python999.9"];
        let expected = [Some((3, 9)), Some((3, 10)), Some((3, 11)), None, None, None];
        assert_eq!(versions.map(version_in), expected);
    }

    #[test]
    fn a_process_without_an_interpreter_has_none() {
        let pid = std::process::id() as i32;
        let memory = ProcessMemory::open(pid).unwrap();
        assert!(matches!(find(pid, &memory, &mut ExaminedFiles::default()), Err(InterpreterError::None)));
    }
}
