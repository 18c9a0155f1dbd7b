//! Inspects the command without running it: which file would run, and whether our library can be preloaded
//! into it.

use super::{find, first_line_of_script};
use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Runs files that the kernel cannot execute.
const SHELL: &str = "/bin/sh";
/// Maximum number of scripts that are interpreters of each other.
const MAX_INTERPRETERS: usize = 4;
/// Maximum number of program headers that are searched for the loader.
const MAX_PROGRAM_HEADERS: u16 = 512;

/// Privileges that a file grants to its process. The loader ignores `LD_PRELOAD` for such a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramRights {
    /// Those of its owner or its group.
    SetId,
    /// File capabilities.
    Capabilities,
}

impl ProgramRights {
    /// Whether the file grants them to this user, and this user lacks them. Otherwise the loader ignores them.
    fn are_new(self, path: &Path) -> bool {
        match self {
            ProgramRights::SetId => gives_other_id(path),
            ProgramRights::Capabilities => !geteuid().is_root(),
        }
    }
}

impl std::fmt::Display for ProgramRights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ProgramRights::SetId => "is setuid or setgid",
            ProgramRights::Capabilities => "has file capabilities",
        })
    }
}

/// The file that a command would run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProgramFile {
    /// The file does not exist.
    Missing(OsString),
    /// The file has a loader.
    Dynamic {
        /// The program, or the interpreter of the script.
        path: PathBuf,
        /// Loader.
        loader: PathBuf,
        /// It is the interpreter of a script.
        is_interpreter: bool,
        /// Privileges that keep the loader from preloading a library.
        rights: Option<ProgramRights>,
    },
    /// The file has no loader, so nothing can be preloaded.
    Static(PathBuf),
    /// The file is for another kind of machine.
    Foreign(PathBuf),
    /// This user may execute the file, and not read it.
    Unreadable(PathBuf),
}

impl ProgramFile {
    /// Finds the file that a command would run. Follows scripts to their interpreter.
    pub(crate) fn find(name: &OsStr) -> ProgramFile {
        let mut name = name.to_owned();
        for depth in 0..MAX_INTERPRETERS {
            let Some(path) = find(&name) else { return ProgramFile::Missing(name) };
            match interpreter(&path) {
                Some(interpreter) => name = interpreter,
                None => return ProgramFile::of(path, depth > 0),
            }
        }
        ProgramFile::Missing(name)
    }

    fn of(path: PathBuf, is_interpreter: bool) -> ProgramFile {
        match loader(&path) {
            Some(Some(loader)) => {
                let rights = rights_of(&path);
                ProgramFile::Dynamic { path, loader, is_interpreter, rights }
            }
            Some(None) => ProgramFile::Static(path),
            None if access(&path, Access::READ_OK).is_err() => ProgramFile::Unreadable(path),
            // A shell runs what the kernel cannot execute.
            None if !is_interpreter && !is_elf(&path) => ProgramFile::of(PathBuf::from(SHELL), true),
            None => ProgramFile::Foreign(path),
        }
    }

    /// Returns why our library cannot be preloaded, and what the user can do about it. `None` if no reason is
    /// known.
    pub(crate) fn unseen(&self) -> Option<(String, &'static str)> {
        match self {
            // A loader that is started with the name of a program loads that program normally.
            ProgramFile::Static(path) if is_loader(path) => None,
            ProgramFile::Static(path) => Some((
                format!(
                    "{} is a static program, so no library can be preloaded into it, and its calls are not recorded",
                    path.display()
                ),
                "link it dynamically, without -static",
            )),
            ProgramFile::Dynamic { path, rights: Some(rights), .. } if rights.are_new(path) => Some((
                format!(
                    "{} {rights}: the loader ignores LD_PRELOAD for it, so its calls are not recorded",
                    path.display()
                ),
                "run a copy without these rights, as `cp` makes it",
            )),
            _ => None,
        }
    }
}

/// Whether a setuid or setgid file grants this user an id that the user does not have.
fn gives_other_id(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| {
        let mode = file.permissions().mode();
        mode & 0o4000 != 0 && file.uid() != geteuid().as_raw()
            || mode & 0o2000 != 0 && file.gid() != getegid().as_raw()
    })
}

fn is_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["ld-linux", "ld64", "ld-musl", "ld.so"].iter().any(|loader| name.starts_with(loader))
}

fn rights_of(path: &Path) -> Option<ProgramRights> {
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
    if mode & 0o6000 != 0 {
        return Some(ProgramRights::SetId);
    }
    let mut value = [0_u8; 64];
    let bytes = rustix::fs::getxattr(path, "security.capability", &mut value[..]);
    bytes.is_ok_and(|bytes| bytes > 0).then_some(ProgramRights::Capabilities)
}

/// Returns the interpreter in the first line of a script, or the program that `env` there looks for.
fn interpreter(path: &Path) -> Option<OsString> {
    let words = first_line_of_script(path)?;
    let (first, arguments) = words.split_first()?;
    let is_program =
        |word: &&OsString| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    let by_env = first.as_bytes().ends_with(b"/env").then(|| arguments.iter().find(is_program)).flatten();
    Some(by_env.unwrap_or(first).clone())
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0)).is_ok() && &magic == b"\x7fELF"
}

/// Returns the loader of a program: `PT_INTERP` of a 64-bit ELF file of this byte order. An inner `None` is a
/// program without a loader.
fn loader(path: &Path) -> Option<Option<PathBuf>> {
    const PT_INTERP: u32 = 3;
    const MAX_LOADER_PATH: u64 = 4096;
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
    for at in 0..count.min(u64::from(MAX_PROGRAM_HEADERS)) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, start.checked_add(at.checked_mul(bytes)?)?).ok()?;
        if number::<4>(&entry, 0)? == u64::from(PT_INTERP) {
            let mut name = vec![0; usize::try_from(number::<8>(&entry, 32)?.min(MAX_LOADER_PATH)).ok()?];
            file.read_exact_at(&mut name, number::<8>(&entry, 8)?).ok()?;
            let name = name.split(|byte| *byte == 0).next()?;
            return Some(Some(PathBuf::from(OsStr::from_bytes(name))));
        }
    }
    Some(None)
}

/// Reads a number of `BYTES` bytes in the byte order of this machine.
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
            let found = ProgramFile::find(path.as_os_str());
            let ProgramFile::Dynamic { is_interpreter: true, path, .. } = found else {
                panic!("{text}: {found:?}")
            };
            assert!(path.ends_with("sh"), "{path:?}");
        }
        let (_folder, path) = script(b"#!/no/such/interpreter\n");
        assert_eq!(ProgramFile::find(path.as_os_str()), ProgramFile::Missing("/no/such/interpreter".into()));
    }

    #[test]
    fn files_that_are_cut_or_lie_are_no_programs_and_no_panic() {
        let whole = std::fs::read("/bin/sh").unwrap();
        assert!(matches!(ProgramFile::find(OsStr::new("/bin/sh")), ProgramFile::Dynamic { .. }));
        for length in [4, 6, 63, 64, 65, 120, 600] {
            let (_folder, path) = script(&whole[..length]);
            assert!(
                !matches!(
                    ProgramFile::find(path.as_os_str()),
                    ProgramFile::Dynamic { is_interpreter: false, .. }
                ) || length >= 600
            );
        }
        for at in (32..64).chain(64..400) {
            let mut lies = whole[..4096].to_vec();
            lies[at] = 0xff;
            let (_folder, path) = script(&lies);
            ProgramFile::find(path.as_os_str());
        }
    }
}
