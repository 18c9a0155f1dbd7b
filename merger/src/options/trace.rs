//! Command line options of traces: how the run is split, and what of it is drawn.

use super::{MergeArgs, OutputFormat, TableLayout};
use clap::{ArgGroup, Args, ValueEnum};
use rpd_console::{Failure, TimeWindow};
use rpd_shard::rank_set::RankSet;
use rpd_shard::record as ranks;
use rpd_shard::size::Size;
use rpd_trace::{ItemExclusion, TraceFormat, TraceRequest, TraceSelection, TraceSplit};
use std::num::NonZeroU64;
use std::path::Path;

/// Options of traces.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Traces", group = ArgGroup::new("splits").multiple(false))]
pub struct TraceArgs {
    /// Cut the run into N files of equal time; Perfetto's format unless --format says otherwise
    #[arg(long, value_name = "N", group = "splits", value_parser = clap::value_parser!(u32).range(1..=TraceSplit::MAX_FILES as i64))]
    pub split_by_time: Option<u32>,
    /// Cut the run into files of about N events each
    #[arg(long, value_name = "N", group = "splits")]
    pub split_by_events: Option<NonZeroU64>,
    /// Cut the run into files of about this size each, before compression: 500M
    #[arg(long, value_name = "SIZE", group = "splits")]
    pub split_by_size: Option<Size>,
    /// Cut the run so that a browser can open each file
    #[arg(long, value_enum, value_name = "HOW", group = "splits")]
    pub split: Option<AutoSplit>,
    /// Draw this part only: seconds after the first event of the run, or times like 2025-06-01T12:00:00Z; 10..20, 10.., ..20
    #[arg(long, value_name = "FROM..TO")]
    pub window: Option<TimeWindow>,
    /// Draw only these ranks: 0,8-15
    #[arg(long, value_name = "RANKS")]
    pub ranks: Option<RankSet>,
    /// Leave out regions, kernels, copies, allocations, counters, samples, markers, args, flows, or
    /// category=NAME
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
    pub exclude: Vec<ItemExclusion>,
    /// Leave out the annotations of slices (arguments, sizes, ids), for smaller files
    #[arg(long)]
    pub no_annotations: bool,
    /// Group GPU work by hardware queue [default: by stream]
    #[arg(long)]
    pub group_by_queue: bool,
    /// Tracks of ranks and threads: processes, or plain ones, which UIs of Perfetto before v57 show in the order of the
    /// ranks, too [default: processes]
    #[arg(long, value_enum, value_name = "FORM")]
    pub tracks: Option<TrackForm>,
    /// Size limit of a file before compression; a larger one is refused, with the split that would fit [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_file_size: Option<Size>,
    /// Print how to open the trace, here and from another machine; INPUT may be a finished trace or its folder
    #[arg(long)]
    pub open: bool,
    /// Serve the trace on the loopback interface, for ui.perfetto.dev, until Ctrl-C [default port: 9001]
    ///
    /// Without this option nothing listens. The files can be fetched only with the address that is printed.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "9001")]
    pub serve: Option<u16>,
}

/// Form of the tracks of ranks and threads.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackForm {
    /// Processes and threads, with an overview of each collapsed process
    Processes,
    /// Plain tracks in order, without overviews and thread numbers
    Plain,
}

/// How files are split without a number.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum AutoSplit {
    /// Files that a browser can open
    Auto,
}

impl MergeArgs {
    /// Returns the format of the output.
    pub fn output_format(&self) -> OutputFormat {
        let trace = &self.trace;
        let is_trace = trace.split_option().is_some() || trace.opener().is_some();
        self.format.unwrap_or(if is_trace { OutputFormat::Perfetto } else { OutputFormat::Rocpd })
    }

    /// Returns the path of a possible finished trace that only needs to be opened. This is the only input, if no
    /// option requests another trace.
    pub fn finished_trace(&self) -> Option<&Path> {
        let requests_nothing =
            self.format.is_none() && self.output.is_none() && self.trace.drawing_option().is_none();
        match &self.inputs[..] {
            [input] if self.trace.opener().is_some() && requests_nothing => Some(input),
            _ => None,
        }
    }

    /// Rejects a database with the name of a trace.
    fn refuse_name_of_trace(&self) -> Result<(), Failure> {
        let Some(output) = &self.output else { return Ok(()) };
        let name = output.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let format = match name.trim_end_matches(".gz") {
            plain if plain.ends_with(".pftrace") => "perfetto",
            plain if plain.ends_with(".json") => "chrome-json",
            _ => return Ok(()),
        };
        Err(Failure::usage(format!(
            "{} is named like a trace; add --format {format}, or name a database like trace.db",
            output.display()
        )))
    }

