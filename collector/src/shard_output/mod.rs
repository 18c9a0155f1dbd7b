//! Rows in, shard out: one thread that encodes, compresses and writes, so that a file system that
//! stalls holds up nobody but itself for a while.

mod early;
mod item_rows;
mod queue;
mod rows;
mod shard_file;
mod shard_place;
mod system_rows;
mod writer;

pub(crate) use early::{EarlyShard, ShardBeginning, ShardCreation};
pub(crate) use rows::{CommunicatorRow, MpiRow, RcclRow, RequestRow};
pub use rows::{EventSpan, NameId, OutputBatch, OutputItem};
pub use shard_place::ShardPlace;
pub(crate) use shard_place::{DEFAULT_MAX_BYTES, PlaceError};
pub(crate) use system_rows::{MetricAgent, MetricCounter, MetricsDescription, MetricsTick, SystemRows};

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

/// The way to the writing thread.
pub struct ShardOutput {
    batches: queue::BatchSender,
}

impl ShardOutput {
    /// Starts the thread. The receiver hears which shard is finished, or that there is none.
    pub fn start(place: ShardPlace) -> io::Result<(ShardOutput, Receiver<Option<PathBuf>>)> {
        ShardOutput::start_with(place, ShardBeginning::Nothing)
    }

    /// Starts the thread with a shard that was created before the command, if there is one. It is removed at the end if
    /// nothing happened.
    pub(crate) fn start_with(
        place: ShardPlace,
        beginning: ShardBeginning,
    ) -> io::Result<(ShardOutput, Receiver<Option<PathBuf>>)> {
        let (batches, incoming) = queue::queue();
        let (done, finished) = sync_channel(1);
        std::thread::Builder::new().name("rpd-writer".to_owned()).spawn(move || {
            let _ = done.send(writer::write_all(&place, beginning, &incoming));
        })?;
        Ok((ShardOutput { batches }, finished))
    }

    /// Hands a batch over and gets an empty one. Waits while the writer is far behind.
    pub fn send(&self, batch: OutputBatch) -> OutputBatch {
        // The writer only goes away by panicking; then the rest is lost, and the command runs on.
        self.batches.send(batch)
    }

    /// A second way to the writing thread. What comes behind [`OutputItem::End`] is not written.
    pub fn side(&self) -> SideOutput {
        SideOutput { batches: self.batches.side() }
    }

    /// For tests that look at what they would send.
    #[cfg(test)]
    pub(crate) fn into_nothing() -> ShardOutput {
        ShardOutput { batches: queue::queue().0 }
    }
}

/// A way to the writing thread for somebody who has other things to do than to wait for it. Must not
/// send [`OutputItem::Name`], [`OutputItem::Thread`] or [`OutputItem::End`], whose order is the collecting thread's.
#[derive(Clone)]
pub struct SideOutput {
    batches: queue::SideSender,
}

impl SideOutput {
    /// For tests that look at what they send: the queue takes one batch at a time.
    #[cfg(test)]
    pub(crate) fn to_test() -> (ShardOutput, SideOutput, TestQueue) {
        let (batches, taken) = queue::with_limit(1);
        let side = SideOutput { batches: batches.side() };
        (ShardOutput { batches }, side, TestQueue(taken))
    }

    /// Hands a batch over if there is room, or gives it back.
    pub fn try_send(&self, batch: OutputBatch) -> Result<(), OutputBatch> {
        self.batches.try_send(batch)
    }

    /// Waits for room; gives the batch back when the writing thread has ended.
    pub fn send(&self, batch: OutputBatch) -> Result<(), OutputBatch> {
        self.batches.send(batch)
    }
}

/// In place of the writing thread.
#[cfg(test)]
pub(crate) struct TestQueue(queue::BatchReceiver);

#[cfg(test)]
impl TestQueue {
    /// Takes a batch that waits.
    pub(crate) fn take(&self) -> Option<Vec<OutputItem>> {
        match self.0.receive(std::time::Duration::ZERO) {
            queue::ReceivedBatch::Batch(batch) => Some(batch.items),
            queue::ReceivedBatch::Nothing | queue::ReceivedBatch::Closed => None,
        }
    }
}
