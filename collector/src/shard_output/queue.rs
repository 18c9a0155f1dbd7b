//! Queue of batches from the collecting thread to the writing thread, bounded by bytes.

use super::rows::{EventSpan, OutputBatch, OutputItem};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes that wait for a stalled file system, plus at most one batch. After that the rings
/// fill up, and producers count what they drop.
const QUEUE_BYTES: usize = 12 << 20;
/// Bytes of a full batch without texts.
const FULL_BYTES: usize =
    OutputBatch::FULL * size_of::<OutputItem>() + OutputBatch::FULL_RANGES * size_of::<EventSpan>();
/// Number of empty batches that are kept to reuse their memory.
const EMPTY_BATCHES: usize = 2;

struct State {
    /// Maximum number of bytes that wait.
    limit: usize,
    /// Batches with their bytes.
    waiting: VecDeque<(OutputBatch, usize)>,
    bytes: usize,
    empty: Vec<OutputBatch>,
    /// One of the two ends is gone.
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and appends a batch. Returns the batch if the receiver is gone.
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
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn has_room(&self, bytes: usize) -> bool {
        self.is_closed || self.bytes == 0 || self.bytes + bytes <= self.limit
    }

    fn put(&mut self, batch: OutputBatch, bytes: usize) -> Result<(), OutputBatch> {
        if self.is_closed {
            return Err(batch);
        }
        self.bytes += bytes;
        self.waiting.push_back((batch, bytes));
        Ok(())
    }
}

/// Sends batches to the writing thread. The queue closes when it is dropped.
pub struct ShardOutput(Arc<Shared>);

/// Sends batches from threads that must not block for long. They must not send [`OutputItem::Name`],
/// [`OutputItem::Thread`] or [`OutputItem::End`]: the collecting thread determines their order.
#[derive(Clone)]
pub struct SideOutput(Arc<Shared>);

/// Receiving end.
pub(super) struct BatchReceiver(Arc<Shared>);

/// Result of [`BatchReceiver::receive`].
pub(super) enum ReceivedBatch {
    Batch(OutputBatch),
    /// No batch arrived in time.
    Nothing,
    /// No batch will arrive.
    Closed,
}

pub(super) fn queue() -> (ShardOutput, BatchReceiver) {
    with_limit(QUEUE_BYTES)
}

/// Makes a queue in which at most `limit` bytes wait, or one batch.
pub(super) fn with_limit(limit: usize) -> (ShardOutput, BatchReceiver) {
    let state = State { limit, waiting: VecDeque::new(), bytes: 0, empty: Vec::new(), is_closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (ShardOutput(Arc::clone(&shared)), BatchReceiver(shared))
}

impl ShardOutput {
    /// Sends a batch and returns an empty one. Blocks while the writing thread is far behind. That thread ends
    /// early only by a panic. Then the batch is lost, and the command continues.
    pub fn send(&self, batch: OutputBatch) -> OutputBatch {
        let (mut state, _) = self.0.put(batch);
        let empty = state.empty.pop();
        drop(state);
        self.0.changed.notify_all();
        empty.unwrap_or_default()
    }

    /// Returns a second sender. The writing thread ignores what arrives after [`OutputItem::End`].
    pub fn side(&self) -> SideOutput {
        SideOutput(Arc::clone(&self.0))
    }
}

impl SideOutput {
    /// Sends a batch if there is room; otherwise returns it.
    pub fn try_send(&self, batch: OutputBatch) -> Result<(), OutputBatch> {
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

    /// Sends a batch and waits for room. Returns the batch if the writing thread has ended.
    pub fn send(&self, batch: OutputBatch) -> Result<(), OutputBatch> {
        let (state, put) = self.0.put(batch);
        drop(state);
        self.0.changed.notify_all();
        put
    }
}

impl BatchReceiver {
    /// Removes the next batch. Waits for one at most `wait`.
    pub(super) fn receive(&self, wait: Duration) -> ReceivedBatch {
        let nothing = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let state = self.0.changed.wait_timeout_while(self.0.lock(), wait, nothing);
        let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
        match state.waiting.pop_front() {
            Some((batch, bytes)) => {
                state.bytes -= bytes;
                drop(state);
                self.0.changed.notify_all();
                ReceivedBatch::Batch(batch)
            }
            None if state.is_closed => ReceivedBatch::Closed,
            None => ReceivedBatch::Nothing,
        }
    }

    /// Returns a batch to reuse its memory.
    pub(super) fn give_back(&self, mut batch: OutputBatch) {
        batch.clear();
        let mut state = self.0.lock();
        if state.empty.len() < EMPTY_BATCHES && bytes_of(&batch) <= 2 * FULL_BYTES {
            state.empty.push(batch);
        }
    }
}

impl Drop for ShardOutput {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for BatchReceiver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns the bytes of a batch in memory. Ignores process records, which are few.
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
            // The sender is at its limit, or has ended.
            while receiver.0.lock().bytes + (2 << 20) < QUEUE_BYTES && !receiver.0.lock().is_closed {
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
