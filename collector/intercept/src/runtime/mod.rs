//! What an event of the program needs whatever it calls: the ring of its thread, which process this is, and the way to the
//! collector.
//!
//! Nothing here knows a library that is intercepted.

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
pub(crate) mod unrecorded;
