//! The first pass over a file: finds its tracks and processes, and the offsets between its clocks.

use super::clocks::TraceClocks;
use super::limits::{MAX_PROCESSES, MAX_TRACKS};
use super::packets::{self, PacketStop, TraceDamage, TracePacket, TracePackets};
use super::tracks::TrackDescription;
use super::wire::{Fields, MalformedField};
use rpd_translator::{FilePosition, TranslateError};
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

/// The descriptions in a file.
#[derive(Debug, Default)]
pub(super) struct TraceSurvey {
    pub(super) tracks: HashMap<u64, TrackDescription>,
    /// Process ids and names, in file order.
    pub(super) processes: Vec<(i32, Vec<u8>)>,
    pub(super) clocks: TraceClocks,
    /// Place at which the file ends early.
    pub(super) damage: Option<TraceDamage>,
}

/// Reads all packets once. If the file ends early, returns the descriptions before its end.
pub(super) fn survey(path: &Path) -> Result<TraceSurvey, TranslateError> {
    let io = |source| TranslateError::io(path, source);
    let mut survey = TraceSurvey::default();
    let mut packets = packets::open(path).map_err(io)?;
    match survey.take(&mut packets, true) {
        Ok(()) => {}
        Err(PacketStop::Io(source)) => return Err(io(source)),
        Err(PacketStop::Damage(TraceDamage { offset: 0, reason })) => {
            return Err(TranslateError::NoContent {
                path: path.to_owned(),
                missing: "no packet of a Perfetto trace is in it",
                reason,
                position: FilePosition::Byte(0),
                advice: "leave the file out or record again",
            });
        }
        Err(PacketStop::Damage(damage)) => survey.damage = Some(damage),
    }
    Ok(survey)
}

impl TraceSurvey {
    fn take<R: BufRead>(
        &mut self,
        packets: &mut TracePackets<R>,
        may_be_packed: bool,
    ) -> Result<(), PacketStop> {
        while let Some(packet) = packets.next()? {
            let TracePacket::Whole(bytes) = packet else { continue };
            // Malformed packets are counted in the second pass.
            let _ = self.packet(bytes, may_be_packed);
        }
        Ok(())
    }

    fn packet(&mut self, bytes: &[u8], may_be_packed: bool) -> Result<(), MalformedField> {
        for field in Fields(bytes) {
            match field? {
                (6, snapshot) => self.clocks.survey(snapshot.message()?)?,
                (60, track) => self.track(track.message()?)?,
                (50, packed) if may_be_packed => {
                    let mut packets = packets::unpack(packed.bytes()?);
                    let _ = self.take(&mut packets, false);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn track(&mut self, descriptor: Fields<'_>) -> Result<(), MalformedField> {
        let (uuid, described) = TrackDescription::read(descriptor)?;
        if let Some((pid, name)) = &described.process {
            self.process(*pid, name);
        }
        if let Some(thread) = &described.thread {
            self.process(thread.pid, b"");
        }
        if self.tracks.len() < MAX_TRACKS || self.tracks.contains_key(&uuid) {
            // An earlier description may contain fields that a later one omits.
            self.tracks.entry(uuid).or_default().update(described);
        }
        Ok(())
    }

    fn process(&mut self, pid: i32, name: &[u8]) {
        match self.processes.iter().position(|(known, _)| *known == pid) {
            Some(place) => {
                if let Some((_, known)) = self.processes.get_mut(place).filter(|(_, known)| known.is_empty())
                {
                    *known = name.to_vec();
                }
            }
            None if self.processes.len() < MAX_PROCESSES => self.processes.push((pid, name.to_vec())),
            None => {}
        }
    }
}
