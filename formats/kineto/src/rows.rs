//! Converts events to rows. The documentation of the crate has the table.

use crate::SOURCE;
use crate::cursor::{JsonValue as Json, elements, members};
use crate::event::{EventPlace, TraceEvent};
use crate::known::{PlaceKey, ReferredRows, RowError};
use crate::number::integer;
use crate::text::{MAX_NAME, short, unescape};
use rpd_shard::model::row_types::{
    ArgRow, EventKey, EventRow, PmcEventRow, PmcKey, RegionRow, SampleRow, StackId, StringId, TrackKey,
};
use rpd_shard::model::{LocalNs, TableId, rocpd};
use rpd_translator::{Translator, cut_text};
use serde_json::json;
use std::borrow::Cow;

/// Maximum length in bytes of args that are kept.
const MAX_ARGS: usize = 4 << 20;
/// Maximum number of counters of one event.
const MAX_COUNTERS: usize = 64;
/// Name of torch's instants with the amount of memory. The second constant lists their values that are counters.
const MEMORY: &[u8] = b"[memory]";
const MEMORY_COUNTERS: [&[u8]; 2] = [b"Total Allocated", b"Total Reserved"];
/// `Device Type` of the host.
const HOST: i64 = 0;
/// Prefix of the names of torch's ranges for gloo.
const GLOO: &[u8] = b"gloo:";

/// The kind of a span, determined by its category.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Dispatch,
    Copy,
    /// A range that the profiler places on a stream.
    OnStream,
    Region,
}

impl SpanKind {
    /// Returns the kind for a category. Releases before torch 1.12 use the capitalized categories.
    pub(crate) fn of(category: &[u8]) -> SpanKind {
        match category {
            b"kernel" | b"gpu_memset" | b"Kernel" | b"Memset" | b"memset" => SpanKind::Dispatch,
            b"gpu_memcpy" | b"Memcpy" | b"memcpy" => SpanKind::Copy,
            b"gpu_user_annotation" | b"User" => SpanKind::OnStream,
            _ => SpanKind::Region,
        }
    }

    pub(crate) fn table(self) -> TableId {
        match self {
            SpanKind::Dispatch => rocpd::KERNEL_DISPATCH,
            SpanKind::Copy => rocpd::MEMORY_COPY,
            SpanKind::OnStream | SpanKind::Region => rocpd::REGION,
        }
    }
}

/// Returns whether spans of a category are on threads of the rank's own process.
fn is_of_process(category: &[u8]) -> bool {
    let known: [&[u8]; 12] = [
        b"cpu_op",
        b"user_annotation",
        b"python_function",
        b"cuda_runtime",
        b"cuda_driver",
        b"hip_runtime",
        b"ac2g",
        b"Operator",
        b"operator",
        b"Runtime",
        b"runtime",
        b"cpu_instant_event",
    ];
    known.contains(&category)
}

/// Position and event of the last span: a flow directly follows the span that it leaves.
#[derive(Debug, Default)]
struct LastSpan {
    spot: Option<(PlaceKey, PlaceKey, i64)>,
    event: Option<EventKey>,
}

/// Writes the rows of events.
pub(crate) struct EventRows<'s> {
    pub(crate) out: Translator<'s>,
    pub(crate) known: ReferredRows,
    /// Offset that is added to all times, in ns.
    pub(crate) base: i64,
    /// First time; `last` is the last one.
    pub(crate) first: Option<i64>,
    pub(crate) last: Option<i64>,
    pub(crate) dispatches: i64,
    last_span: LastSpan,
    /// Buffer for the extdata of one event, kept to reuse its memory.
    extdata: Vec<u8>,
}

