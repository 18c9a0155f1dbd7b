use crate::document::{TraceItem, TrailingData, WalkDepth, WalkResult, walk};
use crate::event::TraceEvent;
use crate::facts::{self, TraceFacts, TraceSidecar};
use crate::input::{JsonInput, open};
use crate::known::RowError;
use crate::lost_events::LostEvents;
use crate::rank_process::rank_process;
use crate::rows::{EventRows, SpanKind};
use crate::text::MAX_NAME;
use rpd_shard::WriteError;
use rpd_shard::file::Owner;
use rpd_shard::record::{Clock, LossCause, Process, ProcessExit, is_wall_time};
use rpd_translator::{FilePosition, PendingLimit, TranslateError, Translation, Translator};
use std::io::Write;
use std::path::Path;

/// Times from here on, in ns, are wall clock times without a base: microseconds with 16 digits.
const WALL_CLOCK: i64 = 1_000_000_000_000_000_000;
/// Length of a calendar year in ns.
const YEAR: i64 = 31_556_952_000_000_000;

/// Writes the contents of a file as a shard with one process; returns the translation notes. Reads the
/// file once, or twice if the base time does not precede the events. Malformed parts are reported and counted in
/// the loss ledger; all complete parts are read.
pub fn translate(path: &Path, sink: &mut dyn Write, owner: &Owner) -> Result<Translation, TranslateError> {
    let mut input = opened(path)?;
    let mut run = TraceTranslation {
        path,
        rows: EventRows::new(Translator::new(sink, owner, PendingLimit::NONE)?),
        facts: TraceFacts::default(),
        sidecar: TraceSidecar::default(),
        clock: Clock::Realtime,
        is_first: true,
        unbased: false,
        has_warned_of_origin: false,
        lost_events: LostEvents::default(),
    };
    match facts::sidecar(path) {
        Ok(found) => run.sidecar = found,
        Err(why) => run.rows.out.warn(why),
    }
    run.rows.out.process(&run.process(None))?;
    let result = walk(&mut input, WalkDepth::Everything, &mut |item| run.take(item))?;
    failed(path, &mut input)?;
    run.end(result)
}

fn opened(path: &Path) -> Result<JsonInput, TranslateError> {
    let source = open(path).map_err(|source| TranslateError::io(path, source))?;
    Ok(JsonInput::new(source))
}

fn failed(path: &Path, input: &mut JsonInput) -> Result<(), TranslateError> {
    match input.take_error() {
        Some(source) => Err(TranslateError::io(path, source)),
        None => Ok(()),
    }
}

/// The translation of one file.
struct TraceTranslation<'a> {
    path: &'a Path,
    rows: EventRows<'a>,
    facts: TraceFacts,
    sidecar: TraceSidecar,
    clock: Clock,
    /// Whether no span has been read yet.
    is_first: bool,
    /// Whether the file states no base time and is not a legacy one.
    unbased: bool,
    /// Whether the warning about times that are not times of day was given.
    has_warned_of_origin: bool,
    lost_events: LostEvents,
}

