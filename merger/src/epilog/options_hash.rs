//! Hash of the options that affect the output, for the comparison of a merge with an earlier one.
//!
//! It hashes names and values of the command line, so that it depends on no name in the code. An option that is not
//! given adds nothing, so that a new option keeps the hashes of merges without it.

use crate::options::{LateChoice, MergeArgs, TraceArgs};
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// Separates options. No argument of a process contains this byte.
const SEPARATOR: &[u8] = b"\0";

/// Returns a hash of the options that affect the output. Merges with the same hash yield the same output.
pub(super) fn hash_options(args: &MergeArgs) -> String {
    let given = output_options(args).into_iter().filter_map(|(name, value)| {
        let option = [name.as_bytes(), b"=", value?.as_encoded_bytes()].concat();
        Some(option)
    });
    let given: Vec<Vec<u8>> = given.collect();
    format!("{:016x}", XxHash3_64::oneshot(&given.join(SEPARATOR)))
}

/// Returns names and values of the options that affect the output, in a fixed order.
fn output_options(args: &MergeArgs) -> [(&'static str, Option<OsString>); 24] {
    let MergeArgs {
        share,
        layout,
        package,
        format,
        environment,
        verify,
        strict,
        align,
        repair_causality,
        clock_file,
        clock_plot,
        late,
        trace,
        // The inputs and the output are compared separately. The others do not affect the content of the output.
        inputs: _,
        output: _,
        force: _,
        dry_run: _,
        json: _,
        quiet: _,
        memory: _,
        max_output: _,
        threads: _,
        wait: _,
        epilog: _,
        lease: _,
        config: _,
        print_config: _,
    } = args;
    let TraceArgs {
        split_by_time,
        split_by_events,
        split_by_size,
        split,
        window,
        ranks,
        exclude,
        no_annotations,
        group_by_queue,
        tracks,
        max_file_size,
        open,
        serve,
    } = trace;
    let path = |path: &Option<PathBuf>| path.as_deref().map(Path::as_os_str).map(OsString::from);
    let excluded = exclude.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    [
        ("share", choice(Some(share))),
        ("layout", choice(Some(layout))),
        ("package", switch(*package)),
        ("format", choice(format.as_ref())),
        ("environment", text(environment.as_ref().map(|names| names.join(",")))),
        ("verify", switch(*verify)),
        ("strict", switch(*strict)),
        ("align", choice(Some(align))),
        ("repair-causality", switch(*repair_causality)),
        ("clock-file", path(clock_file)),
        ("clock-plot", path(clock_plot)),
        ("late", choice(Some(late).filter(|late| **late != LateChoice::default()))),
        ("split-by-time", text(*split_by_time)),
        ("split-by-events", text(*split_by_events)),
        ("split-by-size", text(split_by_size.map(|size| size.0))),
        ("split", choice(split.as_ref())),
        ("window", text(*window)),
        ("ranks", text(ranks.as_ref())),
        ("exclude", text(Some(excluded).filter(|names| !names.is_empty()))),
        ("no-annotations", switch(*no_annotations)),
        ("group-by-queue", switch(*group_by_queue)),
        ("tracks", choice(tracks.as_ref())),
        ("max-file-size", text(max_file_size.map(|size| size.0))),
        // Both options affect in the same way how a trace is split; the port does not.
        ("open", switch(*open || serve.is_some())),
    ]
}

fn choice(value: Option<&impl ValueEnum>) -> Option<OsString> {
    Some(value?.to_possible_value()?.get_name().into())
}

fn text(value: Option<impl ToString>) -> Option<OsString> {
    Some(value?.to_string().into())
}

fn switch(is_given: bool) -> Option<OsString> {
    is_given.then(OsString::new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::CommandLine;
    use clap::Parser;

    fn hash(line: &str) -> String {
        let words = ["rpd-merge"].into_iter().chain(line.split_whitespace());
        hash_options(&CommandLine::try_parse_from(words).unwrap().merge)
    }

    #[test]
    fn the_hash_is_that_of_names_and_values() {
        let of_text = |text: &str| format!("{:016x}", XxHash3_64::oneshot(text.as_bytes()));
        let (plain, trace) = (hash("run"), hash("--split-by-time 2 --window 1..20 --exclude args,flows run"));
        assert_eq!(plain, of_text("share=user\0layout=merged\0align=auto"));
        let expected =
            "share=user\0layout=merged\0align=auto\0split-by-time=2\0window=1..20\0exclude=args,flows";
        assert_eq!(trace, of_text(expected));
        // Status files of earlier merges contain these.
        assert_eq!((plain.as_str(), trace.as_str()), ("b00bcadcb1a8ebfc", "6096cb5cae19e438"));
    }

    #[test]
    fn each_option_that_affects_the_output_changes_the_hash() {
        let lines = [
            "",
            "--share group",
            "--layout partitioned",
            "--format rpd",
            "--environment PATH",
            "--verify",
            "--strict",
            "--align none",
            "--repair-causality",
            "--clock-file a",
            "--clock-plot a",
            "--late never",
            "--split-by-time 2",
            "--split-by-events 2",
            "--split-by-size 2",
            "--split auto",
            "--window 1..2",
            "--ranks 1",
            "--exclude args",
            "--exclude category=args",
            "--no-annotations",
            "--tracks=plain",
            "--group-by-queue",
            "--max-file-size 2",
            "--open",
        ];
        let hashes: std::collections::BTreeSet<String> = lines.into_iter().map(hash).collect();
        assert_eq!(hashes.len(), lines.len());
    }

    #[test]
    fn other_options_and_spellings_keep_the_hash() {
        for line in [
            "--epilog --wait 3 --lease 60 --json --quiet --force -o a.db other",
            "--memory 300M --threads 1 --max-output 9G --layout merged run",
        ] {
            assert_eq!(hash(line), hash("run"), "{line}");
        }
        assert_eq!(hash("--max-file-size 1M run"), hash("--max-file-size 1024KiB run"));
        assert_eq!(hash("--serve=9002 run"), hash("--open run"));
    }
}
