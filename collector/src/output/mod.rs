//! Rows in, shard out: one thread that encodes, compresses and writes, so that a file system that
//! stalls holds up nobody but itself for a while.

mod place;
mod queue;
mod rows;
mod shard_file;
mod writer;

pub use place::{DEFAULT_MAX_BYTES, PlaceError, ShardPlace};
pub use rows::{Batch, CommunicatorRow, Item, MpiRow, NameId, RcclRow, RequestRow, Span};

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};

/// The way to the writing thread.
pub struct Output {
    batches: queue::Sender,
}

impl Output {
    /// Starts the thread. The receiver hears when the shard is finished, or that there is none.
    pub fn start(place: ShardPlace) -> io::Result<(Output, Receiver<()>)> {
        let (batches, incoming) = queue::queue();
        let (done, finished) = sync_channel(1);
        std::thread::Builder::new().name("rpd-writer".to_owned()).spawn(move || {
            writer::write_all(&place, &incoming);
            let _ = done.send(());
        })?;
        Ok((Output { batches }, finished))
    }

    /// Hands a batch over and gets an empty one. Waits while the writer is far behind.
    pub fn send(&self, batch: Batch) -> Batch {
        // The writer only goes away by panicking; then the rest is lost, and the command runs on.
        self.batches.send(batch)
    }

    /// For tests that look at what they would send.
    #[cfg(test)]
    pub(crate) fn into_nothing() -> Output {
        Output { batches: queue::queue().0 }
    }
}
