//! Converts tracks to threads and counters.
//!
//! A track of a thread becomes that thread. Any other track with slices becomes a thread row too. Its name includes
//! those of its parents below the process, and its id is negative because it is not a system thread. Tracks with
//! the same parent and name become one thread, as Perfetto draws them.

use super::limits::{MAX_PROCESSES, MAX_TRACKS};
use super::sequence::cut;
use super::translate::TraceReader;
use super::wire::{Fields, MalformedField};
use rpd_shard::WriteError;
use rpd_shard::model::row_types::{PmcKey, PmcRow, ThreadKey, ThreadRow, TrackKey, TrackRow, WholeNumber};
use std::collections::HashMap;

/// Maximum nesting depth of tracks.
const MAX_DEPTH: usize = 64;
/// Maximum length in bytes of a track's name including its parents' names.
const MAX_NAME: usize = 4096;

/// A thread of a descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadId {
    pub(super) pid: i32,
    tid: i32,
    name: Vec<u8>,
}

/// A counter of a descriptor.
#[derive(Clone, Debug, Default)]
struct CounterDescription {
    unit: Vec<u8>,
    multiplier: i64,
    is_incremental: bool,
    category: Vec<u8>,
}

/// The description of a track.
#[derive(Clone, Debug, Default)]
pub(super) struct TrackDescription {
    parent: Option<u64>,
    name: Vec<u8>,
    description: Vec<u8>,
    pub(super) process: Option<(i32, Vec<u8>)>,
    pub(super) thread: Option<ThreadId>,
    counter: Option<CounterDescription>,
}

impl TrackDescription {
    /// Reads a descriptor: the track's number, and its description.
    pub(super) fn read(descriptor: Fields<'_>) -> Result<(u64, TrackDescription), MalformedField> {
        let (mut uuid, mut read) = (0, TrackDescription::default());
        for field in descriptor {
            match field? {
                (1, number) => uuid = number.uint()?,
                (2 | 10 | 13, name) => read.name = short(name.bytes()?),
                (14, description) => read.description = short(description.bytes()?),
                (5, parent) => read.parent = Some(parent.uint()?).filter(|parent| *parent != 0),
                (3, process) => {
                    let (mut pid, mut name, mut command) = (0, Vec::new(), Vec::new());
                    for field in process.message()? {
                        match field? {
                            (1, id) => pid = id.int32()?,
                            (2, word) => {
                                command.extend_from_slice(if command.is_empty() { b"" } else { b" " });
                                command.extend_from_slice(word.bytes()?);
                            }
                            (6, text) => name = text.bytes()?.to_vec(),
                            _ => {}
                        }
                    }
                    let shown = if command.is_empty() { &name } else { &command };
                    read.process = Some((pid, short(shown)));
                }
                (4, thread) => {
                    let mut of = ThreadId::default();
                    for field in thread.message()? {
                        match field? {
                            (1, id) => of.pid = id.int32()?,
                            (2, id) => of.tid = id.int32()?,
                            (5, name) => of.name = short(name.bytes()?),
                            _ => {}
                        }
                    }
                    read.thread = Some(of);
                }
                (8, counter) => read.counter = Some(counter_of(counter.message()?)?),
                _ => {}
            }
        }
        Ok((uuid, read))
    }

    /// Adds the fields of a later descriptor.
    pub(super) fn update(&mut self, later: TrackDescription) {
        let text = |own: &mut Vec<u8>, later: Vec<u8>| {
            if !later.is_empty() {
                *own = later;
            }
        };
        text(&mut self.name, later.name);
        text(&mut self.description, later.description);
        self.parent = later.parent.or(self.parent);
        self.process = later.process.or(self.process.take());
        self.thread = later.thread.or(self.thread.take());
        self.counter = later.counter.or(self.counter.take());
    }
}

fn counter_of(counter: Fields<'_>) -> Result<CounterDescription, MalformedField> {
    let mut of = CounterDescription::default();
    for field in counter {
        match field? {
            (2, category) => of.category = short(category.bytes()?),
            (3, unit) if of.unit.is_empty() => {
                of.unit = match unit.uint()? {
                    1 => b"ns".to_vec(),
                    2 => b"count".to_vec(),
                    3 => b"bytes".to_vec(),
                    _ => Vec::new(),
                }
            }
            (4, multiplier) => of.multiplier = multiplier.int()?,
            (5, is) => of.is_incremental = is.uint()? != 0,
            (6, name) => of.unit = short(name.bytes()?),
            _ => {}
        }
    }
    Ok(of)
}

fn short(text: &[u8]) -> Vec<u8> {
    text.get(..MAX_NAME).unwrap_or(text).to_vec()
}

