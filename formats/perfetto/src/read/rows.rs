//! Writes the rows of the events in packets.

use super::event::{EventKind, TrackEvent};
use super::sequence::{PacketSequence, cut};
use super::slices::OpenSlice;
use super::tracks::TrackPlace;
use super::translate::{PacketError, TraceReader};
use super::wire::Fields;
use rpd_shard::WriteError;
use rpd_shard::model::row_types::{
    ArgRow, EventKey, EventRow, PmcEventRow, RegionRow, SampleRow, StackId, TrackKey, WholeNumber,
};
use rpd_shard::model::{LocalNs, rocpd};
use rpd_shard::record::LossCause;
use serde_json::json;

/// Category of call stack samples.
const SAMPLED: &[u8] = b"PERF_SAMPLE";
/// Default category of counters; the second constant is the default track of instants.
const COUNTER: &[u8] = b"PERFETTO_COUNTER";
const INSTANT: &[u8] = b"instant";
/// Name of a slice without a name.
const UNNAMED: &[u8] = b"(unnamed)";

impl TraceReader<'_> {
    pub(super) fn event(
        &mut self,
        number: u32,
        sequence: &mut PacketSequence,
        at: i64,
        mut event: TrackEvent,
    ) -> Result<(), WriteError> {
        let track = event.track.unwrap_or(0);
        for (what, count) in [
            ("values without a counter", event.strays),
            ("values nested too deep", event.too_deep),
            ("events that refer to what is not there", event.is_unknown.into()),
        ] {
            if count > 0 {
                *self.odd.entry(what).or_default() += count;
            }
        }
        let values = Some(rocpd::PMC_EVENT);
        self.lose_many(0, "values without a counter", values, LossCause::BadRecord, event.strays);
        for (counter, value) in std::mem::take(&mut event.others) {
            self.count(sequence, (counter, value), at, b"")?;
        }
        match event.kind {
            EventKind::Counter => match event.value {
                Some(value) => self.count(sequence, (track, value), at, &event.category)?,
                None => self.lose(0, "counters without a value", Some(rocpd::SAMPLE), LossCause::BadRecord),
            },
            EventKind::Unknown => self.lose(0, "events of an unknown kind", None, LossCause::BadRecord),
            EventKind::End => match self.slices.end(number, track) {
                Some(open) => {
                    self.tracks.seen(open.place_source, at);
                    self.args(open.place_source, open.event, open.args, &event)?;
                    self.region(&open, at, false)?;
                }
                None => {
                    let args = event.annotations.len() as u64;
                    self.lose_many(0, "args of ends", Some(rocpd::ARG), LossCause::BadRecord, args);
                    if !self.slices.stray_end(track, at) {
                        self.lose(0, "ends without a beginning", Some(rocpd::REGION), LossCause::OverLimit);
                    }
                }
            },
            EventKind::Begin | EventKind::Instant => {
                let Some(place) = self.place(track)? else {
                    self.lose(0, "events of too many tracks", None, LossCause::OverLimit);
                    return Ok(());
                };
                self.tracks.seen(place.source, at);
                self.begin_or_instant(number, track, place, at, &event)?;
            }
        }
        Ok(())
    }

    fn begin_or_instant(
        &mut self,
        sequence: u32,
        track: u64,
        place: TrackPlace,
        at: i64,
        event: &TrackEvent,
    ) -> Result<(), WriteError> {
        let is_slice = event.kind == EventKind::Begin;
        // A region stores its name itself; a sample stores it only in the event.
        let name = event.name.as_deref().unwrap_or(UNNAMED);
        let message = (!is_slice).then(|| json!({ "message": String::from_utf8_lossy(name) }).to_string());
        let row = self.event_row(place.source, event, message.as_deref())?;
        self.args(place.source, row, 0, event)?;
        if is_slice {
            let name = self.output.string(name)?;
            let open = OpenSlice::new(place, at, name, row, event.annotations.len() as i64);
            if !self.slices.begin(sequence, track, open) {
                let what = "slices of which too many are open";
                self.lose(place.source, what, Some(rocpd::REGION), LossCause::OverLimit);
            }
            return Ok(());
        }
        let kind = if event.category.is_empty() { INSTANT } else { &event.category };
        match self.moments(place, kind)? {
            Some(track) => self.moment(place.source, track, at, row),
            None => {
                self.lose(place.source, "instants", Some(rocpd::SAMPLE), LossCause::OverLimit);
                Ok(())
            }
        }
    }

    /// Writes the row of an event. The first flow becomes its stack id, which the targets of the flow share.
    fn event_row(
        &mut self,
        source: u32,
        event: &TrackEvent,
        extdata: Option<&str>,
    ) -> Result<EventKey, WriteError> {
        let category = match &event.category[..] {
            b"" => None,
            category => Some(self.output.string(category)?),
        };
        for _ in event.flows.iter().skip(1) {
            self.output.ignore("flows of an event beside its first");
        }
        let row = EventRow {
            category_id: category,
            stack_id: Some(StackId::from_unsigned(event.flows.first().copied().unwrap_or(0))),
            parent_stack_id: Some(StackId::NONE),
            // Ids above `i64::MAX` keep their bits.
            correlation_id: Some(WholeNumber::Signed(event.correlation.unwrap_or(0) as i64)),
            call_stack: Some(event.call_stack.as_deref().unwrap_or("{}").as_bytes()),
            line_info: Some(b"{}"),
            extdata: Some(extdata.unwrap_or("{}").as_bytes()),
        };
        self.output.row(source, &row)
    }

    fn args(&mut self, source: u32, row: EventKey, first: i64, event: &TrackEvent) -> Result<(), WriteError> {
        for (position, annotation) in (first..).zip(&event.annotations) {
            let arg = ArgRow {
                event_id: row,
                position: position.into(),
                kind: annotation.kind.as_bytes(),
                name: cut(&annotation.name),
                value: Some(cut(&annotation.value)),
                extdata: None,
            };
            self.output.row(source, &arg)?;
        }
        Ok(())
    }

    fn moment(&mut self, source: u32, track: TrackKey, at: i64, event: EventKey) -> Result<(), WriteError> {
        let (timestamp, event_id) = (LocalNs(at), Some(event));
        self.output.row(source, &SampleRow { track_id: track, timestamp, event_id, extdata: None })?;
        Ok(())
    }

    pub(super) fn region(&mut self, open: &OpenSlice, end: i64, is_open: bool) -> Result<(), WriteError> {
        if end < open.start {
            *self.odd.entry("slices that end before they begin").or_default() += 1;
        }
        let row = RegionRow {
            tid: open.thread,
            start: LocalNs(open.start),
            end: LocalNs(end),
            name_id: open.name,
            event_id: Some(open.event),
            extdata: Some(if is_open { br#"{"rpd":{"open":true}}"# } else { b"{}" }),
        };
        self.output.row(open.place_source, &row)?;
        Ok(())
    }

    /// Writes a counter value: an event, a sample and a value.
    fn count(
        &mut self,
        sequence: &mut PacketSequence,
        (track, mut value): (u64, f64),
        at: i64,
        category: &[u8],
    ) -> Result<(), WriteError> {
        let Some(counter) = self.counter(track)? else {
            self.lose(0, "values of too many counters", Some(rocpd::PMC_EVENT), LossCause::OverLimit);
            return Ok(());
        };
        self.tracks.seen(counter.source, at);
        if counter.is_incremental {
            let sum = sequence.sums.entry(track).or_default();
            *sum += value;
            value = *sum;
        }
        value *= if counter.multiplier == 0 { 1.0 } else { counter.multiplier as f64 };
        let category = [category, &counter.category, COUNTER].into_iter().find(|text| !text.is_empty());
        let event = TrackEvent { category: category.unwrap_or_default().to_vec(), ..TrackEvent::default() };
        let row = self.event_row(counter.source, &event, None)?;
        self.moment(counter.source, counter.track, at, row)?;
        let (event_id, value) = (Some(row), Some(value));
        let value = PmcEventRow { event_id, pmc_id: counter.pmc, value, extdata: None };
        self.output.row(counter.source, &value)?;
        Ok(())
    }

    /// Writes a sample of a thread's call stack.
    pub(super) fn sample(
        &mut self,
        sequence: &PacketSequence,
        at: i64,
        sample: Fields<'_>,
    ) -> Result<(), PacketError> {
        let (mut pid, mut tid, mut stack) = (0, 0, None);
        for field in sample {
            match field? {
                (2, id) => pid = id.int32()?,
                (3, id) => tid = id.int32()?,
                (4, iid) => stack = Some(iid.uint()?),
                // The processor mode is not recorded.
                (5, _) => {}
                (number, _) => self.output.ignore(&format!("PerfSample, field {number}")),
            }
        }
        let Some(place) = self.thread_of(pid, tid)? else {
            self.lose(0, "samples of too many threads", Some(rocpd::SAMPLE), LossCause::OverLimit);
            return Ok(());
        };
        self.tracks.seen(place.source, at);
        let frames = stack.and_then(|stack| sequence.frames(stack));
        if stack.is_some() && frames.is_none() {
            *self.odd.entry("events that refer to what is not there").or_default() += 1;
        }
        let call_stack = frames.and_then(|frames| super::stacks::json(&frames));
        let event = TrackEvent { category: SAMPLED.to_vec(), call_stack, ..TrackEvent::default() };
        let row = self.event_row(place.source, &event, None)?;
        match self.moments(place, SAMPLED)? {
            Some(track) => self.moment(place.source, track, at, row)?,
            None => self.lose(place.source, "samples", Some(rocpd::SAMPLE), LossCause::OverLimit),
        }
        Ok(())
    }
}
