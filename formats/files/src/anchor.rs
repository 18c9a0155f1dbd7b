//! Folders that are held for the life of the process, so that paths below them always mean the same files.

use crate::error::FileRefused;
use crate::folder::HeldFolder;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Limit of held descriptors. Further folders are opened again for each file and must have the same inode.
const MAX_HELD: usize = 32;

/// Use of the files below an anchored folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnchorUse {
    /// Files that are read.
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

/// Process-wide, as a path has to mean the same file in every thread and in every reader.
static ANCHORS: RwLock<Vec<AnchoredFolder>> = RwLock::new(Vec::new());

/// Opens a folder as the user names it, and holds it: from now on, [`crate::open_input`] or [`crate::open_output`]
/// resolves paths that begin with `path` from its descriptor, and follows no links of other users below it.
pub fn anchor(path: &Path, used_for: AnchorUse) -> io::Result<Arc<HeldFolder>> {
    let mut anchors = ANCHORS.write().unwrap_or_else(PoisonError::into_inner);
    // This process may remove a folder and create it again under the same name.
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

/// The anchor that a path lies below, the nearest one, and the rest of the path.
pub(crate) fn anchored(path: &Path, used_for: AnchorUse) -> io::Result<Option<(Arc<HeldFolder>, PathBuf)>> {
    let anchors = ANCHORS.read().unwrap_or_else(PoisonError::into_inner);
    let below = |anchor: &&AnchoredFolder| anchor.used_for == used_for && anchor.rest(path).is_some();
    let nearest = anchors.iter().filter(below).max_by_key(|anchor| anchor.path.components().count());
    let Some(nearest) = nearest else { return Ok(None) };
    let folder = nearest.folder()?;
    Ok(nearest.rest(path).map(|rest| (folder, rest.to_owned())))
}

impl AnchoredFolder {
    /// The rest of a path below the folder.
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

    /// Whether the folder has not been removed.
    fn is_alive(&self) -> bool {
        self.folder().and_then(|folder| folder.own_stat()).is_ok_and(|found| found.links > 0)
    }
}
