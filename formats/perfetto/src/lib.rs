//! Writes Perfetto traces in bulk, and reads Perfetto traces as shards.
//!
//! * [`Sequence`] writes the packets of one process and one file: tracks, interned texts, slices, instants, counters,
//!   samples;
//! * [`file_head`] returns the start of a file; [`gzip_piece`] compresses a piece of a gzip file; [`packed`]
//!   compresses packets into packets;
//! * [`Timeline`] converts spans to beginnings and ends in the order that a track requires. It assigns lanes to
//!   overlapping spans and cuts spans where a file ends;
//! * [`read`] converts a trace of any writer to a shard;
//! * [`Timestamp`], [`Span`] and [`Window`] are checked when they are created, so that later steps cannot fail.
//!
//! A trace is only a sequence of packets: any concatenation of pieces is a trace. `docs/FORMATS.md` has the rules
//! that readers depend on.
//!
//! ```
//! use rpd_perfetto::{Event, Sequence, StringId, Timestamp, Track, TrackId, TrackKind, file_head};
//! use std::num::NonZeroU32;
//!
//! let begin = Timestamp::new(1_000)?;
//! let mut file = file_head(begin, Some(1_700_000_000_000_001_000));
//! let mut sequence = Sequence::new(NonZeroU32::MIN);
//! let process = TrackId(1);
//! sequence.track(&Track { kind: TrackKind::Process { pid: 1 }, ..Track::new(process, "rank 0 (node7)") });
//! let name = sequence.event_name(StringId(12), || "step");
//! sequence.begin(&Event::new(begin, process, name));
//! sequence.end(Timestamp::new(3_000)?, process);
//! file.extend_from_slice(sequence.packets());
//! # Ok::<(), rpd_perfetto::NoTimestamp>(())
//! ```

mod event;
mod gzip;
mod head;
mod iids;
mod lanes;
mod packed;
pub mod read;
mod sample;
mod sequence;
mod text;
mod time;
mod timeline;
mod track;
mod wire;

pub use event::{Annotation, CounterValue, Event, Flow, Value};
pub use gzip::{Checksum, GZIP_HEAD, gunzip_start, gzip_piece, gzip_tail};
pub use head::{MAX_HEAD, file_head, is_file_head};
pub use iids::StringId;
pub use lanes::Overlaps;
pub use packed::packed;
pub use sample::{CallStack, Frame, Mapping, StackId};
pub use sequence::{AnnotationName, AnnotationText, Category, EventName, Sequence};
pub use text::{MAX_TEXT, MendedText};
pub use time::{Clipped, Cut, EmptyWindow, NegativeDuration, NoTimestamp, Span, Timestamp, Window};
pub use timeline::{Edge, MisplacedSpan, Timeline};
pub use track::{ChildOrder, Thread, Track, TrackId, TrackKind, Unit};
