//! `rpd-merge inspect` for anything but a shard: what it is, and what to do next.

use crate::input::listing::{DEFAULT_OUTPUT, find, has_log, is_shard, shards_in};
use rpd_console::Failure;
use rpd_console::wording::{counted, one_line, rank_ranges};
use rpd_foreign::{Format, format_of};
use rpd_rocpd::read::{Database, StoredTableSet};
use rpd_shard::Shard;
use rpd_shard::shell_words::path_word;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of shards, runs or files with their own line.
const MAX_LINES: usize = 10;
/// Maximum number of shards that are opened to read their ranks, and of folder entries that are examined.
const MAX_OPENED: usize = 10_000;
/// Maximum characters of a text from a file.
const MAX_TEXT_CHARS: usize = 200;

/// Describes a folder, or a file that is not a shard, one line for each fact; `None` for a shard.
///
/// # Errors
/// [`Failure::input`] if the path cannot be read, or has a format that rpd-merge does not read.
pub(super) fn describe(path: &Path) -> Result<Option<Vec<String>>, Failure> {
    let found = fs::metadata(path).map_err(|error| {
        Failure::input(format!("{} cannot be inspected ({error}); check the path", path.display()))
    })?;
    if found.is_dir() {
        return folder(path).map(Some);
    }
    if found.is_file() && found.len() == 0 {
        return Err(Failure::input(empty(path)));
    }
    match format_of(path) {
        Ok(Format::Shard) => Ok(None),
        Ok(Format::RocPd) => database(path).map(Some),
        Ok(format) => Ok(Some(profile(path, format))),
        Err(reason) => Err(Failure::input(format!(
            "{} {reason}; name a shard, a run folder, a database or a trace",
            path.display()
        ))),
    }
}

