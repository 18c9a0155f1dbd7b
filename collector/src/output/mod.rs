//! Rows in, shard out: one thread that encodes, compresses and writes, so that a file system that
//! stalls holds up nobody but itself for a while.

mod place;
mod rows;
mod writer;

pub use place::{DEFAULT_MAX_BYTES, PlaceError, ShardPlace};
pub use rows::{Batch, CommunicatorRow, Item, MpiRow, NameId, RcclRow, RequestRow, Span};

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Batches between the two threads: with [`Batch::FULL`] items each, some 50 MB while a file system
/// stalls. Then rings fill up, and what they drop is counted there.
const CHANNEL: usize = 64;

/// The way to the writing thread.
pub struct Output {
    batches: SyncSender<Batch>,
    empty: Receiver<Batch>,
}

impl Output {
    /// Starts the thread. The receiver hears when the shard is finished, or that there is none.
    pub fn start(place: ShardPlace) -> io::Result<(Output, Receiver<()>)> {
        let (batches, incoming) = sync_channel::<Batch>(CHANNEL);
        let (outgoing, empty) = sync_channel(CHANNEL);
        let (done, finished) = sync_channel(1);
        std::thread::Builder::new().name("rpd-writer".to_owned()).spawn(move || {
            writer::write_all(&place, &incoming, &outgoing);
            let _ = done.send(());
        })?;
        Ok((Output { batches, empty }, finished))
    }

    /// Hands a batch over and gets an empty one. Waits while the writer is far behind.
    pub fn send(&self, batch: Batch) -> Batch {
        // The writer only goes away by panicking; then the rest is lost, and the command runs on.
        let _ = self.batches.send(batch);
        self.empty.try_recv().unwrap_or_default()
    }

    /// A second way to the writing thread. What comes behind [`Item::End`] is not written.
    pub fn side(&self) -> SideOutput {
        SideOutput { batches: self.batches.clone() }
    }

    /// For tests that look at what they would send.
    #[cfg(test)]
    pub(crate) fn into_nothing() -> Output {
        Output { batches: sync_channel(1).0, empty: sync_channel(1).1 }
    }
}

/// A way to the writing thread for somebody who has other things to do than to wait for it. Must not
/// send [`Item::Name`], [`Item::Thread`] or [`Item::End`], whose order is the collecting thread's.
pub struct SideOutput {
    batches: SyncSender<Batch>,
}

impl SideOutput {
    /// For tests that look at what they send.
    #[cfg(test)]
    pub(crate) fn to(batches: SyncSender<Batch>) -> SideOutput {
        SideOutput { batches }
    }

    /// Hands a batch over if there is room, or gives it back.
    pub fn try_send(&self, batch: Batch) -> Result<(), Batch> {
        self.batches.try_send(batch).map_err(|error| match error {
            TrySendError::Full(batch) | TrySendError::Disconnected(batch) => batch,
        })
    }

    /// Waits for room; gives the batch back when the writing thread has ended.
    pub fn send(&self, batch: Batch) -> Result<(), Batch> {
        self.batches.send(batch).map_err(|error| error.0)
    }
}
