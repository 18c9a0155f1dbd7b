//! The second pass over a file: converts packets to rows.

use super::clocks::ClockReading;
use super::event::decode;
use super::packets::{self, PacketStop, TracePacket, TracePackets};
use super::processes::described;
use super::sequence::{InternBudget, PacketSequence};
use super::slices::{SlicePairs, UnpairedSlice};
use super::survey::{TraceSurvey, survey};
use super::tracks::TraceTracks;
use super::wire::{Field, Fields, MalformedField};
use crate::TrackId;
use rpd_shard::WriteError;
use rpd_shard::file::Owner;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{ClockSet, Loss, LossCause, Process};
use rpd_translator::{PendingLimit, TranslateError, Translation, Translator};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::path::Path;
use thiserror::Error;

/// Maximum number of sequences of one file.
const MAX_SEQUENCES: usize = 1 << 16;
/// Maximum time in ns between the clock readings of a snapshot: Perfetto reads one clock after the other.
const SNAPSHOT_BRACKET: i64 = 1_000;
/// Writes a trace as a shard with one source per process; returns the translation notes. Reads the
/// file twice. A truncated or damaged file yields the rows before the damage, a warning, and a loss of unknown
/// size.
pub fn translate(path: &Path, sink: &mut dyn Write, owner: &Owner) -> Result<Translation, TranslateError> {
    let TraceSurvey { tracks, processes, clocks, damage } = survey(path)?;
    let mut reader = TraceReader {
        output: Translator::new(sink, owner, PendingLimit::MANY_PROCESSES)?,
        tracks: TraceTracks::new(tracks, processes),
        clocks,
        sequences: HashMap::new(),
        intern_budget: InternBudget::default(),
        slices: SlicePairs::default(),
        odd: BTreeMap::new(),
    };
    // Processes are described before their rows; their times are known only after them.
    reader.processes()?;
    let mut packets = packets::open(path).map_err(|source| io(path, source))?;
    match reader.packets(&mut packets, true) {
        Ok(()) => {}
        Err(ReadEnd::Stop(PacketStop::Io(source))) => return Err(io(path, source)),
        // The file may have changed between the two passes; the result of the second pass counts.
        Err(ReadEnd::Stop(PacketStop::Damage(damage))) => reader.damaged(&damage, ""),
        Err(ReadEnd::Error(error)) => return Err(error.into()),
    }
    debug_assert!(damage.is_none() || !reader.output.translation().warnings.is_empty());
    reader.rest()?;
    reader.processes()?;
    if owner.clocks.is_empty() && owner.processes.is_none() {
        reader.readings()?;
    }
    reader.warn_of_irregularities();
    Ok(reader.output.finish()?)
}

/// Returns the processes of a trace in file order, as [`translate`] describes them but without times. Reads the
/// whole file.
pub fn read_processes(path: &Path) -> Result<Vec<Process>, TranslateError> {
    let TraceSurvey { tracks, processes, clocks, .. } = survey(path)?;
    Ok(described(&TraceTracks::new(tracks, processes).processes, clocks.target()))
}

fn io(path: &Path, source: std::io::Error) -> TranslateError {
    TranslateError::io(path, source)
}

/// The reason why reading of packets stopped.
#[derive(Debug, Error)]
#[error(transparent)]
enum ReadEnd {
    Stop(#[from] PacketStop),
    Error(#[from] WriteError),
}

/// State while packets are read.
pub(super) struct TraceReader<'s> {
    pub(super) output: Translator<'s>,
    pub(super) tracks: TraceTracks,
    clocks: super::clocks::TraceClocks,
    sequences: HashMap<u32, PacketSequence>,
    intern_budget: InternBudget,
    pub(super) slices: SlicePairs,
    /// Counts of irregularities; each kind gets one warning.
    pub(super) odd: BTreeMap<&'static str, u64>,
}

/// The parts of a packet.
#[derive(Default)]
struct PacketParts<'a> {
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

impl<'a> PacketParts<'a> {
    fn read(packet: &'a [u8]) -> Result<PacketParts<'a>, MalformedField> {
        let mut parts = PacketParts::default();
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
                // Tracks are known from the first pass; the sender of the packet is not needed; the rest concerns
                // the tracing itself.
                60 | 3 | 79 | 87 | 98 | 33 | 35 | 36 | 69 | 89 | 90 => {}
                _ => parts.others.push(number),
            }
        }
        Ok(parts)
    }
}