/// Describes a file of 0 bytes, and what to do next.
fn empty(path: &Path) -> String {
    let path_text = path.display();
    if !is_shard(path) {
        return format!(
            "{path_text} is empty: its writer was killed before it wrote anything; inspect another file"
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!(
        "{path_text} is an empty shard: its collector was killed before it wrote the header; {} beside it may contain the reason, and \
         rpd-merge {} merges the other shards",
        path.with_extension("log").file_name().unwrap_or_default().display(),
        typed(folder)
    )
}

/// Returns a path as a word of a shell command. A path that cannot be typed is called PATH.
fn typed(path: &Path) -> String {
    path_word(path).unwrap_or_else(|| "PATH".to_owned())
}

fn line(label: &str, text: impl AsRef<str>) -> String {
    format!("{label:<10} {}", one_line(text.as_ref()))
}

fn folder(path: &Path) -> Result<Vec<String>, Failure> {
    let shards = shards_in(path)?;
    if !shards.is_empty() {
        return Ok(run_folder(path, &shards));
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(MAX_OPENED);
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    let runs: Vec<(&PathBuf, usize)> = entries
        .iter()
        .filter(|entry| entry.is_dir())
        .filter_map(|entry| Some((entry, shards_in(entry).ok()?.len())))
        .filter(|(_, shards)| *shards > 0)
        .collect();
    if !runs.is_empty() {
        return Ok(output_root(path, &runs));
    }
    // Lists the files that a merge would find, including those in folders below.
    let listed = find(&[path.to_owned()]).map(|found| found.files).unwrap_or_default();
    let files: Vec<(&PathBuf, Format)> =
        listed.iter().filter_map(|listed| Some((&listed.path, *listed.format.as_ref().ok()?))).collect();
    Ok(folder_of_profiles(path, &files))
}

fn run_folder(path: &Path, shards: &[PathBuf]) -> Vec<String> {
    let (mut ranks, mut size, mut run, mut shard_lines) = (BTreeSet::new(), 0, None, Vec::new());
    for shard_path in shards.iter().take(MAX_OPENED) {
        let opened = Shard::open(shard_path);
        if let Ok(shard) = &opened {
            ranks.extend(shard.identity.rank);
            size = size.max(shard.identity.size.unwrap_or(0));
            run.get_or_insert_with(|| shard.identity.run_id.clone());
        }
        if shard_lines.len() < MAX_LINES {
            shard_lines.push(line("shard", shard_line(path, shard_path, opened.as_ref())));
        }
    }
    let run = run.map_or_else(|| "without a readable shard".to_owned(), |id| format!("of run {}", text(&id)));
    let ranks: Vec<u32> = ranks.into_iter().collect();
    let of = if size > 0 { format!(" of {size}") } else { String::new() };
    let ranks = if ranks.is_empty() { String::new() } else { format!(", rank {}{of}", rank_ranges(&ranks)) };
    let shard_count = counted(shards.len() as u64, "shard");
    let mut lines = vec![line("folder", format!("{}: a folder {run}: {shard_count}{ranks}", path.display()))];
    lines.append(&mut shard_lines);
    lines.extend(more(shards.len()));
    let merged = path.join(DEFAULT_OUTPUT);
    lines.push(match merged.exists() {
        true => line("next", format!("it is merged: rpd-merge inspect {}", typed(&merged))),
        false => line("next", format!("rpd-merge {}", typed(path))),
    });
    lines
}

fn shard_line(folder: &Path, path: &Path, opened: Result<&Shard, &rpd_shard::OpenError>) -> String {
    let name = path.strip_prefix(folder).unwrap_or(path).display();
    match opened {
        Err(error) => format!("{name}: {error}"),
        Ok(shard) => {
            let state = if shard.complete() { "finished" } else { "NOT finished by its collector" };
            let processes = counted(shard.processes.len() as u64, "process");
            format!("{name}: {processes}, {} bytes, {state}", shard.bytes())
        }
    }
}

fn output_root(path: &Path, runs: &[(&PathBuf, usize)]) -> Vec<String> {
    let found = counted(runs.len() as u64, "run");
    let mut lines = vec![line("folder", format!("{}: an output folder with {found}", path.display()))];
    let run = |(run, shards): &(&PathBuf, usize)| {
        let name = run.file_name().unwrap_or_default().to_string_lossy();
        line("run", format!("{name}: {}", counted(*shards as u64, "shard")))
    };
    lines.extend(runs.iter().take(MAX_LINES).map(run));
    lines.extend(more(runs.len()));
    let first = runs.first().map_or(path, |(run, _)| run.as_path());
    lines.push(line("next", format!("rpd-merge {}, or another one of them", typed(first))));
    lines
}

fn folder_of_profiles(folder: &Path, files: &[(&PathBuf, Format)]) -> Vec<String> {
    let path_text = folder.display();
    if files.is_empty() {
        let next = match has_log(folder) {
            true => "rank-*.log in it says why no shard is there",
            false => "record a program: rpd-collect -- COMMAND; or name another folder",
        };
        let what = "holds no run of rpd-collect and no file that rpd-merge reads";
        return vec![line("folder", format!("{path_text}: {what}")), line("next", next)];
    }
    let found = counted(files.len() as u64, "file");
    let mut lines = vec![line("folder", format!("{path_text}: {found} that rpd-merge reads, and no shard"))];
    let file = |(path, format): &(&PathBuf, Format)| {
        let name = path.strip_prefix(folder).unwrap_or(path).display();
        line("file", format!("{name}: {}", name_of(*format)))
    };
    lines.extend(files.iter().take(MAX_LINES).map(file));
    lines.extend(more(files.len()));
    lines.push(line("next", format!("rpd-merge {}", typed(folder))));
    lines
}

fn database(path: &Path) -> Result<Vec<String>, Failure> {
    let database = Database::open(path).map_err(|error| Failure::input(error.to_string()))?;
    let (table_sets, path_text, word) = (database.table_sets(), path.display(), typed(path));
    let processes = counted(table_sets.iter().map(|set| set.processes.len() as u64).sum(), "process");
    let ranks: BTreeSet<u32> =
        table_sets.iter().flat_map(|set| &set.processes).filter_map(|process| process.rank).collect();
    let ranks: Vec<u32> = ranks.into_iter().collect();
    let ranks = if ranks.is_empty() { String::new() } else { format!(", rank {}", rank_ranges(&ranks)) };
    let bytes = database.bytes();
    let describe = |what: String| {
        let database = line("database", format!("{path_text} ({bytes} bytes): {what}"));
        vec![database, line("processes", format!("{processes}{ranks}"))]
    };
    let Some(merge) = table_sets.iter().find(|set| set.is_merged()) else {
        let [major, minor, patch] = table_sets.first().map_or([0; 3], |set| set.version);
        let mut lines = describe(format!("a RocPD database {major}.{minor}.{patch} of a profiler"));
        lines.push(line("next", format!("rpd-merge {word} -o trace.db")));
        return Ok(lines);
    };
    let of_run = match tag(merge, "rpd.run_id") {
        id if id.is_empty() => String::new(),
        id => format!(" of run {id}"),
    };
    let version = tag(merge, "rpd.version");
    let mut lines = describe(format!("a merged database{of_run}, made by rpd-merge {version}"));
    for (label, name) in
        [("missing", "rpd.missing_ranks"), ("unfinished", "rpd.unfinished_ranks"), ("lost", "rpd.losses")]
    {
        let value = tag(merge, name);
        lines.extend((!matches!(value.as_str(), "" | "[]")).then(|| line(label, value)));
    }
    lines
        .push(line("next", format!("sqlite3 {word} 'SELECT * FROM top LIMIT 15' shows where the time went")));
    lines.push(line("next", format!("rpd-merge --split-by-time 4 {word} draws it for ui.perfetto.dev")));
    Ok(lines)
}

fn profile(path: &Path, format: Format) -> Vec<String> {
    let (path_text, bytes) = (path.display(), fs::metadata(path).map_or(0, |found| found.len()));
    vec![
        line("file", format!("{path_text} ({bytes} bytes): {}", name_of(format))),
        line("next", format!("rpd-merge {} -o trace.db", typed(path))),
    ]
}

fn name_of(format: Format) -> &'static str {
    match format {
        Format::Shard => "a shard of rpd-collect",
        Format::RocPd => "a RocPD database",
        Format::LegacyRpd => "an .rpd database of rocmProfileData",
        Format::Rocprofv3Json => "JSON of rocprofv3",
        Format::Kineto => "a trace of the PyTorch profiler",
        Format::PerfettoTrace => "a Perfetto trace",
        Format::OmnistatCsv => "a table of omnistat",
    }
}

/// Returns a line with the number of entries that have no line of their own.
fn more(all: usize) -> Option<String> {
    let more = all.checked_sub(MAX_LINES).filter(|more| *more > 0)?;
    Some(line("", format!("and {more} more")))
}

fn tag(set: &StoredTableSet, name: &str) -> String {
    set.tags.get(name).map_or_else(String::new, |value| text(value))
}

/// Shortens a text from a file.
fn text(value: &str) -> String {
    let mut short: String = value.chars().take(MAX_TEXT_CHARS).collect();
    if value.chars().nth(MAX_TEXT_CHARS).is_some() {
        short.push_str("...");
    }
    short
}
