//! The second pass over a file: packets to rows.

use super::clocks::Reading;
use super::error::TranslateError;
use super::event::{Event, Kind, decode};
use super::output::{NULL, Output, Translation, ZERO};
use super::packets::{self, Damage, Packet, Packets, Stop};
use super::sequence::{Room, Sequence};
use super::slices::{Open, Rest, Slices};
use super::survey::{Survey, survey};
use super::tracks::{Found, Place, Tracks};
use super::wire::{Field, Fields, Malformed};
use rpd_shard::ShardWriter;
use rpd_shard::file::Owner;
use rpd_shard::identity::unnamed_node;
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::record::{Clock, ClockDomain, ClockSet, LossCause, Process};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::path::Path;

/// Most sequences of one file.
const MAX_SEQUENCES: usize = 1 << 16;
/// How far the clocks of a snapshot may have been read from each other, ns: Perfetto reads one behind the other.
const SNAPSHOT_BRACKET: i64 = 1_000;
/// Category of samples of call stacks.
const SAMPLED: &[u8] = b"PERF_SAMPLE";
/// Category of counters, and track of moments, that have none.
const COUNTER: &[u8] = b"PERFETTO_COUNTER";
const INSTANT: &[u8] = b"instant";
/// What a slice is called that has no name.
const UNNAMED: &[u8] = b"(unnamed)";

/// Writes a trace as a shard, a source for each process; returns the sink and what became of the file. It is read
/// twice. A file that ends early or is damaged somewhere yields what stands before, a warning, and a loss of unknown
/// size.
pub fn translate<W: Write>(path: &Path, sink: W, owner: &Owner) -> Result<(W, Translation), TranslateError> {
    let Survey { tracks, processes, clocks, damage } = survey(path)?;
    let mut shard = ShardWriter::of_owner(sink, owner)?;
    let mut reader = Reader {
        output: Output::new(&mut shard),
        tracks: Tracks::new(tracks, processes),
        clocks,
        sequences: HashMap::new(),
        room: Room::default(),
        slices: Slices::default(),
        odd: BTreeMap::new(),
    };
    // Whose rows these are stands before them; when they were is known behind them.
    reader.processes()?;
    let mut packets = packets::open(path).map_err(|source| io(path, source))?;
    match reader.packets(&mut packets, true) {
        Ok(()) => {}
        Err(Ended::Stop(Stop::Io(source))) => return Err(io(path, source)),
        // The file may have changed between the two passes; what the second one found is what counts.
        Err(Ended::Stop(Stop::Damage(damage))) => reader.output.damaged(&damage, ""),
        Err(Ended::Error(error)) => return Err(error),
    }
    debug_assert!(damage.is_none() || !reader.output.account.warnings.is_empty());
    reader.rest()?;
    reader.processes()?;
    if owner.clocks.is_empty() && owner.processes.is_none() {
        reader.readings()?;
    }
    reader.told();
    let mut account = reader.output.account;
    for warning in &mut account.warnings {
        *warning = format!("{}: {warning}", path.display());
    }
    Ok((shard.finish()?, account))
}

/// The processes of a trace, in its order, as [`translate`] describes them, but for their times. Reads all of the file.
pub fn peek(path: &Path) -> Result<Vec<Process>, TranslateError> {
    let Survey { tracks, processes, clocks, .. } = survey(path)?;
    Ok(described(&Tracks::new(tracks, processes).processes, clocks.target()))
}

fn io(path: &Path, source: std::io::Error) -> TranslateError {
    TranslateError::Io { path: path.to_owned(), source }
}

/// Processes as a shard describes them. The file names neither rank nor node.
fn described(processes: &[Found], clock: Clock) -> Vec<Process> {
    let first = |found: &Found| found.seen.map_or(0, |(first, _)| first);
    let on_node: Vec<(i32, i64)> = processes.iter().map(|found| (found.pid, first(found))).collect();
    let node = unnamed_node(0, &on_node);
    (1..)
        .zip(processes)
        .map(|(source, found)| Process {
            source,
            rank: None,
            size: None,
            local_rank: None,
            rank_from: None,
            worker: false,
            restart: 0,
            domain: ClockDomain { boot_id: node.boot_id.clone(), time_namespace: 0 },
            node: node.clone(),
            clock,
            pid: found.pid,
            ppid: 0,
            start_ticks: 0,
            first_seen: first(found),
            last_seen: found.seen.map(|(_, last)| last),
            command: String::from_utf8_lossy(&found.command).into_owned(),
            environment: Vec::new(),
            exit: None,
        })
        .collect()
}

