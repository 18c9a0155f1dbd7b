//! Batches on their way from the collecting to the writing thread, bounded by their bytes.

use super::rows::{Batch, Item, Span};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that wait for a file system that stalls, give or take a batch. Then rings fill up, and what
/// they drop is counted there.
const QUEUE_BYTES: usize = 12 << 20;
/// Bytes of a full batch, give or take texts.
const FULL_BYTES: usize = Batch::FULL * size_of::<Item>() + Batch::FULL_RANGES * size_of::<Span>();
/// Empty batches that are kept for their memory.
const EMPTY_BATCHES: usize = 2;

struct State {
    /// Most bytes that wait.
    limit: usize,
    /// With the bytes of each.
    waiting: VecDeque<(Batch, usize)>,
    bytes: usize,
    empty: Vec<Batch>,
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
    fn put(&self, batch: Batch) -> (MutexGuard<'_, State>, Result<(), Batch>) {
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

    fn put(&mut self, batch: Batch, bytes: usize) -> Result<(), Batch> {
        if self.closed {
            return Err(batch);
        }
        self.bytes += bytes;
        self.waiting.push_back((batch, bytes));
        Ok(())
    }
}

/// The side that gives.
pub(super) struct Sender(Arc<Shared>);

/// A second one that gives. Its end is not the end of the queue.
#[derive(Clone)]
pub(super) struct Side(Arc<Shared>);

/// The side that takes.
pub(super) struct Receiver(Arc<Shared>);

/// What [`Receiver::receive`] found.
pub(super) enum Received {
    Batch(Batch),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come.
    Closed,
}

pub(super) fn queue() -> (Sender, Receiver) {
    with_limit(QUEUE_BYTES)
}

/// A queue in which at most so many bytes wait, or one batch.
pub(super) fn with_limit(limit: usize) -> (Sender, Receiver) {
    let state = State { limit, waiting: VecDeque::new(), bytes: 0, empty: Vec::new(), closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Sender {
    /// Hands a batch over and gets an empty one. Waits while too much is waiting. If nobody takes
    /// batches any more, it is lost.
    pub(super) fn send(&self, batch: Batch) -> Batch {
        let (mut state, _) = self.0.put(batch);
        let empty = state.empty.pop();
        drop(state);
        self.0.changed.notify_all();
        empty.unwrap_or_default()
    }

    /// Another way into the queue.
    pub(super) fn side(&self) -> Side {
        Side(Arc::clone(&self.0))
    }
}

impl Side {
    /// Hands a batch over if there is room, or gives it back.
    pub(super) fn try_send(&self, batch: Batch) -> Result<(), Batch> {
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
    pub(super) fn send(&self, batch: Batch) -> Result<(), Batch> {
        let (state, put) = self.0.put(batch);
        drop(state);
        self.0.changed.notify_all();
        put
    }
}

impl Receiver {
    /// Takes the next batch; waits for one at most this long.
    pub(super) fn receive(&self, wait: Duration) -> Received {
        let nothing = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let state = self.0.changed.wait_timeout_while(self.0.lock(), wait, nothing);
        let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
        match state.waiting.pop_front() {
            Some((batch, bytes)) => {
                state.bytes -= bytes;
                drop(state);
                self.0.changed.notify_all();
                Received::Batch(batch)
            }
            None if state.closed => Received::Closed,
            None => Received::Nothing,
        }
    }

    /// Gives a batch back for its memory.
    pub(super) fn give_back(&self, mut batch: Batch) {
        batch.clear();
        let mut state = self.0.lock();
        if state.empty.len() < EMPTY_BATCHES && bytes_of(&batch) <= 2 * FULL_BYTES {
            state.empty.push(batch);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Bytes in memory. Process records are few.
fn bytes_of(batch: &Batch) -> usize {
    let text = |item: &Item| match item {
        Item::Name(text) => text.len(),
        Item::Thread { name, .. } => name.len(),
        _ => 0,
    };
    let fixed = batch.items.capacity() * size_of::<Item>() + batch.ranges.capacity() * size_of::<Span>();
    fixed + batch.items.iter().map(text).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: usize) -> Batch {
        Batch::of(vec![Item::Name(vec![b'x'; text].into())])
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
                Received::Batch(batch) => receiver.give_back(batch),
                Received::Nothing => panic!("the sender hangs"),
                Received::Closed => break,
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
