use crate::sequence::Sequence;
use crate::text::{MendedText, text};
use crate::wire::{int, message, packet, uint};

/// The number of a track, unique in all files of a run. 0 represents the whole trace; small ones take fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u64);

/// What a track is, to be written before its events, in each file again.
#[derive(Clone, Copy, Debug)]
pub struct Track<'a> {
    /// Its number.
    pub id: TrackId,
    /// The track that it is drawn below.
    pub parent: Option<TrackId>,
    /// Its name. Tracks with the same parent and the same name are drawn as one with several rows: so lanes are made.
    pub name: &'a str,
    /// What is on it.
    pub kind: TrackKind<'a>,
    /// How its children are ordered.
    pub children: ChildOrder,
    /// Its place among the children of its parent, if these are ordered by rank.
    pub rank: Option<i32>,
    /// Further description. Readers before Perfetto v50 ignore it; of a process it is a label, too, which all
    /// of them know.
    pub description: Option<&'a str>,
}

impl<'a> Track<'a> {
    /// A track for slices, without a parent.
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

/// What is on a track.
#[derive(Clone, Copy, Debug)]
pub enum TrackKind<'a> {
    /// Slices and instants that belong to no thread.
    Slices,
    /// Those of a process as a whole; threads with the same pid are drawn below it.
    Process {
        /// Its number, unique in the trace and not 0: processes with the same one melt together.
        pid: i32,
    },
    /// Those of a thread.
    Thread(Thread),
    /// Values of a counter.
    Counter(Unit<'a>),
}

/// A thread. Its tid must be unique in the trace, and not 0: threads with the same tid melt together.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Number of its process.
    pub pid: i32,
    /// Its number. The thread with the number of its process is its main thread.
    pub tid: i32,
}

/// How the children of a track are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildOrder {
    /// As the reader likes.
    #[default]
    Unspecified,
    /// By name.
    Name,
    /// By their first event.
    Time,
    /// By [`Track::rank`].
    Rank,
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// None.
    None,
    /// Nanoseconds.
    Nanoseconds,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Another unit, as text: `MHz`.
    Named(&'a str),
}

impl Sequence {
    /// Writes what a track is.
    pub fn track(&mut self, track: &Track<'_>) {
        self.packet(|out, mended| {
            message(out, packet::TRACK_DESCRIPTOR, |out| {
                uint(out, 1, track.id.0);
                text(out, 2, track.name, mended);
                if let Some(parent) = track.parent {
                    uint(out, 5, parent.0);
                }
                match &track.kind {
                    TrackKind::Slices => {}
                    TrackKind::Process { pid } => message(out, 3, |out| {
                        int(out, 1, (*pid).into());
                        text(out, 6, track.name, mended);
                        if let Some(description) = track.description {
                            // Counted below.
                            text(out, 8, description, &mut MendedText::default());
                        }
                    }),
                    TrackKind::Thread(thread) => message(out, 4, |out| {
                        int(out, 1, thread.pid.into());
                        int(out, 2, thread.tid.into());
                        text(out, 5, track.name, mended);
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
