//! Writes rows to the shard. One thread encodes, compresses and writes, so that a stalled file system blocks
//! no other thread for a while.

mod early;
mod item_rows;
mod python_rows;
mod queue;
mod rows;
mod sample_tracks;
mod shard_file;
mod shard_place;
mod system_rows;
mod writer;

pub(crate) use early::{EarlyShard, ShardBeginning, ShardCreation};
pub(crate) use python_rows::PythonSample;
pub use queue::ShardOutput;
pub(crate) use queue::SideOutput;
pub(crate) use rows::{CommunicatorRow, MpiRow, RcclRow, RequestRow, TopologyNeighbours};
pub use rows::{EventSpan, NameId, OutputBatch, OutputItem};
pub use shard_place::ShardPlace;
pub(crate) use shard_place::{DEFAULT_MAX_BYTES, PlaceError};
pub(crate) use system_rows::{CountedThread, MetricAgent, MetricCounter, MetricsDescription, MetricsTick};

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

impl ShardOutput {
    /// Starts the thread. The receiver gets the path of the finished shard, or `None` if there is none.
    pub fn start(place: ShardPlace) -> io::Result<(ShardOutput, Receiver<Option<PathBuf>>)> {
        ShardOutput::start_with(place, ShardBeginning::Nothing)
    }

    /// Starts the thread with a shard that was created before the command, if there is one. The thread
    /// removes that shard at the end if nothing was recorded.
    pub(crate) fn start_with(
        place: ShardPlace,
        beginning: ShardBeginning,
    ) -> io::Result<(ShardOutput, Receiver<Option<PathBuf>>)> {
        let (output, incoming) = queue::queue();
        let (done, finished) = sync_channel(1);
        std::thread::Builder::new().name("rpd-writer".to_owned()).spawn(move || {
            let _ = done.send(writer::write_all(&place, beginning, &incoming));
        })?;
        Ok((output, finished))
    }

    /// Makes an output without a writing thread, for tests that inspect the batch that they would send.
    #[cfg(test)]
    pub(crate) fn into_nothing() -> ShardOutput {
        queue::queue().0
    }
}

#[cfg(test)]
impl SideOutput {
    /// Makes a queue of one batch for tests that inspect what they send.
    pub(crate) fn to_test() -> (ShardOutput, SideOutput, TestQueue) {
        let (output, taken) = queue::with_limit(1);
        let side = output.side();
        (output, side, TestQueue(taken))
    }
}

/// Replaces the writing thread.
#[cfg(test)]
pub(crate) struct TestQueue(queue::BatchReceiver);

#[cfg(test)]
impl TestQueue {
    /// Removes a waiting batch.
    pub(crate) fn take(&self) -> Option<Vec<OutputItem>> {
        match self.0.receive(std::time::Duration::ZERO) {
            queue::ReceivedBatch::Batch(batch) => Some(batch.items),
            queue::ReceivedBatch::Nothing | queue::ReceivedBatch::Closed => None,
        }
    }
}
