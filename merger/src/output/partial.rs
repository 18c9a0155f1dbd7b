//! The output under its temporary name.

use crate::failure::Failure;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// `NAME.partial` beside the output; renamed when it is whole, removed when the merge fails.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    output: PathBuf,
    /// Whether this rank removes it on failure.
    armed: bool,
}

impl Partial {
    /// Names the file, and clears away what a killed merge left there. `owner`: on rank 0.
    pub fn begin(output: &Path, owner: bool) -> Result<Partial, Failure> {
        let mut name = output.as_os_str().to_owned();
        name.push(".partial");
        let partial = Partial { path: name.into(), output: output.to_owned(), armed: true };
        if owner {
            match fs::remove_file(&partial.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Failure::Output(format!(
                        "cannot write {}: {error}; choose another place with -o",
                        partial.path.display()
                    )));
                }
                _ => {}
            }
        }
        Ok(partial)
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the finished file its name.
    pub fn publish(&mut self) -> Result<(), Failure> {
        let published = File::open(&self.path)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&self.path, &self.output));
        published.map_err(|error| {
            Failure::Output(format!(
                "cannot finish {}: {error}; free space or choose another place with -o",
                self.output.display()
            ))
        })?;
        self.release();
        Ok(())
    }

    /// The merge went well: the file is no longer this rank's to remove.
    pub fn release(&mut self) {
        self.armed = false;
    }
}

impl Drop for Partial {
    /// A failing rank removes the file, whichever it is: after it the launcher kills the others.
    fn drop(&mut self) {
        if self.armed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
