//! The contract between `librpd_intercept.so` (producer) and `rpd-collect` (consumer): one shared memory ring
//! per traced thread, sent over a Unix socket.
//!
//! ```text
//! memfd of one thread
//! +--------------------+ 0
//! | header, one page   |   thread, head, counters, segment states     layout, header, segments
//! +--------------------+ 4096
//! | identity           |   command line and environment               identity
//! +--------------------+ 4096 + identity_bytes
//! | segments           |   records of any number of bytes              segments, record
//! +--------------------+ 4096 + identity_bytes + ring_bytes
//! ```
//!
//! Both sides access the memory only as `AtomicU64` words, so that a misbehaving writer can cause wrong
//! values, but never undefined behaviour in the reader. The producer writes a record with relaxed stores and
//! publishes it by storing `head` with release order. The consumer loads `head` with acquire order, reads,
//! and returns each segment that it has read. The producer takes further segments meanwhile, as long as the limits of the
//! process allow, and never waits for the consumer. The consumer may sleep; then the producer wakes it after each part of
//! the ring: see [`wakeup`].
//!
//! The content is a log, not a set of rows: the consumer pairs start records with end records, so that the log alone shows
//! what was open when a thread died.
//!
//! TRIPWIRE: both sides come from one build, and the consumer checks [`layout::VERSION`]. Change it with any
//! change of layout, record or message.

mod consumer;
mod functions;
mod futex;
pub mod header;
pub mod identity;
pub mod layout;
pub mod memory;
pub mod message;
pub mod mpi;
mod name_slots;
mod producer;
pub mod rccl;
pub mod record;
mod record_reader;
mod record_space;
mod record_words;
mod segment_queue;
mod segments;
pub mod ticks;
pub mod wakeup;

pub use consumer::{BadRecord, DrainProgress, PublishedRecords, RingConsumer};
pub use producer::RingProducer;
pub use record_space::GrowRing;
