//! The tracks of a unit, in drawing order.

use super::JobRows;
use super::placement::{MemoryLevel, NO_PROCESS, TrackKey, TrackPlace};
use crate::item::{DrawnTrack, TrackKind, UnitLayout, unnamed_thread};
use crate::track_numbers::is_system_id;
use rpd_perfetto::Overlaps;
use rpd_run::{ComputeAgent, ProcessIdentity, RowUnit, RunProcess, RunStrings, UnitNames};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of characters in the name of a track of samples.
const MAX_TRACK_NAME_CHARS: usize = 256;

/// Creates the processes and tracks that the rows need.
pub(super) fn lay_out_tracks(
    job: &JobRows,
    unit: &RowUnit,
    names: &UnitNames,
    keys: &BTreeSet<TrackKey>,
    layout: &mut UnitLayout,
) {
    let by_queue = job.selection.group_by_queue;
    let mut used: BTreeSet<u32> = keys.iter().map(|(process, _)| *process).collect();
    // A process without rows is also drawn, in its own unit.
    used.extend(unit.processes.first().filter(|_| !unit.is_unclaimed));
    let mut used: Vec<(ProcessIdentity, u32)> =
        used.into_iter().map(|place| (process_identity(&job.run.processes, place), place)).collect();
    used.sort_by_key(|(drawn, _)| drawn.order);
    for (drawn, place) in used {
        let own =
            keys.range((place, TrackPlace::Thread(None))..).take_while(|(process, _)| *process == place);
        let mut tracks =
            Tracks { names, strings: &job.run.strings, by_queue, groups: BTreeMap::new(), layout, order: 0 };
        tracks.layout.processes.push(drawn);
        let mut own: Vec<TrackKey> = own.copied().collect();
        own.sort_by_key(|(_, place)| tracks.order_of(*place));
        for key in own {
            tracks.add_track(key);
        }
    }
}

fn process_identity(processes: &[RunProcess], place: u32) -> ProcessIdentity {
    let known = processes.get(place as usize).map(|process| process.info.clone());
    known.unwrap_or_else(|| ProcessIdentity {
        name: "unknown process".to_owned(),
        order: (NO_PROCESS, NO_PROCESS, i64::MAX),
        pid: 0,
        host: String::new(),
        rank: None,
        id: 0,
    })
}

/// Sort key of a track below its process.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    section: u8,
    kind: u8,
    number: i64,
    agent: Option<u32>,
    class: u8,
    within: i64,
    place: TrackPlace,
}

/// The tracks of one process.
struct Tracks<'a> {
    names: &'a UnitNames,
    strings: &'a RunStrings,
    by_queue: bool,
    /// Track of the group of each agent.
    groups: BTreeMap<Option<u32>, u32>,
    layout: &'a mut UnitLayout,
    /// Order of the next track.
    order: i32,
}

