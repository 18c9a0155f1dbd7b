//! The file of a page: what it may replace, and how it is written.

use rpd_console::Failure;
use rpd_files::{beside, create_output, open_input, remove_output, rename_output, rename_output_to_new};
use rpd_output_file::{
    OutputLock, UnfinishedOutput, check_output_name, keep_on_interrupt, remove_on_interrupt,
};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// First bytes of every page.
const BEGINNING: &[u8] = b"<!DOCTYPE html>\n<!-- rpd-report html -->";

/// A page that is to be written. Its name is locked from the start, so that a long report does not end in a refusal.
#[derive(Debug)]
pub(super) struct PageFile {
    path: PathBuf,
    force: bool,
    _lock: OutputLock,
}

impl PageFile {
    /// Fails if another file has the name. With `force`, an older page is replaced, but never another file.
    pub(super) fn begin(path: &Path, force: bool) -> Result<PageFile, Failure> {
        check_output_name(path)?;
        check_place(path, force)?;
        let lock = OutputLock::acquire(beside(path, ".lock")).map_err(|error| cannot_write(path, &error))?;
        let lock = lock.ok_or_else(|| {
            let path = path.display();
            Failure::output(format!(
                "another report is writing {path}; wait for it, or choose another place with -o"
            ))
        })?;
        Ok(PageFile { path: path.to_owned(), force, _lock: lock })
    }

    /// Writes the page for the user only. The file has its name only when it is complete.
    pub(super) fn write(self, page: &str) -> Result<(), Failure> {
        let draft = beside(&self.path, &format!(".{}.partial", std::process::id()));
        remove_on_interrupt(UnfinishedOutput::File(draft.clone()));
        let made = create_output(&draft, 0o600)
            .and_then(|mut file| file.write_all(page.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| match self.force {
                true => rename_output(&draft, &self.path),
                false => rename_output_to_new(&draft, &self.path),
            });
        if made.is_err() {
            let _ = remove_output(&draft);
        }
        keep_on_interrupt(&draft);
        made.map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::output(format!("cannot write {path}: {error}; choose another place with -o"))
}

fn check_place(path: &Path, force: bool) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::output(format!("{} {why}", path.display())));
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot_write(path, &error)),
    };
    if !found.is_file() || !begins_like_a_page(path) {
        return refuse("is there already and no page of rpd-report; choose another place with -o");
    }
    if !force {
        return refuse("is there already; use --force to overwrite it, or -o for another place");
    }
    Ok(())
}

fn begins_like_a_page(path: &Path) -> bool {
    let mut beginning = [0; BEGINNING.len()];
    let read = open_input(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && beginning == BEGINNING
}
