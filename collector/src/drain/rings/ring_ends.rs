//! How rings end: what is left in them is read, and what did not fit goes to the ledger.

use super::{BYTES_PER_TURN, RingDrain};
use rpd_ring::PublishedRecords;
use rpd_ring::layout::{DropCause, DroppedKind};
use rpd_shard::model::{TableId, native};
use rpd_shard::record::LossCause;

/// Why events were not recorded, for the producer and for the loss ledger.
const DROP_CAUSES: [(DropCause, LossCause); 4] = [
    (DropCause::RingFull, LossCause::RingFull),
    (DropCause::Reentrant, LossCause::Reentrant),
    (DropCause::TooDeep, LossCause::OverLimit),
    (DropCause::NoMemory, LossCause::NoMemory),
];

/// The tables that lack the rows of dropped events.
const DROPPED_TABLES: [(DroppedKind, Option<TableId>); 7] = [
    (DroppedKind::Range, Some(native::RANGE)),
    (DroppedKind::Mark, Some(native::MARK)),
    (DroppedKind::MpiCall, Some(native::MPI_CALL)),
    (DroppedKind::Unknown, None),
    (DroppedKind::RcclCall, Some(native::RCCL_CALL)),
    (DroppedKind::MpiRequest, Some(native::MPI_REQUEST)),
    (DroppedKind::Communicator, Some(native::COMMUNICATOR)),
];

impl RingDrain {
    /// Reads what had been published, in turns, so that the number of records shows how far it is. Returns whether the ring is
    /// finished.
    fn read_in_turns(&mut self, at: usize, published: PublishedRecords) -> bool {
        loop {
            let (progress, is_finished) = self.drain_published(at, published, BYTES_PER_TURN);
            if is_finished || progress.is_empty {
                return is_finished;
            }
        }
    }

    /// Reads a ring to its end and removes it. Its thread no longer writes, or is given up.
    pub(super) fn end_ring(&mut self, at: usize) {
        // A thread that is given up may write forever: this reads one ring and what arrives meanwhile.
        for _ in 0..4 {
            let Some(ring) = self.rings.get(at) else { return };
            let published = ring.consumer.published();
            if !published.is_new || self.read_in_turns(at, published) {
                break;
            }
        }
        self.remove_ring(at);
    }

    /// Removes a ring. What is open stays open, and the drops of its thread go to the ledger.
    pub(super) fn remove_ring(&mut self, at: usize) {
        if at >= self.rings.len() {
            return;
        }
        let ring = self.rings.swap_remove(at);
        ring.listed.into_iter().for_each(|number| self.threads.leave(number));
        let Some(source) = self.sources.get_mut(ring.source) else { return };
        source.log.end_thread(ring.log, &mut self.out);
        let number = source.process.source;
        let Some(header) = ring.consumer.header() else { return };
        for (cause, lost_by) in DROP_CAUSES {
            for (what, table) in DROPPED_TABLES {
                let rows = header.drops(cause, what);
                if rows > 0 {
                    self.dropped += if cause == DropCause::RingFull { rows } else { 0 };
                    self.lose(number, table, lost_by, Some(rows));
                }
            }
        }
    }
}
