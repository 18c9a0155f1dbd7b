//! The command, looked at without running it.

use crate::child;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Scripts whose interpreter is a script, ...
const DEPTH: usize = 4;
/// Most bytes of an ELF file that are looked at for its loader.
const HEADERS: u16 = 512;

/// What a command would run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// There is no such file.
    Missing(OsString),
    /// Started by this loader.
    Dynamic {
        /// The program, or that which interprets it.
        path: PathBuf,
        /// Loader.
        loader: PathBuf,
        /// It is the interpreter of a script.
        is_interpreter: bool,
        /// It runs with rights of another user.
        privileged: bool,
    },
    /// No loader, so nothing can be preloaded.
    Static(PathBuf),
    /// Not of this machine's kind.
    Foreign(PathBuf),
}

impl Program {
    /// What a command would run, scripts followed to their interpreter.
    pub(super) fn find(name: &OsStr) -> Program {
        let mut name = name.to_owned();
        for depth in 0..DEPTH {
            let Some(path) = child::find(&name) else { return Program::Missing(name) };
            match interpreter(&path) {
                Some(interpreter) => name = interpreter,
                None => return Program::of(path, depth > 0),
            }
        }
        Program::Missing(name)
    }

    fn of(path: PathBuf, is_interpreter: bool) -> Program {
        let mode = std::fs::metadata(&path).map_or(0, |file| file.permissions().mode());
        match loader(&path) {
            Some(Some(loader)) => {
                Program::Dynamic { path, loader, is_interpreter, privileged: mode & 0o6000 != 0 }
            }
            Some(None) => Program::Static(path),
            // What the kernel cannot execute is given to a shell.
            None if !is_interpreter && !is_elf(&path) => Program::find(OsStr::new("/bin/sh")).interpreting(),
            None => Program::Foreign(path),
        }
    }

    fn interpreting(self) -> Program {
        match self {
            Program::Dynamic { path, loader, privileged, .. } => {
                Program::Dynamic { path, loader, is_interpreter: true, privileged }
            }
            other => other,
        }
    }
}

/// What the first line of a script names; behind `env`, what that looks for.
fn interpreter(path: &Path) -> Option<OsString> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    let env = first.ends_with(b"/env");
    let word = if env { words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')) } else { None };
    Some(OsStr::from_bytes(word.unwrap_or(first)).to_owned())
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0)).is_ok() && &magic == b"\x7fELF"
}

/// The loader that a program names: `PT_INTERP` of a 64-bit ELF file of this byte order. An inner none
/// is a program without loader.
fn loader(path: &Path) -> Option<Option<PathBuf>> {
    const PT_INTERP: u32 = 3;
    const LONGEST: u64 = 4096;
    let file = File::open(path).ok()?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let native = if cfg!(target_endian = "little") { 1 } else { 2 };
    let machine = if cfg!(target_arch = "x86_64") { Some(62) } else { None };
    if header.get(..6)? != [0x7f, b'E', b'L', b'F', 2, native]
        || machine
            .is_some_and(|machine: u16| number::<2>(&header, 18).is_none_or(|m| m != u64::from(machine)))
    {
        return None;
    }
    let (start, bytes, count) =
        (number::<8>(&header, 32)?, number::<2>(&header, 54)?, number::<2>(&header, 56)?);
    for at in 0..count.min(u64::from(HEADERS)) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, start.checked_add(at.checked_mul(bytes)?)?).ok()?;
        if number::<4>(&entry, 0)? == u64::from(PT_INTERP) {
            let mut name = vec![0; usize::try_from(number::<8>(&entry, 32)?.min(LONGEST)).ok()?];
            file.read_exact_at(&mut name, number::<8>(&entry, 8)?).ok()?;
            let name = name.split(|byte| *byte == 0).next()?;
            return Some(Some(PathBuf::from(OsStr::from_bytes(name))));
        }
    }
    Some(None)
}

/// A number of some bytes in the byte order of this machine.
fn number<const BYTES: usize>(from: &[u8], at: usize) -> Option<u64> {
    let mut word = [0; 8];
    let bytes = from.get(at..at + BYTES)?;
    let place =
        if cfg!(target_endian = "little") { word.get_mut(..BYTES) } else { word.get_mut(8 - BYTES..) };
    place?.copy_from_slice(bytes);
    Some(u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_script_is_followed_to_its_interpreter() {
        for text in ["#!/bin/sh\n", "#! /usr/bin/env -S A=1 sh -e\n", "echo\n"] {
            let (_folder, path) = script(text.as_bytes());
            let found = Program::find(path.as_os_str());
            let Program::Dynamic { is_interpreter: true, path, .. } = found else {
                panic!("{text}: {found:?}")
            };
            assert!(path.ends_with("sh"), "{path:?}");
        }
        let (_folder, path) = script(b"#!/no/such/interpreter\n");
        assert_eq!(Program::find(path.as_os_str()), Program::Missing("/no/such/interpreter".into()));
    }

    #[test]
    fn files_that_are_cut_or_lie_are_no_programs_and_no_panic() {
        let whole = std::fs::read("/bin/sh").unwrap();
        assert!(matches!(Program::find(OsStr::new("/bin/sh")), Program::Dynamic { .. }));
        for length in [4, 6, 63, 64, 65, 120, 600] {
            let (_folder, path) = script(&whole[..length]);
            assert!(
                !matches!(Program::find(path.as_os_str()), Program::Dynamic { is_interpreter: false, .. })
                    || length >= 600
            );
        }
        for at in (32..64).chain(64..400) {
            let mut lies = whole[..4096].to_vec();
            lies[at] = 0xff;
            let (_folder, path) = script(&lies);
            Program::find(path.as_os_str());
        }
    }
}
