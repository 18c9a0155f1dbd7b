//! Folders that are held open for the life of the process, so that paths below them always mean the same files.

use crate::error::FileRefused;
use crate::folder::HeldFolder;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of held descriptors. Further folders are reopened for each file, and must have the same inode.
const MAX_HELD: usize = 32;

/// Use of the files below an anchored folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnchorUse {
    /// Files that this process reads.
    Inputs,
    /// Files that this process writes.
    Outputs,
}

impl AnchorUse {
    fn open(self, path: &Path) -> io::Result<HeldFolder> {
        match self {
            AnchorUse::Inputs => HeldFolder::open_to_read(path),
            AnchorUse::Outputs => HeldFolder::open(path),
        }
    }
}

#[derive(Debug)]
struct AnchoredFolder {
    path: PathBuf,
    used_for: AnchorUse,
    /// Device and inode.
    identity: (u64, u64),
    held: Option<Arc<HeldFolder>>,
}

/// Anchored folders of the process. They are global because a path must mean the same file in every thread and
/// reader.
static ANCHORS: RwLock<Vec<AnchoredFolder>> = RwLock::new(Vec::new());

/// Opens a folder by the path that the user named, and holds it open.
///
/// From then on [`crate::open_input`] or [`crate::open_output`] resolves paths that start with `path` from its
/// descriptor. Below the folder they do not follow links of other users.
pub fn anchor(path: &Path, used_for: AnchorUse) -> io::Result<Arc<HeldFolder>> {
    let mut anchors = ANCHORS.write().unwrap_or_else(PoisonError::into_inner);
    // This process may have removed the folder and created it again under the same name.
    anchors.retain(|known| known.path != path || known.used_for != used_for || known.is_alive());
    if let Some(known) = anchors.iter().find(|known| known.path == path && known.used_for == used_for) {
        return known.folder();
    }
    let folder = Arc::new(used_for.open(path)?);
    let identity = folder.own_stat()?.identity;
    let held = (anchors.len() < MAX_HELD).then(|| Arc::clone(&folder));
    anchors.push(AnchoredFolder { path: path.to_owned(), used_for, identity, held });
    Ok(folder)
}

/// Returns the nearest anchor above a path, and the rest of the path.
pub(crate) fn anchored(path: &Path, used_for: AnchorUse) -> io::Result<Option<(Arc<HeldFolder>, PathBuf)>> {
    let anchors = ANCHORS.read().unwrap_or_else(PoisonError::into_inner);
    let below = |anchor: &&AnchoredFolder| anchor.used_for == used_for && anchor.rest(path).is_some();
    let nearest = anchors.iter().filter(below).max_by_key(|anchor| anchor.path.components().count());
    let Some(nearest) = nearest else { return Ok(None) };
    let folder = nearest.folder()?;
    Ok(nearest.rest(path).map(|rest| (folder, rest.to_owned())))
}

impl AnchoredFolder {
    /// Returns the part of a path below the folder.
    fn rest<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let rest = path.strip_prefix(&self.path).ok()?;
        let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
        (is_plain && !rest.as_os_str().is_empty()).then_some(rest)
    }

    fn folder(&self) -> io::Result<Arc<HeldFolder>> {
        if let Some(held) = &self.held {
            return Ok(Arc::clone(held));
        }
        let folder = self.used_for.open(&self.path)?;
        if folder.own_stat()?.identity != self.identity {
            return Err(FileRefused::Exchanged.into());
        }
        Ok(Arc::new(folder))
    }

    /// Returns whether the folder still exists.
    fn is_alive(&self) -> bool {
        self.folder().and_then(|folder| folder.own_stat()).is_ok_and(|found| found.links > 0)
    }
}
