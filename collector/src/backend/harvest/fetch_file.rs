//! Imports one file of a profiler as a shard, or copies it unchanged.

use super::profiler_harvest::ProfilerHarvest;
use crate::backend::profiler_files::flat_name;
use crate::log::warn;
use crate::run_folder::identity;
use rpd_foreign::{ForeignNotes, Format, contains_environment, translate};
use rpd_shard::Shard;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Maximum number of log lines about one file.
pub(super) const MAX_LINES_PER_FILE: usize = 5;
/// Size of the write buffer.
const WRITE_BYTES: usize = 1 << 20;
/// Permissions of a copy.
const COPY_MODE: u32 = 0o600;

impl ProfilerHarvest<'_> {
    /// Translates one file to a shard. Returns whether that succeeded.
    pub(super) fn import_file(&mut self, backend: &str, number: usize, path: &Path, format: Format) -> bool {
        match self.translate_file(&format!("{backend}-{number}"), path, format) {
            Ok(notes) => {
                for line in notes.warnings.iter().take(MAX_LINES_PER_FILE) {
                    warn(format_args!("warning: {backend}: {line}"));
                }
                if let Some(more @ 1..) = notes.warnings.len().checked_sub(MAX_LINES_PER_FILE) {
                    warn(format_args!("warning: {backend}: and {more} more such lines"));
                }
                true
            }
            Err(reason) => {
                self.lost = true;
                warn(format_args!("warning: {backend}: {reason}"));
                false
            }
        }
    }

    fn translate_file(&self, label: &str, path: &Path, format: Format) -> Result<ForeignNotes, String> {
        let place = &self.target.place;
        let (file, name) = place.create_beside(label, "rpdshard").map_err(|error| error.to_string())?;
        let created = identity(&file);
        let mut sink = BufWriter::with_capacity(WRITE_BYTES, file);
        let translated = translate(path, format, &mut sink, &self.owner());
        let written = sink.flush().map_err(|error| format!("{} cannot be written: {error}", name.display()));
        let translated = translated.and_then(|notes| written.map(|()| notes));
        // The blocks of a shard without a trailer are intact. A shard without rows is removed. The file is not
        // copied, because a database contains the whole environment.
        let has_rows =
            || Shard::open(&name).is_ok_and(|shard| shard.blocks().iter().any(|block| block.header.rows > 0));
        if translated.is_err()
            && !has_rows()
            && let Ok(created) = created
        {
            place.folder().remove_file(&name, created);
        }
        translated
    }

    /// Copies a file unchanged to the folder of the run. Only the user may read the copy, since nothing in it
    /// is masked.
    fn copy(&self, label: &str, extension: &str, path: &Path) -> io::Result<()> {
        let mut from = File::open(path)?;
        if from.metadata()?.len() > self.target.place.max_bytes {
            return Err(io::Error::other("it is larger than --max-size"));
        }
        let (mut to, name) = self.target.place.create_beside(label, extension).map_err(io::Error::other)?;
        to.set_permissions(Permissions::from_mode(COPY_MODE))?;
        let created = identity(&to)?;
        let copied = io::copy(&mut from, &mut to).map(drop);
        copied.inspect_err(|_| {
            self.target.place.folder().remove_file(&name, created);
        })
    }

    /// Copies a file that is not a trace. Its own name follows the name of the rank.
    pub(super) fn keep_beside(&mut self, label: &str, path: &Path, folder: &Path) {
        let (name, extension) = flat_name(path, folder);
        self.keep_as(&format!("{label}{name}"), &extension, path);
    }

    pub(super) fn keep_as(&mut self, label: &str, extension: &str, path: &Path) {
        if contains_environment(path) {
            self.lost = true;
            warn(format_args!(
                "warning: {} is not copied: it may contain the environment of the program, which can have secrets",
                path.display()
            ));
            return;
        }
        if let Err(error) = self.copy(label, extension, path) {
            self.lost = true;
            warn(format_args!("warning: {} cannot be copied: {error}", path.display()));
        }
    }
}
