//! The contract between `librpd_intercept.so` (producer) and `rpd-collect` (consumer): one shared
//! memory ring per traced thread, handed over a Unix socket.
//!
//! ```text
//! memfd of one thread
//! +--------------------+ 0
//! | header, one page   |   who, head, tail, counters                  layout, header
//! +--------------------+ 4096
//! | identity           |   command line and environment               identity
//! +--------------------+ 4096 + identity_bytes
//! | ring               |   records, 16-byte aligned, oldest at tail   record
//! +--------------------+ 4096 + identity_bytes + ring_bytes
//! ```
//!
//! The memory is only ever touched as `AtomicU64` words, so that a writer that misbehaves can give
//! wrong numbers, but never undefined behaviour in the reader. The producer writes a record with
//! relaxed stores and publishes it by storing `head` with release order; the consumer loads `head`
//! with acquire order, reads, and hands the space back by storing `tail` with release order.
//! The producer never waits for the consumer. The consumer may sleep, and then the producer wakes it
//! when an eighth of the ring was written: see [`wakeup`].
//!
//! The content is a log, not a set of rows: the consumer pairs begin and end itself, so that what
//! was open at the death of a thread is known from the log alone.
//!
//! TRIPWIRE: both sides come from one build, and [`layout::VERSION`] is checked on arrival. Change
//! it with any change of layout, record or message.

mod consumer;
mod futex;
pub mod header;
pub mod identity;
pub mod layout;
pub mod memory;
pub mod message;
pub mod mpi;
mod producer;
pub mod rccl;
pub mod record;
pub mod wakeup;

pub use consumer::{BadRecord, DrainProgress, RingConsumer};
pub use producer::RingProducer;
