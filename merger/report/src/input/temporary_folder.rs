//! A private folder for a merge whose result is read only once.

use rpd_console::Failure;
use rpd_output_file::{UnfinishedOutput, keep_on_interrupt, remove_on_interrupt};
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried. Killed processes with the same number may have left some.
const MAX_NAMES: u32 = 1000;

/// A folder below `$TMPDIR` that only this user can open. It is removed with this value, and if a signal ends the program.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    path: PathBuf,
}

impl TemporaryFolder {
    /// Creates the folder.
    pub(crate) fn create() -> Result<TemporaryFolder, Failure> {
        let root = std::env::temp_dir();
        for number in 0..MAX_NAMES {
            let path = root.join(format!("rpd-report-{}-{number}", std::process::id()));
            // The system creates no folder in place of anything that exists, not even of a link.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    remove_on_interrupt(UnfinishedOutput::Folder(path.clone()));
                    return Ok(TemporaryFolder { path });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let root = root.display();
                    let why =
                        format!("cannot create a folder in {root}: {error}; set TMPDIR to another place");
                    return Err(Failure::output(why));
                }
            }
        }
        Err(Failure::output(format!("remove the folders rpd-report-* in {}, or set TMPDIR", root.display())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed now cannot be removed by a signal either.
        let _ = fs::remove_dir_all(&self.path);
        keep_on_interrupt(&self.path);
    }
}
