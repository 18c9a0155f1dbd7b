//! Path of the output, and files that it must not overwrite.

use crate::input::listing::{DEFAULT_OUTPUT, DEFAULT_RPD, InputListing, SHARD_EXTENSION};
use crate::options::{MergeArgs, OutputFormat};
use crate::partial_output::made_by_merge::{is_made_by_merge, may_be_left, unfinished_run, what_else};
use crate::partial_output::temporary_names;
use rpd_console::Failure;
use rpd_files::{EntryStat, FileRefused, entry_stat};
use rpd_output_file::check_output_name;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the output path for these inputs. Removes from the inputs an existing output file, and what a killed merge
/// left beside it. Fails if such a file is a real input: named by the user, or not left by a merge.
pub(crate) fn output_of(found: &mut InputListing, args: &MergeArgs) -> Result<PathBuf, Failure> {
    let name = match args.output_format() {
        OutputFormat::Rocpd | OutputFormat::Perfetto | OutputFormat::ChromeJson => DEFAULT_OUTPUT,
        OutputFormat::Rpd => DEFAULT_RPD,
    };
    let output = args.output.clone().unwrap_or_else(|| found.output_folder.join(name));
    let output = check_output(&output, args)?;
    let temporary = temporary_names(&output);
    let places = temporary.iter().chain([&output]);
    let there: Vec<_> = places.filter_map(|place| Some((place, fs::canonicalize(place).ok()?))).collect();
    let mut input = None;
    found.files.retain(|listed| {
        let path = if there.is_empty() { None } else { fs::canonicalize(&listed.path).ok() };
        let Some((place, _)) = there.iter().find(|(_, real)| path.as_ref() == Some(real)) else {
            return true;
        };
        let is_input = listed.named || *place != &output && !may_be_left(place, true);
        input = input.or(is_input.then_some(*place));
        is_input
    });
    match input {
        Some(path) if !args.dry_run => Err(Failure::output(format!(
            "{} is one of the inputs, and a merge to {} writes there; choose another place with -o",
            path.display(),
            output.display(),
        ))),
        _ => Ok(output.clone()),
    }
}

/// Returns the path to write: the target of a link, else the path as the user wrote it. Refuses files that must not be
/// overwritten.
fn check_output(output: &Path, args: &MergeArgs) -> Result<PathBuf, Failure> {
    let refuse = |what: &str| Err(Failure::output(format!("{} {what}", output.display())));
    check_output_name(output)?;
    if output.extension().is_some_and(|e| e == SHARD_EXTENSION) {
        return refuse("is named like a shard; name a database with -o, for example trace.db");
    }
    let Ok(entry) = fs::symlink_metadata(output) else { return Ok(output.to_owned()) };
    // A link is kept, and its target is overwritten. The link must not belong to another user.
    let checked = entry_stat(output);
    if let Some(refused) = checked.as_ref().err().and_then(FileRefused::in_error) {
        return refuse(&format!("is not written: {refused}"));
    }
    let Ok(target) = fs::canonicalize(output) else {
        return refuse("is a link that leads nowhere; remove it, or choose another place with -o");
    };
    check_output_name(&target)?;
    let is_same = |checked: EntryStat| entry_stat(&target).is_ok_and(|now| now.identity == checked.identity);
    if !checked.is_ok_and(is_same) {
        return refuse("was exchanged while it was looked at; merge again, or choose another place with -o");
    }
    let Ok(found) = fs::metadata(&target) else {
        return refuse("cannot be looked at; check its permissions");
    };
    if found.is_dir() {
        let example = output.join("trace.db");
        return refuse(&format!("is a folder; name a file with -o, for example {}", example.display()));
    }
    if !found.is_file() {
        return refuse("is not a regular file; choose another place with -o");
    }
    let written = if entry.is_symlink() { target.clone() } else { output.to_owned() };
    if args.dry_run {
        return Ok(written);
    }
    // Whether the output is of the same run is checked after the inputs were examined.
    if !args.force && unfinished_run(&target).is_none() {
        return refuse("is there already; use --force to overwrite it, or -o for another place");
    }
    if found.len() > 0 && !is_made_by_merge(&target) {
        let what = what_else(&target);
        return refuse(&format!(
            "{what}, and --force overwrites what rpd-merge wrote and nothing else; move it away, or use -o"
        ));
    }
    Ok(written)
}
