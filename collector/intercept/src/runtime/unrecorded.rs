//! Counts events of threads without a ring, for the whole process.

use crate::runtime::generation;
use std::sync::atomic::Ordering::Relaxed;

/// Counts events of a thread without a ring.
pub(crate) fn count_unrecorded(events: u64) {
    if let Some(page) = generation::page() {
        page.unrecorded.fetch_add(events, Relaxed);
        page.untraced.store(true, Relaxed);
    }
}

/// Takes the number of events that no ring has counted.
pub(crate) fn take_unrecorded() -> u64 {
    generation::page().map_or(0, |page| page.unrecorded.swap(0, Relaxed))
}

/// Takes the events that no ring has counted, for the report at the end of the process. `None` if all threads
/// had rings.
pub(crate) fn last_unrecorded() -> Option<u64> {
    generation::page()?.untraced.swap(false, Relaxed).then(take_unrecorded)
}
