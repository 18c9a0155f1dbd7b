//! Warnings and notes about a foreign file, in the terms of its format.

use rpd_shard::file::Owner;
use rpd_translator::Translation;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Maximum number of values of one file that are named.
const MAX_TOLD: usize = 3;

/// Warnings and notes about a foreign file.
#[derive(Clone, Debug, Default)]
pub struct ForeignNotes {
    /// What is missing or wrong, one line each, with the name of the file.
    pub warnings: Vec<String>,
    /// What has no place in RocPD, one line each.
    pub notes: Vec<String>,
    name: String,
}

impl ForeignNotes {
    pub(crate) fn of(path: &Path) -> ForeignNotes {
        ForeignNotes { name: path.display().to_string(), ..ForeignNotes::default() }
    }

    fn warn(&mut self, line: String) {
        let is_named = line.contains(&self.name);
        self.warnings.push(if is_named { line } else { format!("{}: {line}", self.name) });
    }

    /// Adopts the warnings and notes of a reader.
    fn take(&mut self, told: Translation) {
        told.warnings.into_iter().for_each(|line| self.warn(line));
        self.notes.extend(told.notes.into_iter().map(|line| format!("{}: {line}", self.name)));
        self.ignored(&told.ignored);
    }

    /// What is in a file and has no place in RocPD, by how much there is of it.
    fn ignored(&mut self, ignored: &BTreeMap<String, u64>) {
        for (what, count) in ignored.iter().take(MAX_TOLD) {
            self.notes.push(format!("{}: {count} of {what} have no place in RocPD", self.name));
        }
    }
}

pub(crate) fn legacy<W: Write>(
    path: &Path,
    sink: W,
    owner: &Owner,
    account: &mut ForeignNotes,
) -> Result<W, String> {
    // Where the clocks of the node are known, so is the distance of the two that roctx and calls may be on.
    let distance = owner.clocks.iter().min_by_key(|set| set.bracket);
    let marker_offset = distance.map(|set| set.boottime.saturating_sub(set.monotonic));
    let options = rpd_legacy::RpdOptions { owner: owner.clone(), clock: None, marker_offset };
    let (sink, told) = rpd_legacy::translate(path, sink, &options).map_err(|error| chain(&error))?;
    if let Some(what) = told.unknown_version() {
        account
            .notes
            .push(format!("{what}, and this release knows 2 and 3: it is read as if it were one of them"));
    }
    told.translation.warnings.iter().for_each(|line| account.warn(line.clone()));
    for ((table, column), count) in told.misses.iter().take(MAX_TOLD) {
        account.warn(format!(
            "{count} values of {table}.{column} are missing, no usable number, or lead nowhere"
        ));
    }
    if let Some(more @ 1..) = told.misses.len().checked_sub(MAX_TOLD) {
        account.warn(format!("and {more} more columns with such values"));
    }
    if told.translation.cut_texts > 0 {
        account.warn(format!("{} texts of more than a megabyte were cut", told.translation.cut_texts));
    }
    Ok(sink)
}

pub(crate) fn rocpd<W: Write>(
    path: &Path,
    sink: W,
    owner: &Owner,
    account: &mut ForeignNotes,
) -> Result<W, String> {
    let (sink, told) = rpd_rocpd::translate(path, sink, owner).map_err(|error| chain(&error))?;
    told.warnings.into_iter().for_each(|line| account.warn(line));
    let shown: Vec<&str> = told.tags.iter().take(MAX_TOLD).map(String::as_str).collect();
    if !shown.is_empty() {
        let (all, more) = (told.tags.len(), if told.tags.len() > MAX_TOLD { ", ..." } else { "" });
        let tags = if all == 1 { "1 tag" } else { &format!("{all} tags") };
        let line = format!("{}: a shard has no room for {tags} of its metadata: ", account.name);
        account.notes.push(line + &shown.join(", ") + more);
    }
    Ok(sink)
}

pub(crate) fn rocprofv3<W: Write>(
    path: &Path,
    sink: W,
    owner: &Owner,
    account: &mut ForeignNotes,
) -> Result<W, String> {
    let (sink, told) = rpd_rocprofv3::translate(path, sink, owner).map_err(|error| chain(&error))?;
    account.take(told);
    Ok(sink)
}

pub(crate) fn kineto<W: Write>(
    path: &Path,
    sink: W,
    owner: &Owner,
    account: &mut ForeignNotes,
) -> Result<W, String> {
    let (sink, told) = rpd_kineto::translate(path, sink, owner).map_err(|error| chain(&error))?;
    account.take(told);
    Ok(sink)
}

pub(crate) fn perfetto<W: Write>(
    path: &Path,
    sink: W,
    owner: &Owner,
    account: &mut ForeignNotes,
) -> Result<W, String> {
    let (sink, told) = rpd_perfetto::read::translate(path, sink, owner).map_err(|error| chain(&error))?;
    account.take(told);
    Ok(sink)
}

pub(crate) fn omnistat<W: Write>(
    path: &Path,
    sink: W,
    owner: &Owner,
    account: &mut ForeignNotes,
) -> Result<W, String> {
    let (sink, told) = rpd_omnistat::translate(path, sink, owner).map_err(|error| chain(&error))?;
    account.take(told);
    Ok(sink)
}

/// The message of an error and of its causes.
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