    /// Checks whether options contradict each other, as far as possible without the inputs.
    pub fn check(&self) -> Result<(), Failure> {
        if self.output_format() == OutputFormat::Rpd && self.layout == TableLayout::Partitioned {
            let why = "--layout partitioned is one of RocPD databases; leave it out, or --format rpd";
            return Err(Failure::usage(why.to_owned()));
        }
        if self.package && self.output_format() != OutputFormat::Rocpd {
            let why = "--package lists a RocPD database; leave it out, or --format";
            return Err(Failure::usage(why.to_owned()));
        }
        let whole = self.trace_request()?.filter(|order| order.split == TraceSplit::Whole);
        match (whole, self.output.as_deref().filter(|output| !output.is_dir())) {
            (Some(order), Some(output)) => order.refuse_name_of_database(output),
            _ => Ok(()),
        }
    }

    /// Returns the requested trace; `None` if a database is requested. Fails if options contradict each other.
    pub fn trace_request(&self) -> Result<Option<TraceRequest>, Failure> {
        let format = match self.output_format() {
            OutputFormat::Perfetto if self.trace.tracks == Some(TrackForm::Plain) => {
                TraceFormat::PerfettoPlain
            }
            OutputFormat::Perfetto => TraceFormat::Perfetto,
            OutputFormat::ChromeJson if self.trace.tracks.is_some() => {
                let why =
                    "--tracks is one of --format perfetto, as Chrome's format has only processes and threads";
                return Err(Failure::usage(format!("{why}; leave it out")));
            }
            OutputFormat::ChromeJson => TraceFormat::ChromeJson,
            database => {
                self.trace.refuse_beside(database)?;
                return self.refuse_name_of_trace().map(|()| None);
            }
        };
        let refused = [
            (self.layout == TableLayout::Partitioned, "--layout partitioned is one of databases"),
            (self.verify, "--verify compares a database with its inputs"),
            (self.package, "--package lists a database"),
            (self.dry_run, "--dry-run writes no database that a trace could be made of"),
        ];
        if let Some((_, why)) = refused.into_iter().find(|(given, _)| *given) {
            let merge_first = "merge to trace.db with it, then make the trace of that";
            return Err(Failure::usage(format!("{why}; leave it out of a trace, or {merge_first}")));
        }
        let args = &self.trace;
        Ok(Some(TraceRequest {
            format,
            split: args.split(self.format),
            window: args.window.unwrap_or_default(),
            selection: args.selection(),
            max_file_size: args.max_file_size.map_or(TraceRequest::DEFAULT_MAX_FILE_BYTES, |size| size.0),
        }))
    }
}

impl TraceArgs {
    fn selection(&self) -> TraceSelection {
        let ranges =
            |chosen: &ranks::Selection| chosen.ranks.iter().map(|&(first, last)| first..=last).collect();
        TraceSelection {
            ranks: self.ranks.as_ref().and_then(RankSet::selection).map(ranges),
            exclude: self.exclude.clone(),
            annotations: !self.no_annotations,
            group_by_queue: self.group_by_queue,
        }
    }

    /// Without a format, opening a run splits its trace into files that a browser can open.
    fn split(&self, format: Option<OutputFormat>) -> TraceSplit {
        let opened_only = format.is_none() && self.opener().is_some();
        match (self.split_by_time, self.split_by_events, self.split_by_size, self.split) {
            (Some(files), ..) => TraceSplit::ByTime(files),
            (_, Some(events), ..) => TraceSplit::ByEvents(events),
            (_, _, Some(size), _) => TraceSplit::BySize(size.0),
            (.., Some(AutoSplit::Auto)) => TraceSplit::Auto,
            _ if opened_only => TraceSplit::Auto,
            _ => TraceSplit::Whole,
        }
    }

    /// Returns the first option that splits the trace.
    fn split_option(&self) -> Option<&'static str> {
        first([
            ("--split-by-time", self.split_by_time.is_some()),
            ("--split-by-events", self.split_by_events.is_some()),
            ("--split-by-size", self.split_by_size.is_some()),
            ("--split", self.split.is_some()),
        ])
    }

    /// Returns the first option that determines what is drawn.
    fn drawing_option(&self) -> Option<&'static str> {
        self.split_option().or_else(|| {
            first([
                ("--window", self.window.is_some()),
                ("--ranks", self.ranks.is_some()),
                ("--exclude", !self.exclude.is_empty()),
                ("--no-annotations", self.no_annotations),
                ("--group-by-queue", self.group_by_queue),
                ("--tracks", self.tracks.is_some()),
                ("--max-file-size", self.max_file_size.is_some()),
            ])
        })
    }

    /// Returns the first option that opens the trace.
    fn opener(&self) -> Option<&'static str> {
        first([("--open", self.open), ("--serve", self.serve.is_some())])
    }

    fn refuse_beside(&self, database: OutputFormat) -> Result<(), Failure> {
        let Some(option) = self.drawing_option().or_else(|| self.opener()) else { return Ok(()) };
        let name = if database == OutputFormat::Rpd { "--format rpd" } else { "a database" };
        Err(Failure::usage(format!(
            "{option} is one of traces, not of {name}; add --format perfetto or --format chrome-json, or leave it out"
        )))
    }
}

