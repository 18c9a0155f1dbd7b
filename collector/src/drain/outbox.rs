//! Collects rows for the writing thread.

use super::names::NameTable;
use crate::shard_output::{EventSpan, NameId, OutputBatch, OutputItem, ShardOutput};
use rpd_ring::record::RecordedLibrary;

/// Collects items into batches.
pub(super) struct RowOutbox {
    batch: OutputBatch,
    names: NameTable,
    output: ShardOutput,
}

impl RowOutbox {
    pub(super) fn new(output: ShardOutput) -> RowOutbox {
        RowOutbox { batch: OutputBatch::default(), names: NameTable::default(), output }
    }

    #[inline]
    pub(super) fn range(&mut self, span: EventSpan) {
        self.batch.ranges.push(span);
        if self.batch.is_full() {
            self.send();
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: OutputItem) {
        self.batch.items.push(item);
        if self.batch.is_full() {
            self.send();
        }
    }

    pub(super) fn name(&mut self, text: &[u8]) -> NameId {
        self.names.id(text, &mut self.batch.items)
    }

    pub(super) fn function(&mut self, library: RecordedLibrary, number: u32) -> Option<NameId> {
        self.names.function(library, number, &mut self.batch.items)
    }

    /// Sends the collected rows.
    pub(super) fn send(&mut self) {
        if !self.batch.is_empty() {
            self.batch = self.output.send(std::mem::take(&mut self.batch));
        }
    }

    #[cfg(test)]
    pub(super) fn batch(&self) -> &OutputBatch {
        &self.batch
    }
}
