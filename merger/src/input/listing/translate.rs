//! Translates foreign files into shards before the merge is planned. Each merge rank translates a part of the files.

use crate::input::listing::ListedFile;
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_files::{create_output, create_output_folder, remove_output_folder};
use rpd_foreign::Format;
use rpd_output_file::{UnfinishedOutput, keep_on_interrupt, remove_on_interrupt};
use rpd_shard::file::Owner;
use rpd_shard::record::RunIdentity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Source of the run id of a translated file, which has none.
pub(crate) const TRANSLATED: &str = "translated";
/// File name suffix of translated files, after their number.
pub(super) const TRANSLATED_SUFFIX: &str = ".rpdshard";

/// Folder of translated files. It is beside the output, so that all ranks can read it, and is removed when the merge
/// ends.
#[derive(Debug)]
pub(crate) struct TranslatedFolder {
    path: PathBuf,
    /// Whether this rank removes the folder.
    owned: bool,
}

impl TranslatedFolder {
    /// Determines the folder for this output. Its owner creates it, after removing what a killed merge left.
    pub(crate) fn begin(output: &Path, owned: bool) -> Result<TranslatedFolder, Failure> {
        let failed = |error: io::Error| Failure::write(output, &error);
        let mut path = output.as_os_str().to_owned();
        path.push(".translated");
        let path = PathBuf::from(path);
        if owned {
            if fs::symlink_metadata(&path).is_ok() {
                if !is_left(&path) {
                    return Err(Failure::output(format!(
                        "{} was not left by a merge; move it away, or use -o",
                        path.display()
                    )));
                }
                remove_output_folder(&path).map_err(failed)?;
            }
            remove_on_interrupt(UnfinishedOutput::Folder(path.clone()));
            create_output_folder(&path, 0o700).map_err(failed)?;
        }
        Ok(TranslatedFolder { path, owned })
    }
}

/// Returns whether this is a folder that contains nothing but translated files.
fn is_left(path: &Path) -> bool {
    let is_number = |name: &OsStr| {
        let number = name.to_str().and_then(|name| name.strip_suffix(TRANSLATED_SUFFIX));
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let entries = || fs::read_dir(path).into_iter().flatten();
    is_folder && entries().all(|entry| entry.is_ok_and(|entry| is_number(&entry.file_name())))
}

impl Drop for TranslatedFolder {
    fn drop(&mut self) {
        if self.owned {
            let _ = remove_output_folder(&self.path);
            keep_on_interrupt(&self.path);
        }
    }
}

/// Result of translating one file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TranslatedFile {
    /// Position among the listed files.
    position: usize,
    /// The resulting shard, or why there is none.
    shard: Result<PathBuf, String>,
    translation_notes: TranslationNotes,
}

/// Warnings and notes from translating foreign files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TranslationNotes {
    /// Missing or wrong data, one line each.
    pub warnings: Vec<String>,
    /// Data that RocPD cannot represent, one line each.
    pub notes: Vec<String>,
}

/// Returns whether a file has to be translated.
pub(crate) fn is_foreign(listed: &ListedFile) -> bool {
    !matches!(listed.format, Ok(Format::Shard | Format::RocPd) | Err(_))
}

/// Translates every `ranks`-th foreign file, starting with the `rank`-th.
pub(crate) fn translate(
    files: &[ListedFile],
    folder: &TranslatedFolder,
    rank: usize,
    ranks: usize,
) -> Vec<TranslatedFile> {
    let foreign: Vec<_> = files.iter().enumerate().filter(|(_, listed)| is_foreign(listed)).collect();
    let own: Vec<_> = foreign.into_iter().skip(rank).step_by(ranks).collect();
    own.par_iter()
        .map(|(position, listed)| {
            let to = folder.path.join(format!("{position}{TRANSLATED_SUFFIX}"));
            let mut translation_notes = TranslationNotes::default();
            let shard = translate_file(listed, &to, &mut translation_notes).map(|()| to);
            TranslatedFile { position: *position, shard, translation_notes }
        })
        .collect()
}

/// Replaces foreign files by the shards that they were translated to. Returns the notes about all of them.
pub(crate) fn replace(
    files: &mut [ListedFile],
    translated: impl IntoIterator<Item = TranslatedFile>,
) -> TranslationNotes {
    let mut sorted: Vec<_> = translated.into_iter().collect();
    sorted.sort_by_key(|t| t.position);
    let mut all = TranslationNotes::default();
    let mut seen_notes = BTreeSet::new();
    for TranslatedFile { position, shard, translation_notes } in sorted {
        let Some(listed) = files.get_mut(position) else { continue };
        all.warnings.extend(translation_notes.warnings);
        // Notes that many files have in common appear once.
        all.notes.extend(translation_notes.notes.into_iter().filter(|note| seen_notes.insert(note.clone())));
        match shard {
            Ok(path) => {
                listed.origin = Some(std::mem::replace(&mut listed.path, path));
                listed.format = Ok(Format::Shard);
            }
            Err(reason) => listed.format = Err(reason),
        }
    }
    all
}

fn translate_file(
    listed: &ListedFile,
    to: &Path,
    translation_notes: &mut TranslationNotes,
) -> Result<(), String> {
    let from = &listed.path;
    let failed = |error: &dyn Display| {
        format!("{}: cannot be translated to {}: {error}", from.display(), to.display())
    };
    let file = create_output(to, 0o600).map_err(|error| failed(&error))?;
    let mut sink = ShardSink { file: BufWriter::with_capacity(1 << 20, file), has_failed: false };
    // The file belongs to whatever run it is merged with.
    let run = RunIdentity {
        run_id: String::new(),
        run_id_from: TRANSLATED.to_owned(),
        rank: None,
        size: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let Ok(format) = listed.format else { return Err(format!("{} is of no known format", from.display())) };
    let account = rpd_foreign::translate(from, format, &mut sink, &Owner::unknown(run));
    let account = account.map_err(|error| if sink.has_failed { failed(&error) } else { error })?;
    translation_notes.warnings.extend(account.warnings);
    translation_notes.notes.extend(account.notes);
    sink.flush().map_err(|error| failed(&error))
}

/// The file of a shard. It remembers whether a write failed, because the error of a translation does not name the shard.
struct ShardSink {
    file: BufWriter<File>,
    has_failed: bool,
}

impl Write for ShardSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|_| self.has_failed = true)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().inspect_err(|_| self.has_failed = true)
    }
}