/// Returns the row of a counter. A track does not state which processor it belongs to.
fn pmc_row<'a>(name: &'a [u8], description: &'a [u8], unit: &'a [u8]) -> PmcRow<'a> {
    PmcRow {
        instance_id: Some(WholeNumber::Signed(0)),
        description: Some(description),
        component: Some(b"perfetto"),
        units: Some(unit),
        ..PmcRow::absolute(name, name)
    }
}

/// The process and thread of events on a track.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct TrackPlace {
    pub(super) source: u32,
    pub(super) thread: ThreadKey,
}

/// A counter.
#[derive(Clone, Debug)]
pub(super) struct TrackCounter {
    pub(super) source: u32,
    pub(super) pmc: PmcKey,
    pub(super) track: TrackKey,
    pub(super) multiplier: i64,
    pub(super) is_incremental: bool,
    pub(super) category: Vec<u8>,
}

/// A process of the file.
#[derive(Clone, Debug)]
pub(super) struct TraceProcess {
    pub(super) pid: i32,
    pub(super) command: Vec<u8>,
    /// First and last time in ns.
    pub(super) seen: Option<(i64, i64)>,
}

/// A thread: a system thread, or a track of another kind.
#[derive(Clone, PartialEq, Eq, Hash)]
enum ThreadName {
    Tid(i32),
    Track(Vec<u8>),
}

/// The tracks of a file, and their rows so far.
#[derive(Default)]
pub(super) struct TraceTracks {
    described: HashMap<u64, TrackDescription>,
    /// Processes by their number in the shard, from 1.
    pub(super) processes: Vec<TraceProcess>,
    places: HashMap<u64, TrackPlace>,
    threads: HashMap<(u32, ThreadName), ThreadKey>,
    /// Number of tracks per process that are not threads.
    others: HashMap<u32, i64>,
    counters: HashMap<u64, TrackCounter>,
    known_counters: HashMap<(u32, Vec<u8>), (PmcKey, TrackKey)>,
    samples: HashMap<(TrackPlace, Vec<u8>), TrackKey>,
}

impl TraceReader<'_> {
    /// Returns the process and thread for slices and instants of a track; `None` if there are too many tracks.
    pub(super) fn place(&mut self, uuid: u64) -> Result<Option<TrackPlace>, WriteError> {
        if let Some(place) = self.tracks.places.get(&uuid) {
            return Ok(Some(*place));
        }
        if self.tracks.places.len() >= MAX_TRACKS {
            return Ok(None);
        }
        let thread = self.tracks.described.get(&uuid).and_then(|described| described.thread.clone());
        let place = match thread {
            Some(thread) => {
                let Some(source) = self.tracks.source(Some(thread.pid)) else { return Ok(None) };
                let described = self.tracks.described.get(&uuid).map_or(&[][..], |described| &described.name);
                let name = if thread.name.is_empty() { described } else { &thread.name };
                let (key, name) = (ThreadName::Tid(thread.tid), name.to_vec());
                TrackPlace { source, thread: self.thread(source, key, thread.tid.into(), &name)? }
            }
            None => {
                let (pid, name) = self.tracks.path(uuid);
                let Some(source) = self.tracks.source(pid) else { return Ok(None) };
                let key = ThreadName::Track(name.clone());
                let number = -1 - self.tracks.others.get(&source).copied().unwrap_or(0);
                TrackPlace { source, thread: self.thread(source, key, number, &name)? }
            }
        };
        self.tracks.places.insert(uuid, place);
        Ok(Some(place))
    }

    /// Returns the thread with these ids, which may have no track.
    pub(super) fn thread_of(&mut self, pid: i32, tid: i32) -> Result<Option<TrackPlace>, WriteError> {
        if self.tracks.threads.len() >= MAX_TRACKS {
            return Ok(None);
        }
        let Some(source) = self.tracks.source(Some(pid)) else { return Ok(None) };
        let thread = self.thread(source, ThreadName::Tid(tid), tid.into(), b"")?;
        Ok(Some(TrackPlace { source, thread }))
    }

    /// Returns the counter of a track; `None` if there are too many.
    pub(super) fn counter(&mut self, uuid: u64) -> Result<Option<TrackCounter>, WriteError> {
        if let Some(counter) = self.tracks.counters.get(&uuid) {
            return Ok(Some(counter.clone()));
        }
        if self.tracks.counters.len() >= MAX_TRACKS {
            return Ok(None);
        }
        let (pid, mut name) = self.tracks.path(uuid);
        if name.is_empty() {
            name = format!("counter {uuid}").into_bytes();
        }
        let Some(source) = self.tracks.source(pid) else { return Ok(None) };
        let described = self.tracks.described.get(&uuid).cloned().unwrap_or_default();
        let of = described.counter.unwrap_or_default();
        let key = (source, name);
        let (pmc, track) = match self.tracks.known_counters.get(&key) {
            Some(known) => *known,
            None => {
                let name = &key.1;
                let pmc = self.output.row(source, &pmc_row(name, &described.description, &of.unit))?;
                let name_id = Some(self.output.string(name)?);
                let track = self.output.row(source, &TrackRow { tid: None, name_id, extdata: None })?;
                self.tracks.known_counters.insert(key, (pmc, track));
                (pmc, track)
            }
        };
        let CounterDescription { multiplier, is_incremental, category, .. } = of;
        let counter = TrackCounter { source, pmc, track, multiplier, is_incremental, category };
        self.tracks.counters.insert(uuid, counter.clone());
        Ok(Some(counter))
    }

    /// Returns the RocPD track for a thread's samples of one kind.
    pub(super) fn moments(&mut self, place: TrackPlace, name: &[u8]) -> Result<Option<TrackKey>, WriteError> {
        let key = (place, name.to_vec());
        if let Some(track) = self.tracks.samples.get(&key) {
            return Ok(Some(*track));
        }
        if self.tracks.samples.len() >= MAX_TRACKS {
            return Ok(None);
        }
        let name_id = Some(self.output.string(name)?);
        let row = TrackRow { tid: Some(place.thread), name_id, extdata: None };
        let track = self.output.row(place.source, &row)?;
        self.tracks.samples.insert(key, track);
        Ok(Some(track))
    }

    fn thread(
        &mut self,
        source: u32,
        key: ThreadName,
        tid: i64,
        name: &[u8],
    ) -> Result<ThreadKey, WriteError> {
        let is_track = matches!(key, ThreadName::Track(_));
        let key = (source, key);
        if let Some(thread) = self.tracks.threads.get(&key) {
            return Ok(*thread);
        }
        *self.tracks.others.entry(source).or_default() += i64::from(is_track);
        let name = (!name.is_empty()).then(|| cut(name));
        let row = ThreadRow { ppid: None, tid: tid.into(), name, start: None, end: None, extdata: None };
        let thread = self.output.row(source, &row)?;
        self.tracks.threads.insert(key, thread);
        Ok(thread)
    }
}