/// Why packets are not read on.
enum Ended {
    Stop(Stop),
    Error(TranslateError),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Ended {
        Ended::Stop(stop)
    }
}

impl From<TranslateError> for Ended {
    fn from(error: TranslateError) -> Ended {
        Ended::Error(error)
    }
}

/// What is known while packets are read.
struct Reader<'a, W: Write> {
    output: Output<'a, W>,
    tracks: Tracks,
    clocks: super::clocks::Clocks,
    sequences: HashMap<u32, Sequence>,
    room: Room,
    slices: Slices,
    /// What is told once for all: how often it was.
    odd: BTreeMap<&'static str, u64>,
}

/// The parts of a packet.
#[derive(Default)]
struct Parts<'a> {
    timestamp: Option<u64>,
    clock: Option<u32>,
    sequence: u32,
    flags: u64,
    cleared: bool,
    dropped: bool,
    snapshot: Option<Field<'a>>,
    interned: Option<Field<'a>>,
    defaults: Option<Field<'a>>,
    event: Option<Field<'a>>,
    sample: Option<Field<'a>>,
    packed: Option<Field<'a>>,
    others: Vec<u32>,
}

impl<'a> Parts<'a> {
    fn read(packet: &'a [u8]) -> Result<Parts<'a>, Malformed> {
        let mut parts = Parts::default();
        for field in Fields(packet) {
            let (number, field) = field?;
            match number {
                8 => parts.timestamp = Some(field.uint()?),
                58 => parts.clock = Some(field.uint32()?),
                10 => parts.sequence = field.uint32()?,
                13 => parts.flags = field.uint()?,
                41 => parts.cleared = field.uint()? != 0,
                42 => parts.dropped = field.uint()? != 0,
                6 => parts.snapshot = Some(field),
                11 => parts.event = Some(field),
                12 => parts.interned = Some(field),
                50 => parts.packed = Some(field),
                59 => parts.defaults = Some(field),
                66 => parts.sample = Some(field),
                // Tracks are known; who sent the packet is of no interest; the rest is about the tracing itself.
                60 | 3 | 79 | 87 | 98 | 33 | 35 | 36 | 69 | 89 | 90 => {}
                _ => parts.others.push(number),
            }
        }
        Ok(parts)
    }
}

/// What cannot be kept, and in which table it would have been.
struct Lost(&'static str, Option<TableId>, LossCause);

impl<W: Write> Reader<'_, W> {
    fn packets<R: BufRead>(&mut self, packets: &mut Packets<R>, may_be_packed: bool) -> Result<(), Ended> {
        while let Some(packet) = packets.next()? {
            let Packet::Whole(bytes) = packet else {
                self.lose(0, Lost("packets that are too long", None, LossCause::OverLimit));
                continue;
            };
            let packed = match Parts::read(bytes).and_then(|parts| self.packet(parts)) {
                Ok(Outcome::Done) => continue,
                Ok(Outcome::Packed(packed)) if may_be_packed => packed,
                Ok(Outcome::Failed(error)) => return Err(error.into()),
                Ok(Outcome::Packed(_)) | Err(Malformed) => {
                    self.lose(0, Lost("packets that make no sense", None, LossCause::BadRecord));
                    continue;
                }
            };
            let mut inside = packets::unpack(packed);
            match self.packets(&mut inside, false) {
                Err(Ended::Stop(Stop::Damage(Damage { reason, .. }))) => {
                    let damage = Damage { offset: packets.offset(), reason };
                    self.output.damaged(&damage, ", in a packet of packed ones");
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Takes in a packet: first what its event refers to.
    fn packet<'p>(&mut self, parts: Parts<'p>) -> Result<Outcome<'p>, Malformed> {
        if let Some(packed) = parts.packed {
            return packed.bytes().map(Outcome::Packed);
        }
        if self.sequences.len() >= MAX_SEQUENCES && !self.sequences.contains_key(&parts.sequence) {
            self.lose(0, Lost("packets of too many sequences", None, LossCause::OverLimit));
            return Ok(Outcome::Done);
        }
        let mut sequence = self.sequences.remove(&parts.sequence).unwrap_or_default();
        let known = sequence.begin(parts.flags, parts.cleared, parts.dropped, &mut self.room);
        let taken = self.with(&mut sequence, &parts, known);
        self.sequences.insert(parts.sequence, sequence);
        match taken {
            Ok(()) => Ok(Outcome::Done),
            Err(Refused::Malformed) => Err(Malformed),
            Err(Refused::Error(error)) => Ok(Outcome::Failed(error)),
        }
    }

    fn with(&mut self, sequence: &mut Sequence, parts: &Parts<'_>, known: bool) -> Result<(), Refused> {
        for number in &parts.others {
            self.output.ignore(&packet_field(*number));
        }
        if let Some(snapshot) = parts.snapshot {
            self.clocks.snapshot(parts.sequence, snapshot.message()?)?;
        }
        if parts.dropped {
            *self.odd.entry("times a writer dropped packets").or_default() += 1;
        }
        let happens = parts.event.or(parts.sample);
        if !known {
            if happens.is_some() {
                self.lose(0, Lost("events behind a gap", None, LossCause::Truncated));
            }
            return Ok(());
        }
        if let Some(defaults) = parts.defaults {
            sequence.defaults(defaults.message()?)?;
        }
        if let Some(interned) = parts.interned {
            let ignore = |number| self.output.ignore(&format!("InternedData, field {number}"));
            sequence.intern(interned.message()?, &mut self.room, ignore)?;
        }
        // Clocks of differences count on with each packet that has a time.
        let clock = parts.clock.or(sequence.defaults.clock);
        let time = parts.timestamp.map(|ns| self.clocks.time(parts.sequence, clock, ns));
        if happens.is_none() {
            return Ok(());
        }
        let Some(Some(at)) = time else {
            let what =
                if time.is_none() { "events without a time" } else { "events on a clock of their own" };
            self.lose(0, Lost(what, None, LossCause::BadRecord));
            return Ok(());
        };
        if let Some(event) = parts.event {
            let unread = |number| self.output.ignore(&format!("TrackEvent, field {number}"));
            let event = decode(event.message()?, sequence, unread)?;
            self.event(parts.sequence, sequence, at, event)?;
        }
        if let Some(sample) = parts.sample {
            self.sample(sequence, at, sample.message()?)?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        number: u32,
        sequence: &mut Sequence,
        at: i64,
        mut event: Event,
    ) -> Result<(), TranslateError> {
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
        self.output.lose(
            "values without a counter",
            0,
            Some(rocpd::PMC_EVENT),
            LossCause::BadRecord,
            event.strays,
        );
        for (counter, value) in std::mem::take(&mut event.others) {
            self.count(sequence, (counter, value), at, b"")?;
        }
        match event.kind {
            Kind::Counter => match event.value {
                Some(value) => self.count(sequence, (track, value), at, &event.category)?,
                None => {
                    self.lose(0, Lost("counters without a value", Some(rocpd::SAMPLE), LossCause::BadRecord))
                }
            },
            Kind::Unknown => self.lose(0, Lost("events of an unknown kind", None, LossCause::BadRecord)),
            Kind::End => match self.slices.end(number, track) {
                Some(open) => {
                    self.tracks.seen(open.place_source, at);
                    self.args(open.place_source, open.event, open.args, &event)?;
                    self.region(&open, at, false)?;
                }
                None => {
                    let args = event.annotations.len() as u64;
                    self.output.lose("args of ends", 0, Some(rocpd::ARG), LossCause::BadRecord, args);
                    if !self.slices.stray_end(track, at) {
                        let lost =
                            Lost("ends without a beginning", Some(rocpd::REGION), LossCause::OverLimit);
                        self.lose(0, lost);
                    }
                }
            },
            Kind::Begin | Kind::Instant => {
                let Some(place) = self.tracks.place(track, &mut self.output)? else {
                    self.lose(0, Lost("events of too many tracks", None, LossCause::OverLimit));
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
        place: Place,
        at: i64,
        event: &Event,
    ) -> Result<(), TranslateError> {
        let is_slice = event.kind == Kind::Begin;
        // A region has its name; a sample has it here only.
        let name = event.name.as_deref().unwrap_or(UNNAMED);
        let message = (!is_slice).then(|| json!({ "message": String::from_utf8_lossy(name) }).to_string());
        let row = self.event_row(place.source, event, message.as_deref())?;
        self.args(place.source, row, 0, event)?;
        if is_slice {
            let Value::Int(name) = self.output.string(name)? else { return Ok(()) };
            let open = Open::new(place, at, name, row, event.annotations.len() as i64);
            if !self.slices.begin(sequence, track, open) {
                let lost =
                    Lost("slices of which too many are open", Some(rocpd::REGION), LossCause::OverLimit);
                self.lose(place.source, lost);
            }
            return Ok(());
        }
        let kind = if event.category.is_empty() { INSTANT } else { &event.category };
        match self.tracks.moments(place, kind, &mut self.output)? {
            Some(track) => self.moment(place.source, track, at, row),
            None => {
                self.lose(place.source, Lost("instants", Some(rocpd::SAMPLE), LossCause::OverLimit));
                Ok(())
            }
        }
    }

    /// The row of an event. The first flow is its stack id, which those that it flows to have, too.
    fn event_row(
        &mut self,
        source: u32,
        event: &Event,
        extdata: Option<&str>,
    ) -> Result<i64, TranslateError> {
        let category = if event.category.is_empty() { NULL } else { self.output.string(&event.category)? };
        for _ in event.flows.iter().skip(1) {
            self.output.ignore("flows of an event beside its first");
        }
        let id = |id: Option<u64>| Value::Int(id.unwrap_or(0) as i64);
        let stack = event.call_stack.as_deref().map_or(Value::from("{}"), Value::from);
        let row = [
            category,
            id(event.flows.first().copied()),
            ZERO,
            id(event.correlation),
            stack,
            Value::from("{}"),
            extdata.map_or(Value::from("{}"), Value::from),
        ];
        self.output.push(source, rocpd::EVENT, &row)
    }

    fn args(&mut self, source: u32, row: i64, first: i64, event: &Event) -> Result<(), TranslateError> {
        for (position, annotation) in (first..).zip(&event.annotations) {
            let value = (annotation.kind, &annotation.name[..], &annotation.value[..]);
            self.output.arg(source, row, position, value)?;
        }
        Ok(())
    }

    fn moment(&mut self, source: u32, track: i64, at: i64, event: i64) -> Result<(), TranslateError> {
        self.output.push(source, rocpd::SAMPLE, &[Value::Int(track), Value::Int(at), Value::Int(event)])?;
        Ok(())
    }

    fn region(&mut self, open: &Open, end: i64, is_open: bool) -> Result<(), TranslateError> {
        if end < open.start {
            *self.odd.entry("slices that end before they begin").or_default() += 1;
        }
        let [thread, start, name, event] = [open.thread, open.start, open.name, open.event].map(Value::Int);
        let extdata = if is_open { r#"{"rpd":{"open":true}}"# } else { "{}" };
        let row =
            [Value::Int(1), Value::Int(1), thread, start, Value::Int(end), name, event, Value::from(extdata)];
        self.output.push(open.place_source, rocpd::REGION, &row)?;
        Ok(())
    }

    /// A value of a counter: an event, a sample and a value.
    fn count(
        &mut self,
        sequence: &mut Sequence,
        (track, value): (u64, f64),
        at: i64,
        category: &[u8],
    ) -> Result<(), TranslateError> {
        let Some(counter) = self.tracks.counter(track, &mut self.output)? else {
            self.lose(0, Lost("values of too many counters", Some(rocpd::PMC_EVENT), LossCause::OverLimit));
            return Ok(());
        };
        self.tracks.seen(counter.source, at);
        let mut value = value;
        if counter.is_incremental {
            let sum = sequence.sums.entry(track).or_default();
            *sum += value;
            value = *sum;
        }
        value *= if counter.multiplier == 0 { 1.0 } else { counter.multiplier as f64 };
        let category = [category, &counter.category, COUNTER].into_iter().find(|text| !text.is_empty());
        let event = Event { category: category.unwrap_or_default().to_vec(), ..Event::default() };
        let row = self.event_row(counter.source, &event, None)?;
        self.moment(counter.source, counter.track, at, row)?;
        let value = [Value::Int(row), Value::Int(counter.pmc), Value::Real(value)];
        self.output.push(counter.source, rocpd::PMC_EVENT, &value)?;
        Ok(())
    }

    /// Where a thread was at a time.
    fn sample(&mut self, sequence: &Sequence, at: i64, sample: Fields<'_>) -> Result<(), Refused> {
        let (mut pid, mut tid, mut stack) = (0, 0, None);
        for field in sample {
            match field? {
                (2, id) => pid = id.int32()?,
                (3, id) => tid = id.int32()?,
                (4, iid) => stack = Some(iid.uint()?),
                // The mode of the processor goes without saying.
                (5, _) => {}
                (number, _) => self.output.ignore(&format!("PerfSample, field {number}")),
            }
        }
        let Some(place) = self.tracks.thread_of(pid, tid, &mut self.output)? else {
            self.lose(0, Lost("samples of too many threads", Some(rocpd::SAMPLE), LossCause::OverLimit));
            return Ok(());
        };
        self.tracks.seen(place.source, at);
        let frames = stack.and_then(|stack| sequence.frames(stack));
        if stack.is_some() && frames.is_none() {
            *self.odd.entry("events that refer to what is not there").or_default() += 1;
        }
        let call_stack = frames.and_then(|frames| super::stacks::json(&frames));
        let event = Event { category: SAMPLED.to_vec(), call_stack, ..Event::default() };
        let row = self.event_row(place.source, &event, None)?;
        match self.tracks.moments(place, SAMPLED, &mut self.output)? {
            Some(track) => self.moment(place.source, track, at, row)?,
            None => self.lose(place.source, Lost("samples", Some(rocpd::SAMPLE), LossCause::OverLimit)),
        }
        Ok(())
    }

    /// Ends what is open.
    fn rest(&mut self) -> Result<(), TranslateError> {
        let mut left = std::mem::take(&mut self.slices).rest();
        // What is open ends with its process, whose last time may be an end that is still to be paired.
        left.sort_by_key(|rest| matches!(rest, Rest::Open(_)));
        for rest in left {
            match rest {
                Rest::Ended(open, at) => {
                    self.tracks.seen(open.place_source, at);
                    self.region(&open, at, false)?;
                }
                Rest::Open(open) => {
                    let process = self.tracks.processes.get(open.place_source as usize - 1);
                    let last = process.and_then(|found| found.seen).map_or(open.start, |(_, last)| last);
                    *self.odd.entry("slices without an end, which end with their process").or_default() += 1;
                    self.region(&open, last.max(open.start), true)?;
                }
                Rest::NotBegun(_) => {
                    let lost = Lost("ends without a beginning", Some(rocpd::REGION), LossCause::BadRecord);
                    self.lose(0, lost);
                }
            }
        }
        Ok(())
    }

    fn processes(&mut self) -> Result<(), TranslateError> {
        for process in described(&self.tracks.processes, self.clocks.target()) {
            self.output.shard.process(&process)?;
        }
        Ok(())
    }

    /// Readings of all clocks of the node, by which its times can be compared with those of others.
    fn readings(&mut self) -> Result<(), TranslateError> {
        let processes = described(&self.tracks.processes, self.clocks.target());
        let Some(Process { domain, .. }) = processes.first() else { return Ok(()) };
        for Reading { boottime, monotonic, monotonic_raw, realtime } in
            std::mem::take(&mut self.clocks.readings)
        {
            let (domain, bracket) = (domain.clone(), SNAPSHOT_BRACKET);
            let set = ClockSet { domain, boottime, monotonic_raw, monotonic, realtime, bracket };
            self.output.shard.clock(&set)?;
        }
        Ok(())
    }

    fn lose(&mut self, source: u32, Lost(what, table, cause): Lost) {
        self.output.lose(what, source, table, cause, 1);
    }

    /// Says what was odd, and what was lost.
    fn told(&mut self) {
        if self.room.left_out > 0 {
            self.odd.insert("interned texts for which there was no room", self.room.left_out);
        }
        for (what, count) in std::mem::take(&mut self.odd) {
            self.output.warn(format!("{count} {what}"));
        }
        for (what, count) in self.output.account.lost.clone() {
            self.output.warn(format!("{count} {what} are lost"));
        }
    }
}

/// What is to be done behind a packet.
enum Outcome<'a> {
    Done,
    /// It holds packets.
    Packed(&'a [u8]),
    Failed(TranslateError),
}

/// Why a packet is not taken in.
enum Refused {
    Malformed,
    Error(TranslateError),
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Refused {
        Refused::Malformed
    }
}

impl From<TranslateError> for Refused {
    fn from(error: TranslateError) -> Refused {
        Refused::Error(error)
    }
}

/// A field of a packet that is not read, by its name where it is a common one.
fn packet_field(number: u32) -> String {
    let name = match number {
        1 => "ftrace events",
        2 => "process trees",
        9 => "process statistics",
        37 => "heap profiles",
        43 | 44 => "descriptors of the old form",
        45 => "system information",
        46 => "triggers",
        53 => "events of GPU stages",
        54 => "packets of a streaming profiler",
        52 => "values of GPU counters",
        _ => return format!("packets with field {number}"),
    };
    name.to_owned()
}
