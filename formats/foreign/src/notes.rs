//! Warnings and notes about a foreign file, in the terms of its format.

use rpd_shard::file::Owner;
use rpd_translator::{TranslateError, Translation};
use std::io::Write;
use std::path::Path;

/// Maximum number of values per file that notes list by name.
const MAX_NAMED: usize = 3;

/// Warnings and notes about a foreign file.
#[derive(Clone, Debug, Default)]
pub struct ForeignNotes {
    /// Missing or invalid content, one line each, with the path of the file.
    pub warnings: Vec<String>,
    /// Content that RocPD cannot represent, one line each, with the path of the file.
    pub notes: Vec<String>,
    path: String,
}

impl ForeignNotes {
    pub(crate) fn of(path: &Path) -> ForeignNotes {
        ForeignNotes { path: path.display().to_string(), ..ForeignNotes::default() }
    }

    fn warn(&mut self, line: String) {
        let is_named = line.contains(&self.path);
        self.warnings.push(if is_named { line } else { format!("{}: {line}", self.path) });
    }

    /// Adds the warnings and notes of a reader.
    pub(crate) fn adopt(&mut self, result: Result<Translation, TranslateError>) -> Result<(), String> {
        let translation = result.map_err(|error| chain(&error))?;
        translation.warnings.into_iter().for_each(|line| self.warn(line));
        self.notes.extend(translation.notes.into_iter().map(|line| format!("{}: {line}", self.path)));
        for (what, count) in translation.ignored.iter().take(MAX_NAMED) {
            self.notes.push(format!("{}: {count} of {what} have no place in RocPD", self.path));
        }
        Ok(())
    }

    /// Reads a legacy `.rpd`.
    pub(crate) fn legacy(&mut self, path: &Path, sink: &mut dyn Write, owner: &Owner) -> Result<(), String> {
        // roctx ranges and calls may use two clocks. Clock sets of the node determine their offset.
        let narrowest = owner.clocks.iter().min_by_key(|set| set.bracket);
        let marker_offset = narrowest.map(|set| set.boottime.saturating_sub(set.monotonic));
        let options = rpd_legacy::RpdOptions { owner: owner.clone(), clock: None, marker_offset };
        let read = rpd_legacy::translate(path, sink, &options).map_err(|error| chain(&error))?;
        if let Some(what) = read.unknown_version() {
            let line =
                format!("{what}, and this release knows 2 and 3: it is read as if it were one of them");
            self.notes.push(line);
        }
        let misses = read.misses;
        read.translation.warnings.into_iter().for_each(|line| self.warn(line));
        for ((table, column), count) in misses.iter().take(MAX_NAMED) {
            self.warn(format!(
                "{count} values of {table}.{column} are missing, not usable, or refer to no row"
            ));
        }
        if let Some(more @ 1..) = misses.len().checked_sub(MAX_NAMED) {
            self.warn(format!("and {more} more columns with such values"));
        }
        if read.translation.cut_texts > 0 {
            self.warn(format!("{} texts of more than a megabyte were cut", read.translation.cut_texts));
        }
        Ok(())
    }
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text} ({cause_text})");
        }
        next = cause.source();
    }
    text
}