impl TraceTracks {
    pub(super) fn new(
        described: HashMap<u64, TrackDescription>,
        processes: Vec<(i32, Vec<u8>)>,
    ) -> TraceTracks {
        let found = |(pid, command)| TraceProcess { pid, command, seen: None };
        let processes = processes.into_iter().map(found).collect();
        TraceTracks { described, processes, ..TraceTracks::default() }
    }

    /// Extends the time range of a process by this time.
    pub(super) fn seen(&mut self, source: u32, at: i64) {
        if let Some(found) = self.processes.get_mut(source as usize - 1) {
            let (first, last) = found.seen.unwrap_or((at, at));
            found.seen = Some((first.min(at), last.max(at)));
        }
    }

    /// Returns the process id of a track, and its name preceded by those of the tracks between them.
    fn path(&self, uuid: u64) -> (Option<i32>, Vec<u8>) {
        let (mut pid, mut names, mut next) = (None, Vec::new(), Some(uuid));
        for depth in 0..MAX_DEPTH {
            let Some(described) = next.and_then(|uuid| self.described.get(&uuid)) else { break };
            let of_process = described.process.as_ref().map(|(pid, _)| *pid);
            let of_thread = described.thread.as_ref().map(|thread| thread.pid);
            pid = of_thread.or(of_process);
            if of_process.is_none() || depth == 0 {
                let thread = described.thread.as_ref().map_or(&[][..], |thread| &thread.name);
                let name = if described.name.is_empty() { thread } else { &described.name[..] };
                let process = described.process.as_ref().map_or(&[][..], |(_, name)| name);
                names.push(if name.is_empty() { process } else { name });
            }
            if pid.is_some() {
                break;
            }
            next = described.parent;
        }
        names.retain(|name| !name.is_empty());
        names.reverse();
        (pid, short(&names.join(&b" / "[..])))
    }

    /// Returns the process with this id. A track without a process belongs to the only process, or to one with id
    /// 0.
    fn source(&mut self, pid: Option<i32>) -> Option<u32> {
        let pid = match (pid, &self.processes[..]) {
            (None, [only]) => only.pid,
            (pid, _) => pid.unwrap_or(0),
        };
        let known = self.processes.iter().position(|found| found.pid == pid);
        let place = match known {
            Some(place) => place,
            None if self.processes.len() >= MAX_PROCESSES => return None,
            None => {
                self.processes.push(TraceProcess { pid, command: Vec::new(), seen: None });
                self.processes.len() - 1
            }
        };
        Some(place as u32 + 1)
    }
}