fn first<const N: usize>(options: [(&'static str, bool); N]) -> Option<&'static str> {
    options.into_iter().find_map(|(name, given)| given.then_some(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::CommandLine;
    use clap::Parser;

    fn typed(line: &str) -> Result<MergeArgs, clap::Error> {
        let words = ["rpd-merge"].into_iter().chain(line.split_whitespace());
        CommandLine::try_parse_from(words).map(|cli| cli.merge)
    }

    fn order(line: &str) -> Option<TraceRequest> {
        typed(line).unwrap().trace_request().unwrap()
    }

    #[test]
    fn what_is_typed_says_which_trace_is_wanted() {
        assert_eq!(order("run"), None);
        assert_eq!(order("--format rpd run"), None);
        let split = |line: &str| order(line).map(|order| (order.format, order.split));
        for (line, wanted) in [
            ("--format perfetto", (TraceFormat::Perfetto, TraceSplit::Whole)),
            ("--format perfetto --open", (TraceFormat::Perfetto, TraceSplit::Whole)),
            ("--format chrome-json --split-by-time 32", (TraceFormat::ChromeJson, TraceSplit::ByTime(32))),
            (
                "--split-by-events 5",
                (TraceFormat::Perfetto, TraceSplit::ByEvents(NonZeroU64::MIN.saturating_add(4))),
            ),
            ("--split-by-size 1M", (TraceFormat::Perfetto, TraceSplit::BySize(1 << 20))),
            ("--split auto", (TraceFormat::Perfetto, TraceSplit::Auto)),
            ("--split auto --tracks plain", (TraceFormat::PerfettoPlain, TraceSplit::Auto)),
            ("--format perfetto --tracks processes", (TraceFormat::Perfetto, TraceSplit::Whole)),
            ("--open run", (TraceFormat::Perfetto, TraceSplit::Auto)),
            ("--serve run", (TraceFormat::Perfetto, TraceSplit::Auto)),
            ("--serve=9002 --split-by-time 2 run", (TraceFormat::Perfetto, TraceSplit::ByTime(2))),
        ] {
            assert_eq!(split(line), Some(wanted), "{line}");
        }
        let all = order(
            "--format perfetto --window 1..2 --ranks 8,0-3 --exclude args,category=HIP_API,flows --no-annotations \
             --group-by-queue --max-file-size 2G run",
        );
        let wanted = TraceRequest {
            format: TraceFormat::Perfetto,
            split: TraceSplit::Whole,
            window: "1..2".parse().unwrap(),
            selection: TraceSelection {
                ranks: Some(vec![0..=3, 8..=8]),
                exclude: vec![
                    ItemExclusion::Args,
                    ItemExclusion::Category("HIP_API".to_owned()),
                    ItemExclusion::Flows,
                ],
                annotations: false,
                group_by_queue: true,
            },
            max_file_size: 2 << 30,
        };
        assert_eq!(all, Some(wanted));
    }

    #[test]
    fn a_port_is_part_of_the_option_so_that_an_input_may_follow() {
        let args = typed("--serve run").unwrap();
        assert_eq!(
            (args.trace.serve, args.inputs),
            (Some(rpd_trace::WrittenTrace::PERFETTO_PORT), vec!["run".into()])
        );
        assert_eq!(typed("--serve=9002 run").unwrap().trace.serve, Some(9002));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for line in [
            "--split-by-time 0",
            "--split-by-time 100000",
            "--split-by-events 0",
            "--split-by-size 0",
            "--split never",
            "--split auto --split-by-time 3",
            "--split-by-time 3 --split-by-events 3",
            "--window 5..5",
            "--window 5",
            "--ranks 3-1",
            "--exclude threads",
            "--exclude category=",
            "--serve=70000",
            "--max-file-size none",
        ] {
            assert!(typed(line).is_err(), "{line}");
        }
        for (line, words) in [
            ("--format rocpd --split-by-time 3", "--split-by-time is one of traces, not of a database"),
            ("--format rpd --split auto", "--split is one of traces, not of --format rpd"),
            ("--format rocpd --open", "--open is one of traces"),
            ("--window 1..2", "--window is one of traces"),
            ("--ranks 1", "--ranks is one of traces"),
            ("--split auto --layout partitioned", "--layout partitioned"),
            ("--split auto --verify", "--verify"),
            ("--format chrome-json --dry-run", "--dry-run"),
        ] {
            let error = typed(line).unwrap().trace_request().unwrap_err();
            assert!(
                error.exit() == rpd_console::Exit::Usage && error.to_string().starts_with(words),
                "{line}: {error}"
            );
        }
    }
}