impl Tracks<'_> {
    fn agent(&self, place: Option<u32>) -> Option<&ComputeAgent> {
        self.names.agents.at(place)
    }

    /// Returns the agent below which a track is drawn; `None` for a track directly below the process.
    fn group_of(&self, place: TrackPlace) -> Option<Option<u32>> {
        match place {
            TrackPlace::Thread(_) | TrackPlace::Moments(_) => None,
            TrackPlace::Lane(agent, _) => Some(agent),
            // Rows of freed memory have no agent.
            TrackPlace::Copies(agent) | TrackPlace::Allocations(agent) | TrackPlace::Sum(agent, _) => {
                Some(agent).filter(Option::is_some)
            }
            TrackPlace::Counter(counter) => {
                let agent = self.names.agents.place(self.names.counters.at(counter)?.agent);
                Some(agent).filter(|agent| self.agent(*agent).is_some_and(|agent| agent.is_gpu))
            }
        }
    }

    /// Returns the order: threads first, starting with the main thread; then agents with their tracks.
    fn order_of(&self, place: TrackPlace) -> Order {
        let group = self.group_of(place);
        let (section, kind, number) = match group {
            None => (u8::from(!matches!(place, TrackPlace::Thread(_))), 0, 0),
            Some(agent) => {
                let agent = self.agent(agent);
                let number = agent.and_then(|agent| agent.number).unwrap_or(i64::MAX);
                (2, u8::from(!agent.is_some_and(|agent| agent.is_gpu)), number)
            }
        };
        let lanes = self.names.lanes(self.by_queue);
        let class = match place {
            TrackPlace::Thread(_) | TrackPlace::Moments(_) | TrackPlace::Lane(..) => 0,
            TrackPlace::Copies(_) => 1,
            TrackPlace::Allocations(_) => 2,
            TrackPlace::Sum(..) => 3,
            TrackPlace::Counter(_) => 4,
        };
        let within = match place {
            TrackPlace::Thread(thread) => {
                let tid = self.names.threads.at(thread).map(|thread| thread.tid);
                let main = self.layout.processes.last().map(|process| process.pid);
                i64::from(tid.is_none() || tid != main)
            }
            TrackPlace::Lane(_, lane) => lanes.at(lane).map_or(i64::MAX, |lane| lane.handle),
            _ => 0,
        };
        Order { section, kind, number, agent: group.flatten(), class, within, place }
    }

    fn add_track(&mut self, key: TrackKey) {
        let (_, place) = key;
        let parent = self.group_of(place).map(|agent| self.agent_group(agent));
        let (mut name, kind, description) = self.describe_track(place);
        // Readers also show a track without its parent, for example where it is pinned.
        if let Some(agent) = self.group_of(place).and_then(|agent| self.agent(agent)) {
            name = format!("{} {name}", agent.short_label());
        }
        let place = self.push_track(parent, name, kind, description);
        self.layout.seen.tracks.insert(key, place);
    }

    /// Returns the group of an agent and creates it if needed.
    fn agent_group(&mut self, place: Option<u32>) -> u32 {
        if let Some(group) = self.groups.get(&place) {
            return *group;
        }
        let agent = self.agent(place);
        let name = agent.map_or_else(|| "unknown agent".to_owned(), ComputeAgent::label);
        let model = agent.map(|agent| agent.model.clone()).filter(|model| !model.is_empty());
        let group = self.push_track(None, name, TrackKind::Group, model);
        self.groups.insert(place, group);
        group
    }

    fn push_track(
        &mut self,
        parent: Option<u32>,
        name: String,
        kind: TrackKind,
        description: Option<String>,
    ) -> u32 {
        let process = self.layout.processes.len() as u32 - 1;
        let place = self.layout.tracks.len() as u32;
        self.order = self.order.saturating_add(1);
        self.layout.tracks.push(DrawnTrack { process, parent, name, kind, order: self.order, description });
        place
    }

    /// Returns name, kind and description of a track.
    fn describe_track(&self, place: TrackPlace) -> (String, TrackKind, Option<String>) {
        let non_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let counter = |unit: &str| TrackKind::Counter { unit: unit.to_owned() };
        let plain = |name: &str, overlaps| (name.to_owned(), TrackKind::Slices(overlaps), None);
        match place {
            TrackPlace::Thread(thread) => match self.names.threads.at(thread) {
                // Readers of files without threads make up such numbers.
                Some(thread) if !is_system_id(thread.tid) && !thread.name.is_empty() => {
                    plain(&thread.name, Overlaps::Nest)
                }
                Some(thread) => {
                    let name = non_empty(own_name(&thread.name, thread.tid));
                    let name = name.unwrap_or_else(|| unnamed_thread(thread.tid));
                    (name, TrackKind::Thread { tid: thread.tid }, None)
                }
                None => plain("unknown thread", Overlaps::Nest),
            },
            TrackPlace::Moments(track) => {
                let name = self.names.tracks.at(track).and_then(|track| self.strings.get(track.name?));
                let name = name.map(|name| name.chars().take(MAX_TRACK_NAME_CHARS).collect::<String>());
                plain(name.filter(|name| !name.is_empty()).as_deref().unwrap_or("samples"), Overlaps::Nest)
            }
            TrackPlace::Lane(_, lane) => {
                let unknown = if self.by_queue { "unknown queue" } else { "unknown stream" };
                let lane = self.names.lanes(self.by_queue).at(lane);
                plain(lane.map_or(unknown, |lane| &lane.name), Overlaps::Separate)
            }
            TrackPlace::Copies(_) => plain("copies", Overlaps::Separate),
            TrackPlace::Allocations(_) => plain("allocations", Overlaps::Separate),
            TrackPlace::Sum(_, level) => {
                let name = match level {
                    MemoryLevel::Real => "memory allocated",
                    MemoryLevel::Virtual => "virtual memory allocated",
                    MemoryLevel::Scratch => "scratch memory allocated",
                };
                (name.to_owned(), counter("bytes"), None)
            }
            TrackPlace::Counter(place) => match self.names.counters.at(place) {
                Some(found) => {
                    let unit = if found.unit == "B" { "bytes" } else { &found.unit };
                    (found.name.clone(), counter(unit), non_empty(&found.description))
                }
                None => ("unknown counter".to_owned(), counter(""), None),
            },
        }
    }
}

/// Returns the name of a thread without its number, which readers show themselves: `python` for `thread 21966 (python)`,
/// as the PyTorch profiler writes it.
fn own_name(name: &str, tid: i64) -> &str {
    let inner = name.strip_prefix(&format!("thread {tid} (")).and_then(|rest| rest.strip_suffix(')'));
    inner.filter(|inner| !inner.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_threads_do_not_repeat_their_number() {
        for (name, wanted) in [
            ("thread 7 (python)", "python"),
            ("thread 7 (pt (main))", "pt (main)"),
            ("thread 8 (python)", "thread 8 (python)"),
            ("thread 7 ()", "thread 7 ()"),
            ("autograd", "autograd"),
        ] {
            assert_eq!(own_name(name, 7), wanted);
        }
    }
}