impl TraceReader<'_> {
    fn packets<R: BufRead>(
        &mut self,
        packets: &mut TracePackets<R>,
        may_be_packed: bool,
    ) -> Result<(), ReadEnd> {
        while let Some(packet) = packets.next()? {
            let TracePacket::Whole(bytes) = packet else {
                self.lose(0, "packets that are too long", None, LossCause::OverLimit);
                continue;
            };
            let packed = match self.packet(bytes) {
                Ok(None) => continue,
                Ok(Some(packed)) if may_be_packed => packed,
                Err(PacketError::Error(error)) => return Err(error.into()),
                Ok(Some(_)) | Err(PacketError::Malformed(_)) => {
                    self.lose(0, "packets that make no sense", None, LossCause::BadRecord);
                    continue;
                }
            };
            let mut inside = packets::unpack(packed);
            match self.packets(&mut inside, false) {
                Err(ReadEnd::Stop(PacketStop::Damage(packets::TraceDamage { reason, .. }))) => {
                    let damage = packets::TraceDamage { offset: packets.offset(), reason };
                    self.damaged(&damage, ", in a packet of packed ones");
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Reads a packet, beginning with the data that its event refers to. Returns the compressed packets in it.
    fn packet<'p>(&mut self, packet: &'p [u8]) -> Result<Option<&'p [u8]>, PacketError> {
        let parts = PacketParts::read(packet)?;
        if let Some(packed) = parts.packed {
            return Ok(Some(packed.bytes()?));
        }
        if self.sequences.len() >= MAX_SEQUENCES && !self.sequences.contains_key(&parts.sequence) {
            self.lose(0, "packets of too many sequences", None, LossCause::OverLimit);
            return Ok(None);
        }
        let mut sequence = self.sequences.remove(&parts.sequence).unwrap_or_default();
        let known = sequence.begin(parts.flags, parts.cleared, parts.dropped, &mut self.intern_budget);
        let taken = self.with(&mut sequence, &parts, known);
        self.sequences.insert(parts.sequence, sequence);
        taken.map(|()| None)
    }

    fn with(
        &mut self,
        sequence: &mut PacketSequence,
        parts: &PacketParts<'_>,
        known: bool,
    ) -> Result<(), PacketError> {
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
                self.lose(0, "events after a gap", None, LossCause::Truncated);
            }
            return Ok(());
        }
        if let Some(defaults) = parts.defaults {
            sequence.defaults(defaults.message()?)?;
        }
        if let Some(interned) = parts.interned {
            let ignore = |number| self.output.ignore(&format!("InternedData, field {number}"));
            sequence.intern(interned.message()?, &mut self.intern_budget, ignore)?;
        }
        // Clocks that count by differences advance with each packet that has a time.
        let clock = parts.clock.or(sequence.defaults.clock);
        let time = parts.timestamp.map(|ns| self.clocks.time(parts.sequence, clock, ns));
        if happens.is_none() {
            return Ok(());
        }
        let Some(Some(at)) = time else {
            let what =
                if time.is_none() { "events without a time" } else { "events on a clock of their own" };
            self.lose(0, what, None, LossCause::BadRecord);
            return Ok(());
        };
        if let Some(event) = parts.event {
            let unread = |number| self.output.ignore(&format!("TrackEvent, field {number}"));
            let event = decode(event.message()?, sequence, unread)?;
            if event.track != Some(TrackId::FILE_NOTE.0) {
                self.event(parts.sequence, sequence, at, event)?;
            }
        }
        if let Some(sample) = parts.sample {
            self.sample(sequence, at, sample.message()?)?;
        }
        Ok(())
    }

    /// Ends open slices.
    fn rest(&mut self) -> Result<(), WriteError> {
        let mut left = std::mem::take(&mut self.slices).rest();
        // Open slices end with their process. Its last time may be an end that must be paired first.
        left.sort_by_key(|rest| matches!(rest, UnpairedSlice::Open(_)));
        for rest in left {
            match rest {
                UnpairedSlice::Ended(open, at) => {
                    self.tracks.seen(open.place_source, at);
                    self.region(&open, at, false)?;
                }
                UnpairedSlice::Open(open) => {
                    let process = self.tracks.processes.get(open.place_source as usize - 1);
                    let last = process.and_then(|found| found.seen).map_or(open.start, |(_, last)| last);
                    *self.odd.entry("slices without an end, which end with their process").or_default() += 1;
                    self.region(&open, last.max(open.start), true)?;
                }
                UnpairedSlice::NotBegun(_) => {
                    self.lose(0, "ends without a beginning", Some(rocpd::REGION), LossCause::BadRecord);
                }
            }
        }
        Ok(())
    }

    fn processes(&mut self) -> Result<(), WriteError> {
        for process in described(&self.tracks.processes, self.clocks.target()) {
            self.output.process(&process)?;
        }
        Ok(())
    }

    /// Writes the readings of all clocks of the node, which relate its times to those of other files.
    fn readings(&mut self) -> Result<(), WriteError> {
        let processes = described(&self.tracks.processes, self.clocks.target());
        let Some(Process { domain, .. }) = processes.first() else { return Ok(()) };
        for ClockReading { boottime, monotonic, monotonic_raw, realtime } in
            std::mem::take(&mut self.clocks.readings)
        {
            let (domain, bracket) = (domain.clone(), SNAPSHOT_BRACKET);
            let set = ClockSet { domain, boottime, monotonic_raw, monotonic, realtime, bracket };
            self.output.clock_set(&set)?;
        }
        Ok(())
    }

    /// Records the loss of a row that would be in `table`.
    pub(super) fn lose(&mut self, source: u32, what: &str, table: Option<TableId>, cause: LossCause) {
        self.lose_many(source, what, table, cause, 1);
    }

    /// Records a loss of `rows` rows, unless `rows` is 0.
    pub(super) fn lose_many(
        &mut self,
        source: u32,
        what: &str,
        table: Option<TableId>,
        cause: LossCause,
        rows: u64,
    ) {
        if rows > 0 {
            self.output.lose(what, Loss { source, table, cause, rows: Some(rows) });
        }
    }

    /// Records that everything after a place is lost, in unknown quantity.
    fn damaged(&mut self, damage: &packets::TraceDamage, inside: &str) {
        let packets::TraceDamage { offset, reason } = damage;
        let line = format!("it is damaged at byte {offset}{inside}: {reason}; everything after it is lost");
        self.output.warn(line);
        let (table, cause, rows) = (None, LossCause::Truncated, None);
        self.output.lose_uncounted(Loss { source: 0, table, cause, rows });
    }

    /// Adds warnings about irregularities and losses.
    fn warn_of_irregularities(&mut self) {
        if self.intern_budget.left_out > 0 {
            self.odd.insert("interned texts for which there was no room", self.intern_budget.left_out);
        }
        for (what, count) in std::mem::take(&mut self.odd) {
            self.output.warn(format!("{count} {what}"));
        }
        self.output.warn_of_losses();
    }
}

/// The reason why a packet is not read.
#[derive(Debug, Error)]
#[error(transparent)]
pub(super) enum PacketError {
    Malformed(#[from] MalformedField),
    Error(#[from] WriteError),
}

/// Returns the name of a field that is not supported, or its number if it is uncommon.
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
