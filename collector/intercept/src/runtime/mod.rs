//! Everything that an event needs, whatever function the program calls: the ring of its thread, the detection
//! of forks, and the connection to the collector.
//!
//! This room knows no intercepted library.

pub(crate) mod budget;
pub(crate) mod cancellation;
pub(crate) mod clock;
pub(crate) mod errno;
pub(crate) mod generation;
pub(crate) mod handover;
pub(crate) mod process;
pub(crate) mod scratch;
pub(crate) mod settings;
pub(crate) mod thread;
pub(crate) mod thread_place;
pub(crate) mod unrecorded;
