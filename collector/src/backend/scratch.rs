//! A folder on the node for what profilers write, one for each rank and run of a command.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Begins its name; `ci` and site scripts find what is left behind by it.
pub const PREFIX: &str = "rpd-scratch-";

/// The folder. It is made anew, for the user alone.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes `<root>/rpd-scratch-<rank>-<random>`: ranks that share a node, and steps of one job, never meet.
    pub fn make(root: &Path, rank: &str) -> io::Result<Scratch> {
        let random = crate::session::random()? as u64;
        let root = std::path::absolute(root)?;
        let path = root.join(format!("{PREFIX}{rank}-{random:016x}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Scratch { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Removes it and what is in it.
    pub fn remove(&self) {
        remove(&self.path);
    }
}

/// Removes a scratch folder. What is a link in it is removed, and not what it leads to.
pub fn remove(path: &Path) {
    let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if is_ours {
        let _ = std::fs::remove_dir_all(path);
    }
}
