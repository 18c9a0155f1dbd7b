//! Detects blocks of another shard within a shard. Each such block is intact by itself; only its references and its
//! row count show that it does not belong here.

use crate::input::listing::translate::TRANSLATED;
use crate::input::opened::{InputTables, needed_rows};
use crate::input::source::KeySpace;
use rpd_console::wording::counted;
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, BlockRef};
use rpd_shard::model::{Column, Kind, TableId, rocpd};
use rpd_shard::record::{Loss, LossCause, Process};
use std::collections::{BTreeMap, BTreeSet};

/// Ends each warning about such blocks.
const LIKELY_CAUSE: &str = "blocks of another shard may be among its own";
/// Maximum number of missing threads that are counted.
const MAX_THREADS: usize = 65_536;

/// Warnings about parts of a shard that belong to another one, and the rows that are missing for them.
#[derive(Debug, Default)]
pub(super) struct ForeignBlocks {
    pub(super) warnings: Vec<String>,
    pub(super) losses: Vec<Loss>,
}

impl ForeignBlocks {
    fn lose(&mut self, source: u32, table: TableId, rows: u64) {
        self.losses.push(Loss {
            source,
            table: Some(table),
            cause: LossCause::DamagedBlock,
            rows: Some(rows),
        });
    }

    fn warn(&mut self, shard: &Shard, what: &str) {
        self.warnings.push(format!("{}: {what}: {LIKELY_CAUSE}", shard.path().display()));
    }

    /// Notes a process that has rows but no record.
    pub(super) fn without_record(&mut self, shard: &Shard, source: u32) {
        self.lose(source, rocpd::INFO_PROCESS, 1);
        self.warn(shard, &format!("process {source} has rows and no record"));
    }

    /// Replaces a pid that no process can have by 0, which means unknown.
    pub(super) fn check_pid(
        &mut self,
        shard: &Shard,
        source: u32,
        process: &mut Process,
        has_native_rows: bool,
    ) {
        if process.pid > 0 || process.pid == 0 && !has_native_rows {
            return;
        }
        self.lose(source, rocpd::INFO_PROCESS, 1);
        self.warn(shard, &format!("the record of process {source} has the pid {}", process.pid));
        process.pid = 0;
    }

    /// Notes threads that native rows of a process refer to but the shard does not contain, unless a known cause
    /// explains as many lost threads. `known` are the threads in the shard.
    pub(super) fn check_threads(
        &mut self,
        (shard, tables): (&Shard, &InputTables),
        source: u32,
        native: &[BlockRef],
        known: Option<&KeySpace>,
    ) {
        // In a shard without its end, anything else may be missing as well.
        if shard.ledger.is_none() || known.is_some_and(|known| known.placeholder.is_none()) {
            return;
        }
        let is_thread = |column: &Column| column.kind == Kind::Ref(rocpd::INFO_THREAD);
        let (mut rows_without, mut threads) = (0u64, BTreeSet::new());
        for block in native {
            let Ok(rows) = needed_rows(shard, tables, block, &is_thread) else { continue };
            let keys = rows.column("tid");
            // A value that is not a key counts as a replaced value.
            for key in (0..rows.len).filter_map(|row| keys.int(row)) {
                if known.is_some_and(|known| known.stored(key).is_some()) {
                    continue;
                }
                rows_without += 1;
                if threads.len() < MAX_THREADS {
                    threads.insert(key);
                }
            }
        }
        let unexplained = (threads.len() as u64).saturating_sub(lost_threads(shard, source, known));
        if unexplained == 0 {
            return;
        }
        self.lose(source, rocpd::INFO_THREAD, unexplained);
        let (rows, threads) = (counted(rows_without, "row"), counted(threads.len() as u64, "thread"));
        self.warn(shard, &format!("{rows} of process {source} name {threads} that the shard does not hold"));
    }

    /// Notes tables with more rows than the collector counted.
    pub(super) fn check_counts(&mut self, shard: &Shard, readable: &BTreeMap<(u32, TableId), u64>) {
        let Some(ledger) = shard.ledger.as_ref().filter(|_| shard.identity.run_id_from != TRANSLATED) else {
            return;
        };
        let mut written: BTreeMap<(u32, TableId), u64> = BTreeMap::new();
        for (source, table, rows) in &ledger.written {
            *written.entry((*source, *table)).or_default() += rows;
        }
        for ((source, table), rows) in readable {
            let more = rows.saturating_sub(written.get(&(*source, *table)).copied().unwrap_or(0));
            if more > 0 {
                let rows = counted(more, "row");
                self.warn(
                    shard,
                    &format!("{rows} of {table}, process {source}, are more than its collector wrote"),
                );
            }
        }
    }
}

/// Returns the number of missing threads of a process that the loss ledger or a damaged block explains.
fn lost_threads(shard: &Shard, source: u32, known: Option<&KeySpace>) -> u64 {
    let ledger = shard.ledger.iter();
    let losses = ledger.clone().flat_map(|ledger| &ledger.losses);
    // A loss without a table can concern any table.
    let is_about_threads = |loss: &&Loss| {
        (loss.source == 0 || loss.source == source)
            && loss.table.is_none_or(|table| table == rocpd::INFO_THREAD)
    };
    let lost = losses.filter(is_about_threads).map(|loss| loss.rows.unwrap_or(u64::MAX));
    let of_table = |written: &&(u32, TableId, u64)| (written.0, written.1) == (source, rocpd::INFO_THREAD);
    let written = ledger.flat_map(|ledger| &ledger.written).filter(of_table).map(|written| written.2);
    let headers = shard.blocks().iter().map(|block| block.header);
    let own = headers.filter(|h| h.source == source && h.kind == BlockKind::Rows(rocpd::INFO_THREAD));
    let by_headers = own.map(|header| header.next_key().saturating_sub(1).unsigned_abs()).max();
    let read = known.map_or(0, |known| known.stored.iter().map(|run| run.next.abs_diff(run.first)).sum());
    let unreadable = written.chain(by_headers).max().unwrap_or(0).saturating_sub(read);
    lost.fold(unreadable, u64::saturating_add)
}
