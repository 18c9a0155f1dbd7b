//! Files of other formats become shards, before anything is planned: each rank translates some.

use super::find::ListedFile;
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
use std::fs::{self};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where the run id of a translated file comes from: it has none.
pub(crate) const TRANSLATED: &str = "translated";
/// Ends the names of translated files, behind their number.
pub(super) const TRANSLATED_ENDING: &str = ".rpdshard";

/// The folder of translated files: beside the output, so that all ranks see it. Removed when the merge ends.
#[derive(Debug)]
pub(crate) struct TranslatedFolder {
    path: PathBuf,
    /// Whether this rank removes it.
    owned: bool,
}

impl TranslatedFolder {
    /// Names the folder for this output; its owner makes it, and clears away what a killed merge left.
    pub(crate) fn begin(output: &Path, owned: bool) -> Result<TranslatedFolder, Failure> {
        let failed = |error: io::Error| Failure::write(output, &error);
        let mut path = output.as_os_str().to_owned();
        path.push(".translated");
        let path = PathBuf::from(path);
        if owned {
            if fs::symlink_metadata(&path).is_ok() {
                if !is_left(&path) {
                    return Err(Failure::output(format!(
                        "{} was not left by a merge: move it away, or use -o",
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

/// Whether this is a folder of translated files, and holds nothing else.
fn is_left(path: &Path) -> bool {
    let is_number = |name: &OsStr| {
        let number = name.to_str().and_then(|name| name.strip_suffix(TRANSLATED_ENDING));
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

/// What became of one file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TranslatedFile {
    /// Position among the listed files.
    position: usize,
    /// The shard that it is now; why not.
    shard: Result<PathBuf, String>,
    told: TranslationNotes,
}

/// What there is to say about translated files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TranslationNotes {
    /// What is missing or wrong, one line each.
    pub warnings: Vec<String>,
    /// What has no place in RocPD, one line each.
    pub notes: Vec<String>,
}

/// Whether a file has to be translated.
pub(crate) fn is_foreign(listed: &ListedFile) -> bool {
    !matches!(listed.format, Ok(Format::Shard | Format::RocPd) | Err(_))
}

/// Translates every `ranks`th of the files that need it, beginning with that of `rank`.
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
            let to = folder.path.join(format!("{position}{TRANSLATED_ENDING}"));
            let mut told = TranslationNotes::default();
            let shard = translate_file(listed, &to, &mut told).map(|()| to);
            TranslatedFile { position: *position, shard, told }
        })
        .collect()
}

/// Puts the shards in the place of the files that they were made of; returns what is to
/// be said about them.
pub(crate) fn replace(
    files: &mut [ListedFile],
    translated: impl IntoIterator<Item = TranslatedFile>,
) -> TranslationNotes {
    let mut sorted: Vec<_> = translated.into_iter().collect();
    sorted.sort_by_key(|t| t.position);
    let mut all = TranslationNotes::default();
    let mut told_notes = BTreeSet::new();
    for TranslatedFile { position, shard, told } in sorted {
        let Some(listed) = files.get_mut(position) else { continue };
        all.warnings.extend(told.warnings);
        // What many files have in common is told once.
        all.notes.extend(told.notes.into_iter().filter(|note| told_notes.insert(note.clone())));
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

fn translate_file(listed: &ListedFile, to: &Path, told: &mut TranslationNotes) -> Result<(), String> {
    let from = &listed.path;
    let write =
        |error: io::Error| format!("{}: cannot be translated to {}: {error}", from.display(), to.display());
    let file = create_output(to, 0o600).map_err(write)?;
    let sink = BufWriter::with_capacity(1 << 20, file);
    // The run is whatever it is merged with.
    let run = RunIdentity {
        run_id: String::new(),
        run_id_from: TRANSLATED.to_owned(),
        rank: None,
        size: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let Ok(format) = listed.format else { return Err(format!("{} is of no known format", from.display())) };
    let (mut sink, account) = rpd_foreign::translate(from, format, sink, &Owner::unknown(run))?;
    told.warnings.extend(account.warnings);
    told.notes.extend(account.notes);
    sink.flush().map_err(write)
}