impl TraceTranslation<'_> {
    fn take(&mut self, item: TraceItem<'_>) -> Result<(), TranslateError> {
        match item {
            TraceItem::Fact(name, value) => self.facts.take(name, value),
            TraceItem::UnusedFact(name, why) => {
                let name = String::from_utf8_lossy(name);
                self.rows.out.warn(format!("its member \"{name}\" is not used: {why}"));
            }
            TraceItem::Events { bare } => self.begin(bare)?,
            TraceItem::Event(at, event) => self.event(at, event)?,
            TraceItem::Broken { at, why, alone } => {
                self.lost_events.add(&mut self.rows.out, at, (why, LossCause::BadRecord), None);
                if !alone {
                    LostEvents::add_unknown(&mut self.rows.out, LossCause::BadRecord);
                }
            }
            TraceItem::TooLong(at) => {
                let why = ("it has more than 16 MiB", LossCause::OverLimit);
                self.lost_events.add(&mut self.rows.out, at, why, None);
            }
        }
        Ok(())
    }

    /// Determines the base time, which must be known before the first event.
    fn begin(&mut self, bare: bool) -> Result<(), TranslateError> {
        if bare {
            return self.begin_legacy();
        }
        if self.facts.base.is_none() {
            let mut input = opened(self.path)?;
            let mut facts = TraceFacts::default();
            walk(&mut input, WalkDepth::FactsOnly, &mut |item| {
                if let TraceItem::Fact(name, value) = item {
                    facts.take(name, value);
                }
                Ok(())
            })?;
            failed(self.path, &mut input)?;
            self.facts.base = facts.base;
            self.facts.second_base = facts.second_base;
            self.facts.bad_base = facts.bad_base.or(self.facts.bad_base.take());
        }
        self.unbased = self.facts.base.is_none();
        if let (true, Some(bad)) = (self.unbased, &self.facts.bad_base) {
            self.rows.out.warn(format!(
                "its baseTimeNanoseconds is \"{bad}\", which is not a 64-bit number of nanoseconds: it is not used"
            ));
        }
        self.rows.base = self.facts.base.unwrap_or(0);
        Ok(())
    }

    /// Prepares a file of torch without Kineto: its times count from the start of the profiler, which only the
    /// sidecar states.
    fn begin_legacy(&mut self) -> Result<(), TranslateError> {
        self.clock = Clock::Boottime;
        match self.sidecar.start_boottime_ns {
            Some(start) => self.rows.base = start,
            None => self.rows.out.warn(format!(
                "it was written by torch without Kineto and has no times of day, and there is no {} with the start time of its profiler: its times count from then, and DO NOT LINE UP with those of other files",
                facts::sidecar_path(self.path).display()
            )),
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self, at: u64, event: &TraceEvent<'_>) -> Result<(), WriteError> {
        if self.is_first && event.phase == b'X' {
            self.first_span(event);
        }
        self.rows.out.count_element();
        match self.rows.add(event) {
            Ok(()) => Ok(()),
            Err(RowError::Write(error)) => Err(error),
            Err(refused) => {
                let table =
                    (event.phase == b'X').then(|| SpanKind::of(event.category.unwrap_or_default()).table());
                self.lost_events.add(&mut self.rows.out, at, refused.words(), table);
                Ok(())
            }
        }
    }

    fn first_span(&mut self, event: &TraceEvent<'_>) {
        self.is_first = false;
        if self.unbased && event.ts.is_some_and(|ts| ts < WALL_CLOCK) {
            self.has_warned_of_origin = true;
            let usable = if self.facts.bad_base.is_some() { "usable " } else { "" };
            self.rows.out.warn(format!(
                "it has no {usable}baseTimeNanoseconds, and its times are too small for times of day: their origin is unknown, and they DO NOT LINE UP with those of other files"
            ));
        }
    }

    fn process(&self, exit: Option<ProcessExit>) -> Process {
        let times = (self.rows.first, self.rows.last);
        let threads = &self.rows.known.threads;
        Process { exit, ..rank_process(&self.facts, &self.sidecar, threads, times, self.clock) }
    }

    fn end(mut self, result: WalkResult) -> Result<Translation, TranslateError> {
        if let Some((at, why)) = result.damage {
            if !result.has_events {
                return Err(no_events(self.path, at, why));
            }
            self.rows.out.warn(format!("it is damaged at byte {at}: {why}; everything after it is lost"));
            LostEvents::add_unknown(&mut self.rows.out, LossCause::Truncated);
        }
        if !result.has_events {
            return Err(no_events(self.path, 0, "there are no traceEvents".to_owned()));
        }
        if let Some((at, data)) = result.trailing {
            self.warn_of_trailing_data(at, data);
        }
        self.check_times();
        self.rows.known.devices = std::mem::take(&mut self.facts.devices);
        self.rows.known.finish(&mut self.rows.out)?;
        // The profiler writes its file while the process is still running.
        let process = self.process(self.rows.last.map(|_| ProcessExit::Unknown));
        self.rows.out.process(&process)?;
        self.warn_of_left_out();
        Ok(self.rows.out.finish()?)
    }

    fn warn_of_left_out(&mut self) {
        std::mem::take(&mut self.lost_events).warn(&mut self.rows.out);
        let cut_names = self.rows.out.translation().cut_texts;
        if cut_names > 0 {
            self.rows.out.warn(format!("{cut_names} names of more than {MAX_NAME} bytes are cut"));
        }
    }

    /// Warns of times that cannot be wall clock times: nothing aligns them.
    fn check_times(&mut self) {
        if let (Some(first), Some(second)) = (self.facts.base, self.facts.second_base) {
            self.rows.out.warn(format!(
                "it has baseTimeNanoseconds twice, {first} and {second}: its times count from the first, and if that is the wrong one they DO NOT LINE UP with those of other files"
            ));
        }
        let first = self.rows.first.filter(|first| self.clock == Clock::Realtime && !is_wall_time(*first));
        if let (false, Some(first)) = (self.has_warned_of_origin, first) {
            let year = 1970 + first.div_euclid(YEAR);
            self.rows.out.warn(format!(
                "its times begin in the year {year}, and no wall clock has shown them: is its baseTimeNanoseconds in another unit? They DO NOT LINE UP with those of other files"
            ));
        }
    }

    /// Warns of data after the trace. It is unknown which rows a wrong checksum affects, and how many rows are not
    /// read.
    fn warn_of_trailing_data(&mut self, at: u64, data: TrailingData) {
        match data {
            TrailingData::Bytes(bytes) => {
                self.rows.out.warn(format!(
                    "the trace ends at byte {at}, and {bytes} more bytes follow, which are not read: is it more than one trace, or was it written over a longer file?"
                ));
                LostEvents::add_unknown(&mut self.rows.out, LossCause::BadRecord);
            }
            TrailingData::Packing(why) => {
                self.rows.out.warn(format!(
                    "it is damaged after byte {at}, where the trace ends: {why}; all of its events were read, and some of them may be wrong"
                ));
                LostEvents::add_unknown(&mut self.rows.out, LossCause::Truncated);
            }
        }
    }
}

/// Returns the error for a file without events.
fn no_events(path: &Path, offset: u64, reason: String) -> TranslateError {
    TranslateError::NoContent {
        path: path.to_owned(),
        missing: "no events of the PyTorch profiler are in it",
        reason,
        position: FilePosition::Byte(offset),
        advice: "leave the file out or record again",
    }
}
