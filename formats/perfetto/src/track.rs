use crate::sequence::Sequence;
use crate::text::{MendedText, text};
use crate::wire::{int, message, packet, uint};

/// The number of a track, unique in all files of a run. 0 is the whole trace; small numbers take fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u64);

impl TrackId {
    /// The track of a note about the file. Its events are no part of the run, so [`crate::read`] skips them.
    pub const FILE_NOTE: TrackId = TrackId(u64::MAX - 1);
}

/// A description of a track. Each file must contain it before the events of the track.
#[derive(Clone, Copy, Debug)]
pub struct Track<'a> {
    /// Number of the track.
    pub id: TrackId,
    /// The track below which this one is drawn.
    pub parent: Option<TrackId>,
    /// Name of the track; empty for none. Readers draw tracks with the same parent and name as one track with several
    /// rows, which serve as lanes.
    pub name: &'a str,
    /// Kind of the events on the track.
    pub kind: TrackKind<'a>,
    /// Order of the track's children.
    pub children: ChildOrder,
    /// Position among the children of the parent, if these are ordered by rank.
    pub rank: Option<i32>,
    /// Further description. Readers before Perfetto v50 ignore it. For a process it is also written as a label,
    /// which all readers support.
    pub description: Option<&'a str>,
}

impl<'a> Track<'a> {
    /// Creates a track for slices, without a parent.
    pub const fn new(id: TrackId, name: &'a str) -> Track<'a> {
        Track {
            id,
            parent: None,
            name,
            kind: TrackKind::Slices,
            children: ChildOrder::Unspecified,
            rank: None,
            description: None,
        }
    }
}

/// The kind of events on a track.
#[derive(Clone, Copy, Debug)]
pub enum TrackKind<'a> {
    /// Slices and instants that belong to no thread.
    Slices,
    /// Slices and instants of a process as a whole. Threads with the same pid are drawn below it.
    Process {
        /// Process number, unique in the trace and not 0: readers combine processes with the same number.
        pid: i32,
    },
    /// Slices and instants of a thread.
    Thread(Thread),
    /// Values of a counter.
    Counter(Unit<'a>),
}

/// A thread. Its tid must be unique in the trace, and not 0: readers combine threads with the same tid.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Number of the process.
    pub pid: i32,
    /// Number of the thread. The thread with the number of its process is the main thread.
    pub tid: i32,
}

/// The order of a track's children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildOrder {
    /// The reader chooses.
    #[default]
    Unspecified,
    /// By name.
    Name,
    /// By first event.
    Time,
    /// By [`Track::rank`].
    Rank,
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// No unit.
    None,
    /// Nanoseconds.
    Nanoseconds,
    /// A count.
    Count,
    /// Bytes.
    Bytes,
    /// Another unit as text, for example `MHz`.
    Named(&'a str),
}

impl Sequence {
    /// Writes the description of a track.
    pub fn track(&mut self, track: &Track<'_>) {
        self.packet(|out, mended| {
            message(out, packet::TRACK_DESCRIPTOR, |out| {
                uint(out, 1, track.id.0);
                if !track.name.is_empty() {
                    text(out, 2, track.name, mended);
                }
                if let Some(parent) = track.parent {
                    uint(out, 5, parent.0);
                }
                match &track.kind {
                    TrackKind::Slices => {}
                    TrackKind::Process { pid } => message(out, 3, |out| {
                        int(out, 1, (*pid).into());
                        text(out, 6, track.name, mended);
                        if let Some(description) = track.description {
                            // The description is written again below, where its changes are counted.
                            text(out, 8, description, &mut MendedText::default());
                        }
                    }),
                    TrackKind::Thread(thread) => message(out, 4, |out| {
                        int(out, 1, thread.pid.into());
                        int(out, 2, thread.tid.into());
                        if !track.name.is_empty() {
                            text(out, 5, track.name, mended);
                        }
                    }),
                    TrackKind::Counter(unit) => message(out, 8, |out| match unit {
                        Unit::None => {}
                        Unit::Nanoseconds => uint(out, 3, 1),
                        Unit::Count => uint(out, 3, 2),
                        Unit::Bytes => uint(out, 3, 3),
                        Unit::Named(name) => text(out, 6, name, mended),
                    }),
                }
                let order = match track.children {
                    ChildOrder::Unspecified => None,
                    ChildOrder::Name => Some(1),
                    ChildOrder::Time => Some(2),
                    ChildOrder::Rank => Some(3),
                };
                if let Some(order) = order {
                    uint(out, 11, order);
                }
                if let Some(rank) = track.rank {
                    int(out, 12, rank.into());
                }
                if let Some(description) = track.description {
                    text(out, 14, description, mended);
                }
            });
        });
    }
}
