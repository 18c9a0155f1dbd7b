//! The list of recorded threads, for the thread that samples their CPU time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A thread whose events are recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordedThread {
    /// Number that no other thread of the run has had.
    pub(crate) number: u64,
    /// Number of its process in the shard.
    pub(crate) source: u32,
    /// Key of its row in the shard, among the threads of its process.
    pub(crate) key: i64,
    /// Process id and thread id, as this process sees them.
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    /// Name of the thread.
    pub(crate) name: Box<str>,
}

/// The threads that are recorded at the moment. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct RecordedThreads(Arc<Mutex<ThreadList>>);

#[derive(Debug, Default)]
struct ThreadList {
    /// Threads that have entered so far.
    entered: u64,
    /// Changes of `published`.
    changes: u64,
    published: Vec<RecordedThread>,
    /// A process of another namespace was seen, whose threads are not on the list.
    has_far_process: bool,
    /// Threads whose rows are not sent yet.
    unpublished: Vec<RecordedThread>,
}

impl RecordedThreads {
    fn lock(&self) -> MutexGuard<'_, ThreadList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread to those that [`RecordedThreads::publish`] makes visible: of process `source`, with the key of its
    /// row. Returns its number.
    pub(super) fn enter(&self, source: u32, key: i64, pid: i32, tid: i32, name: Box<str>) -> u64 {
        let mut list = self.lock();
        list.entered += 1;
        let number = list.entered;
        list.unpublished.push(RecordedThread { number, source, key, pid, tid, name });
        number
    }

    /// Notes a process whose threads cannot be on the list, as its ids or times are those of another namespace.
    pub(super) fn note_far_process(&self) {
        let mut list = self.lock();
        list.changes += u64::from(!std::mem::replace(&mut list.has_far_process, true));
    }

    /// Returns whether there was a process whose threads cannot be on the list.
    pub(crate) fn has_far_process(&self) -> bool {
        self.lock().has_far_process
    }

    /// Makes the threads visible whose rows are in the queue to the shard by now: rows that refer to them may follow.
    pub(super) fn publish(&self) {
        let mut list = self.lock();
        if !list.unpublished.is_empty() {
            let entered = std::mem::take(&mut list.unpublished);
            list.published.extend(entered);
            list.changes += 1;
        }
    }

    /// Removes a thread, which is no longer recorded.
    pub(super) fn leave(&self, number: u64) {
        let mut list = self.lock();
        list.unpublished.retain(|thread| thread.number != number);
        if let Some(place) = list.published.iter().position(|thread| thread.number == number) {
            list.published.swap_remove(place);
            list.changes += 1;
        }
    }

    /// Returns the visible threads, if they have changed since the state `seen`, which is 0 at the start. Updates it.
    pub(crate) fn changed_since(&self, seen: &mut u64) -> Option<Vec<RecordedThread>> {
        let list = self.lock();
        if std::mem::replace(seen, list.changes) == list.changes {
            return None;
        }
        Some(list.published.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_visible_from_its_row_to_its_end() {
        let (threads, mut seen) = (RecordedThreads::default(), 0);
        let first = threads.enter(1, 1, 7, 7, "main".into());
        let second = threads.enter(1, 2, 7, 8, "worker".into());
        assert_eq!(threads.changed_since(&mut seen), None);
        threads.leave(second);
        threads.publish();
        let visible = threads.changed_since(&mut seen).unwrap();
        assert_eq!(
            visible.iter().map(|thread| (thread.number, thread.tid)).collect::<Vec<_>>(),
            [(first, 7)]
        );
        threads.publish();
        assert_eq!(threads.changed_since(&mut seen), None);
        threads.leave(first);
        assert_eq!(threads.changed_since(&mut seen), Some(Vec::new()));
        assert_eq!(threads.changed_since(&mut seen), None);
    }
}
