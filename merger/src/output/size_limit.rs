//! Limits of the output's size: `--max-output`, and the free space of its file system.

use crate::input::listing::ListedFile;
use crate::options::MergeArgs;
use rpd_console::Failure;
use rpd_shard::size::Size;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum bytes of output per byte of input, if the user sets no limit and the inputs are not trusted. Real runs
/// grow up to 400-fold.
const MAX_GROWTH: u64 = 2_000;
/// Lower bound of this limit, bytes.
const MIN_LIMIT: u64 = 16 << 30;

/// Maximum bytes that a merge may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SizeLimit {
    /// Maximum bytes; `u64::MAX` if there is no limit.
    pub bytes: u64,
    is_typed: bool,
}

impl SizeLimit {
    /// Returns the limit of `--max-output`. Without that option, only outputs of `--epilog` and of files of another
    /// owner are limited, in proportion to the length of the files.
    pub(crate) fn of(args: &MergeArgs, files: &[ListedFile]) -> SizeLimit {
        if let Some(Size(bytes)) = args.max_output {
            return SizeLimit { bytes, is_typed: true };
        }
        let found: Vec<_> = files.iter().filter_map(|listed| fs::metadata(&listed.path).ok()).collect();
        let own = rustix::process::geteuid().as_raw();
        let is_trusted = !args.epilog && found.iter().all(|file| file.uid() == own);
        let length = found.iter().map(MetadataExt::size).fold(0, u64::saturating_add);
        let limit = length.saturating_mul(MAX_GROWTH).max(MIN_LIMIT);
        SizeLimit { bytes: if is_trusted { u64::MAX } else { limit }, is_typed: false }
    }

    /// Fails if an output takes more than the limit, or more than the free space.
    ///
    /// # Errors
    /// [`Failure::output`] with both figures and the next step.
    pub(crate) fn check(&self, planned: u64, output: &Path) -> Result<(), Failure> {
        let path_text = output.display();
        if planned > self.bytes {
            let (planned, limit) = (Size(planned), Size(self.bytes));
            let allowed = match self.is_typed {
                true => format!("--max-output allows {limit}; raise it"),
                false => format!(
                    "{limit} are the limit for --epilog and for files of another owner; raise it with --max-output"
                ),
            };
            return Err(Failure::output(format!(
                "cannot write {path_text}: it takes about {planned}, and {allowed}, or merge fewer inputs"
            )));
        }
        match free_bytes(output) {
            Some(free) if free < planned => Err(Failure::output(format!(
                "cannot write {path_text}: the disk is full before the merge ends: about {} are needed, {} are free; free \
                 some space, or choose an output on another disk with -o",
                Size(planned),
                Size(free),
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the failure of an output that exceeded the limit while it was written.
    pub(crate) fn exceeded(bytes: u64, output: &Path) -> Failure {
        Failure::output(format!(
            "cannot write {}: it exceeds the limit of {}; raise it with --max-output, or merge fewer \
             inputs",
            output.display(),
            Size(bytes),
        ))
    }
}

/// Returns the free bytes of an output's file system, for this user; `None` if the file system does not report them.
pub(crate) fn free_bytes(output: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder_of(output)).ok()?;
    let blocks = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    (found.f_blocks > 0).then(|| blocks.saturating_mul(found.f_frsize))
}

/// Returns the folder on the file system of an output.
pub(crate) fn folder_of(output: &Path) -> PathBuf {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}
