//! Batches on their way from the collecting to the writing thread, bounded by their bytes.

use super::rows::{EventSpan, OutputBatch, OutputItem};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that wait for a file system that stalls, give or take a batch. Then rings fill up, and what
/// they drop is counted there.
const QUEUE_BYTES: usize = 12 << 20;
/// Bytes of a full batch, give or take texts.
const FULL_BYTES: usize =
    OutputBatch::FULL * size_of::<OutputItem>() + OutputBatch::FULL_RANGES * size_of::<EventSpan>();
/// Empty batches that are kept for their memory.
const EMPTY_BATCHES: usize = 2;

struct State {
    /// Most bytes that wait.
    limit: usize,
    /// With the bytes of each.
    waiting: VecDeque<(OutputBatch, usize)>,
    bytes: usize,
    empty: Vec<OutputBatch>,
    /// One of the two sides is gone.
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and puts a batch in; gives it back if nobody takes batches any more.
    fn put(&self, batch: OutputBatch) -> (MutexGuard<'_, State>, Result<(), OutputBatch>) {
        let bytes = bytes_of(&batch);
        let mut state = self.lock();
        while !state.has_room(bytes) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let put = state.put(batch, bytes);
        (state, put)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn has_room(&self, bytes: usize) -> bool {
        self.closed || self.bytes == 0 || self.bytes + bytes <= self.limit
    }

    fn put(&mut self, batch: OutputBatch, bytes: usize) -> Result<(), OutputBatch> {
        if self.closed {
            return Err(batch);
        }
        self.bytes += bytes;
        self.waiting.push_back((batch, bytes));
        Ok(())
    }
}

/// The side that gives.
pub(super) struct BatchSender(Arc<Shared>);

/// A second one that gives. Its end is not the end of the queue.
#[derive(Clone)]
pub(super) struct SideSender(Arc<Shared>);

/// The side that takes.
pub(super) struct BatchReceiver(Arc<Shared>);

/// What [`BatchReceiver::receive`] found.
pub(super) enum ReceivedBatch {
    Batch(OutputBatch),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come.
    Closed,
}

pub(super) fn queue() -> (BatchSender, BatchReceiver) {
    with_limit(QUEUE_BYTES)
}

/// A queue in which at most so many bytes wait, or one batch.
pub(super) fn with_limit(limit: usize) -> (BatchSender, BatchReceiver) {
    let state = State { limit, waiting: VecDeque::new(), bytes: 0, empty: Vec::new(), closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (BatchSender(Arc::clone(&shared)), BatchReceiver(shared))
}

impl BatchSender {
    /// Hands a batch over and gets an empty one. Waits while too much is waiting. If nobody takes
    /// batches any more, it is lost.
    pub(super) fn send(&self, batch: OutputBatch) -> OutputBatch {
        let (mut state, _) = self.0.put(batch);
        let empty = state.empty.pop();
        drop(state);
        self.0.changed.notify_all();
        empty.unwrap_or_default()
    }

    /// Another way into the queue.
    pub(super) fn side(&self) -> SideSender {
        SideSender(Arc::clone(&self.0))
    }
}

impl SideSender {
    /// Hands a batch over if there is room, or gives it back.
    pub(super) fn try_send(&self, batch: OutputBatch) -> Result<(), OutputBatch> {
        let bytes = bytes_of(&batch);
        let mut state = self.0.lock();
        if !state.has_room(bytes) {
            return Err(batch);
        }
        let put = state.put(batch, bytes);
        drop(state);
        self.0.changed.notify_all();
        put
    }

    /// Waits for room; gives the batch back if nobody takes batches any more.
    pub(super) fn send(&self, batch: OutputBatch) -> Result<(), OutputBatch> {
        let (state, put) = self.0.put(batch);
        drop(state);
        self.0.changed.notify_all();
        put
    }
}

impl BatchReceiver {
    /// Takes the next batch; waits for one at most this long.
    pub(super) fn receive(&self, wait: Duration) -> ReceivedBatch {
        let nothing = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let state = self.0.changed.wait_timeout_while(self.0.lock(), wait, nothing);
        let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
        match state.waiting.pop_front() {
            Some((batch, bytes)) => {
                state.bytes -= bytes;
                drop(state);
                self.0.changed.notify_all();
                ReceivedBatch::Batch(batch)
            }
            None if state.closed => ReceivedBatch::Closed,
            None => ReceivedBatch::Nothing,
        }
    }

    /// Gives a batch back for its memory.
    pub(super) fn give_back(&self, mut batch: OutputBatch) {
        batch.clear();
        let mut state = self.0.lock();
        if state.empty.len() < EMPTY_BATCHES && bytes_of(&batch) <= 2 * FULL_BYTES {
            state.empty.push(batch);
        }
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for BatchReceiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Bytes in memory. Process records are few.
fn bytes_of(batch: &OutputBatch) -> usize {
    let text = |item: &OutputItem| match item {
        OutputItem::Name(text) => text.len(),
        OutputItem::Thread { name, .. } => name.len(),
        _ => 0,
    };
    let fixed =
        batch.items.capacity() * size_of::<OutputItem>() + batch.ranges.capacity() * size_of::<EventSpan>();
    fixed + batch.items.iter().map(text).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: usize) -> OutputBatch {
        OutputBatch::of(vec![OutputItem::Name(vec![b'x'; text].into())])
    }

    #[test]
    fn a_stalled_receiver_holds_up_the_sender_at_the_limit_and_no_batch_is_lost() {
        let (sender, receiver) = queue();
        let giving = std::thread::spawn(move || (0..100).for_each(|_| drop(sender.send(batch(1 << 20)))));
        let mut taken = 0;
        let mut most = 0;
        loop {
            // The sender is at its limit, or done.
            while receiver.0.lock().bytes + (2 << 20) < QUEUE_BYTES && !receiver.0.lock().closed {
                std::thread::yield_now();
            }
            most = most.max(receiver.0.lock().bytes);
            match receiver.receive(Duration::from_secs(10)) {
                ReceivedBatch::Batch(batch) => receiver.give_back(batch),
                ReceivedBatch::Nothing => panic!("the sender hangs"),
                ReceivedBatch::Closed => break,
            }
            taken += 1;
        }
        giving.join().unwrap();
        assert_eq!(taken, 100);
        assert!(most <= QUEUE_BYTES, "{most}");
    }

    #[test]
    fn a_sender_without_a_receiver_does_not_wait() {
        let (sender, receiver) = queue();
        drop(receiver);
        (0..20).for_each(|_| drop(sender.send(batch(1 << 20))));
    }

    #[test]
    fn full_batches_that_wait_are_within_the_bound() {
        const { assert!(QUEUE_BYTES + 4 * FULL_BYTES <= 16 << 20) };
    }
}