impl<'s> EventRows<'s> {
    pub(crate) fn new(out: Translator<'s>) -> EventRows<'s> {
        EventRows {
            out,
            known: ReferredRows::default(),
            base: 0,
            first: None,
            last: None,
            dispatches: 0,
            last_span: LastSpan::default(),
            extdata: Vec::new(),
        }
    }

    /// Writes the rows of one event.
    #[inline]
    pub(crate) fn add(&mut self, event: &TraceEvent<'_>) -> Result<(), RowError> {
        match event.phase {
            b'X' => self.span(event),
            b'i' | b'I' | b'R' => self.instant(event),
            b'C' => self.counters(event),
            b's' | b't' | b'f' => self.flow(event),
            b'M' => self.metadata(event),
            0 => Err(RowError::Bad("it has no phase")),
            _ => Err(RowError::NoPlace),
        }
    }

    /// Converts a time of the file to a time of the clock.
    fn time(&mut self, event: &TraceEvent<'_>) -> Result<i64, RowError> {
        let ts = event.ts.ok_or(RowError::Bad("its time is missing or no number"))?;
        let time = ts.checked_add(self.base).ok_or(RowError::Bad("its time is out of range"))?;
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        Ok(time)
    }

    /// Returns the category as it is stored. Torch without Kineto writes it in place of the process.
    fn category(&mut self, event: &TraceEvent<'_>) -> Result<StringId, RowError> {
        let text = match (event.category, event.pid) {
            (Some(category), _) => unescape(category),
            (None, EventPlace::Word(pid)) => unescape(pid),
            (None, _) => Cow::Borrowed(&b""[..]),
        };
        self.string(&text)
    }

    /// Returns the id of a string. A string that is too long is cut and counted.
    #[inline]
    pub(crate) fn string(&mut self, text: &[u8]) -> Result<StringId, RowError> {
        let text = self.out.cut(text, MAX_NAME);
        Ok(self.out.string(text)?)
    }

    fn name(&mut self, event: &TraceEvent<'_>) -> Result<StringId, RowError> {
        self.string(&unescape(event.name))
    }

    /// Writes the event of a row. `message` is the name of an instant.
    #[inline]
    pub(crate) fn event(
        &mut self,
        event: &TraceEvent<'_>,
        category: StringId,
        stack: Option<StackId>,
        message: Option<&[u8]>,
    ) -> Result<EventKey, RowError> {
        let args = event.args.all.filter(|args| args.len() <= MAX_ARGS);
        if args.is_none() && event.args.all.is_some() {
            self.out.ignore("args of more than 4 MiB");
        }
        self.extdata.clear();
        self.extdata.push(b'{');
        if let Some(message) = message {
            self.extdata.extend_from_slice(b"\"message\":");
            let message = json!(String::from_utf8_lossy(short(message)));
            self.extdata.extend_from_slice(message.to_string().as_bytes());
        }
        if let Some(inner) = args.map(inner).filter(|inner| !inner.is_empty()) {
            let before: &[u8] = if message.is_some() { b",\"args\":{" } else { b"\"args\":{" };
            self.extdata.extend_from_slice(before);
            self.extdata.extend_from_slice(inner);
            self.extdata.push(b'}');
        }
        self.extdata.push(b'}');
        let row = EventRow {
            category_id: Some(category),
            stack_id: stack,
            parent_stack_id: Some(StackId::NONE),
            correlation_id: Some(event.args.external.unwrap_or(0).into()),
            extdata: Some(&self.extdata),
            ..EventRow::default()
        };
        Ok(self.out.row(SOURCE, &row)?)
    }

    fn span(&mut self, event: &TraceEvent<'_>) -> Result<(), RowError> {
        let start = self.time(event)?;
        let dur = event.dur.filter(|dur| *dur >= 0);
        let dur = dur.ok_or(RowError::Bad("its duration is negative or no number"))?;
        let end = start.checked_add(dur).ok_or(RowError::Bad("its time is out of range"))?;
        let raw_category = event.category.unwrap_or_default();
        let kind = SpanKind::of(raw_category);
        if self.known.threads.pid.is_none() && is_of_process(raw_category) {
            self.known.threads.pid = event.pid.number();
        }
        let category = self.category(event)?;
        // Views join by the stack id: rows without a correlation must not match each other.
        let stack = event.args.correlation.filter(|id| *id > 0).map(StackId);
        let times = (LocalNs(start), LocalNs(end));
        let key = match kind {
            SpanKind::Region | SpanKind::OnStream => {
                let is_stream = kind == SpanKind::OnStream;
                let thread = self.known.threads.of(event.pid, event.tid, is_stream)?;
                let name = self.name(event)?;
                let key = self.event(event, category, stack, None)?;
                let row = RegionRow {
                    tid: thread,
                    start: times.0,
                    end: times.1,
                    name_id: name,
                    event_id: Some(key),
                    extdata: None,
                };
                self.out.row(SOURCE, &row)?;
                self.collective(event, key)?;
                key
            }
            SpanKind::Dispatch => self.dispatch(event, category, stack, times)?,
            SpanKind::Copy => self.copy(event, category, stack, times)?,
        };
        let (pid, tid) = (PlaceKey::of(event.pid), PlaceKey::of(event.tid));
        self.last_span = LastSpan { spot: Some((pid, tid, start)), event: Some(key) };
        self.last = Some(self.last.map_or(end, |last| last.max(end)));
        Ok(())
    }

    /// Writes the parameters of a collective as args: a merge uses them to match the calls of all ranks.
    #[inline]
    pub(crate) fn collective(&mut self, event: &TraceEvent<'_>, key: EventKey) -> Result<(), RowError> {
        let given = &event.args.collective;
        if given.name.is_none() && !event.name.starts_with(GLOO) {
            return Ok(());
        }
        // The number of elements of the first input is the product of its dimensions.
        let product = |dims: &[u8]| {
            let sizes = elements(dims).map(|size| size.plain().and_then(integer).filter(|size| *size >= 0));
            sizes.into_iter().try_fold(1i64, |product, size| product.checked_mul(size?))
        };
        let counted = first_element(given.dims).filter(|dims| dims.starts_with(b"[")).and_then(product);
        let counted = counted.map(|count| count.to_string());
        let args: [(&str, &str, Option<&[u8]>); 7] = [
            ("collective", "string", given.name),
            ("comm", "string", given.group),
            ("ranks", "string", given.ranks),
            ("size", "int", given.group_size),
            ("seq", "int", given.sequence),
            ("count", "int", given.elements.or(counted.as_ref().map(|count| count.as_bytes()))),
            ("datatype", "string", given.datatype.or(first_element(given.types))),
        ];
        let args = args.into_iter().filter_map(|(name, kind, value)| Some((name, kind, value?)));
        for (position, (name, kind, value)) in (0i64..).zip(args) {
            let value = unescape(value);
            let row = ArgRow {
                event_id: key,
                position: position.into(),
                kind: kind.as_bytes(),
                name: name.as_bytes(),
                value: Some(short(&value)),
                extdata: None,
            };
            self.out.row(SOURCE, &row)?;
        }
        Ok(())
    }

    /// Writes an instant: a sample, and counter values if it describes memory.
    fn instant(&mut self, event: &TraceEvent<'_>) -> Result<(), RowError> {
        let time = self.time(event)?;
        if self.known.threads.pid.is_none() && is_of_process(event.category.unwrap_or_default()) {
            self.known.threads.pid = event.pid.number();
        }
        let thread = self.known.threads.of(event.pid, event.tid, false)?;
        let category = self.category(event)?;
        let track = self.track(Some(thread), category)?;
        let name = unescape(event.name);
        let key = self.event(event, category, None, Some(&name))?;
        self.sample(track, time, key)?;
        if event.name == MEMORY {
            self.memory(event, key)?;
        }
        self.last = Some(self.last.map_or(time, |last| last.max(time)));
        Ok(())
    }

    /// Writes the totals of an allocation as counter values.
    fn memory(&mut self, event: &TraceEvent<'_>, key: EventKey) -> Result<(), RowError> {
        let mut device = (HOST, 0);
        let mut values = [None; MEMORY_COUNTERS.len()];
        for (name, value) in members(event.args.all.unwrap_or_default()) {
            match name {
                b"Device Type" => device.0 = value.plain().and_then(integer).unwrap_or(HOST),
                b"Device Id" => device.1 = value.plain().and_then(integer).unwrap_or(0),
                _ => {
                    let place = MEMORY_COUNTERS.iter().position(|known| *known == name);
                    if let Some(place) = place.and_then(|place| values.get_mut(place)) {
                        *place = real(value);
                    }
                }
            }
        }
        let gpu = (device.0 != HOST).then_some(device.1.max(0));
        for (symbol, value) in MEMORY_COUNTERS.iter().zip(values) {
            let Some(value) = value else { continue };
            let name = [b"memory.", *symbol].concat();
            let counter = self.counter(gpu, (&name, symbol), "bytes")?;
            self.value(key, counter, value)?;
        }
        Ok(())
    }

    /// Writes the counters of a program: each number of the args is one.
    fn counters(&mut self, event: &TraceEvent<'_>) -> Result<(), RowError> {
        let time = self.time(event)?;
        let values = members(event.args.all.unwrap_or_default());
        let values: Vec<_> =
            values.filter_map(|(name, value)| Some((name, real(value)?))).take(MAX_COUNTERS).collect();
        let key = self.sample_of_counters(event, time)?;
        let counter_name = unescape(event.name);
        for (symbol, value) in &values {
            let symbol = unescape(symbol);
            let name = [&counter_name, &b"."[..], &symbol].concat();
            let counter = self.counter(None, (&name, &symbol), "")?;
            self.value(key, counter, *value)?;
        }
        Ok(())
    }

    /// Writes the sample of some counter values, on a track of the process with the name of the event.
    fn sample_of_counters(&mut self, event: &TraceEvent<'_>, time: i64) -> Result<EventKey, RowError> {
        let category = self.category(event)?;
        let name = self.name(event)?;
        let track = self.track(None, name)?;
        let key = self.event(event, category, None, None)?;
        self.sample(track, time, key)?;
        self.last = Some(self.last.map_or(time, |last| last.max(time)));
        Ok(key)
    }

    fn sample(&mut self, track: TrackKey, time: i64, event: EventKey) -> Result<(), RowError> {
        let (timestamp, event_id) = (LocalNs(time), Some(event));
        self.out.row(SOURCE, &SampleRow { track_id: track, timestamp, event_id, extdata: None })?;
        Ok(())
    }

    fn value(&mut self, event: EventKey, counter: PmcKey, value: f64) -> Result<(), RowError> {
        let (event_id, value) = (Some(event), Some(value));
        self.out.row(SOURCE, &PmcEventRow { event_id, pmc_id: counter, value, extdata: None })?;
        Ok(())
    }

    /// Handles one end of a flow. Flows from calls to kernels are already represented by equal stack ids. A flow
    /// from an operator to its backward operator becomes an arg of each, with the same number.
    fn flow(&mut self, event: &TraceEvent<'_>) -> Result<(), RowError> {
        let category = event.category.unwrap_or_default();
        if is_launch(category, event.name) {
            return Ok(());
        }
        let time = event.ts.and_then(|ts| ts.checked_add(self.base));
        let (pid, tid) = (PlaceKey::of(event.pid), PlaceKey::of(event.tid));
        let is_there = self.last_span.spot.zip(time).is_some_and(|(spot, time)| spot == (pid, tid, time));
        let Some(span) = self.last_span.event.filter(|_| is_there) else {
            let category = String::from_utf8_lossy(cut_text(category, 64)).into_owned();
            self.out.ignore(&format!("flow ends \"{category}\" without an event before them"));
            return Ok(());
        };
        let (position, kind): (i64, &[u8]) = match event.phase {
            b's' => (0, b"flow start"),
            b't' => (1, b"flow step"),
            _ => (2, b"flow end"),
        };
        let (name, id) = (unescape(category), unescape(event.id));
        let row = ArgRow {
            event_id: span,
            position: position.into(),
            kind,
            name: short(&name),
            value: Some(short(&id)),
            extdata: None,
        };
        self.out.row(SOURCE, &row)?;
        Ok(())
    }

    /// Reads names of processes and threads; sort indexes have no place in a shard.
    fn metadata(&mut self, event: &TraceEvent<'_>) -> Result<(), RowError> {
        let threads = &mut self.known.threads;
        match event.name {
            b"thread_name" => {
                let name = event.args.name.unwrap_or_default();
                if !threads.name(event.pid, event.tid, name)? {
                    self.out.ignore("names of threads that have another one later");
                }
            }
            b"process_labels" if event.args.labels == Some(b"CPU") => {
                threads.pid = threads.pid.or(event.pid.number());
            }
            b"process_name" => threads.name_process(event.pid, event.args.name.unwrap_or_default())?,
            // The display order is not part of the recorded run.
            b"process_labels" | b"process_sort_index" | b"thread_sort_index" => {}
            other => {
                let other = String::from_utf8_lossy(cut_text(other, 64)).into_owned();
                self.out.ignore(&format!("metadata \"{other}\""));
            }
        }
        Ok(())
    }
}

/// Returns whether a flow leads from a call to its kernel.
fn is_launch(category: &[u8], name: &[u8]) -> bool {
    match category {
        b"ac2g" | b"async_gpu" | b"async_cpu_to_gpu" | b"cpu_to_cuda" | b"cpu_to_gpu" => true,
        b"async" => name == b"launch",
        _ => false,
    }
}

/// Returns the bytes between the brackets of an object.
fn inner(object: &[u8]) -> &[u8] {
    let inner = object.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    inner.unwrap_or_default().trim_ascii()
}

fn first_element(array: Option<&[u8]>) -> Option<&[u8]> {
    match elements(array?).next()? {
        Json::Array(text) | Json::Text(text) | Json::Scalar(text) => Some(text),
        Json::Object(_) => None,
    }
}

fn real(value: Json<'_>) -> Option<f64> {
    let text = std::str::from_utf8(value.plain()?).ok()?;
    text.parse().ok().filter(|value: &f64| value.is_finite())
}
