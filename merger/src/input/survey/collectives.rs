//! Collectives of an input. Completes what its blocks contain, and reads regions of foreign formats a second time if
//! their names show collectives.

use crate::input::{HostClocks, InputSource, SourcePiece, block_rows, to_boottime};
use rayon::prelude::*;
use rpd_collectives::{CallSample, ProcessCollectives, RegionNames};
use rpd_rocpd::read::{Database, StoredTableSet, Wanted};
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, ShardStrings};
use rpd_shard::model::{Local, Rows, TableId, rocpd};
use rpd_shard::record::Process;

/// Pieces that are decoded at the same time.
const PIECES_AT_ONCE: usize = 16;

/// Completes the collectives that the blocks of a shard contain: adds the regions of a translated file, ranks and job
/// times. `sources` are in output order.
pub(super) fn complete_collectives(
    shard: &Shard,
    strings: &ShardStrings,
    host_clocks: &HostClocks,
    sample: &CallSample,
    sources: &mut [InputSource],
) {
    let nodes = sources.windows(2).any(|two| two[0].process.node != two[1].process.node);
    // A foreign file with several nodes is a merge already, and its times are job times. Calls that `rpd`'s own
    // library recorded carry more details than regions, so their regions are not read.
    let has_regions_alone = |source: &InputSource| {
        let is_region = |piece: &SourcePiece| match piece {
            SourcePiece::Block(block, None) => block.header.kind == BlockKind::Rows(rocpd::REGION),
            _ => false,
        };
        source.collectives.is_empty() && source.collectives.alone == 0 && source.pieces.iter().any(is_region)
    };
    if !nodes && sources.iter().any(has_regions_alone) {
        let mut names = RegionNames::default();
        strings.iter().for_each(|(id, text)| names.add(id, text));
        for source in sources.iter_mut().filter(|source| has_regions_alone(source)) {
            source.collectives = of_blocks(shard, source, &names, sample);
        }
    }
    for source in sources {
        let process = &source.process;
        let calls = &mut source.collectives;
        calls.set_ranks(process.rank.filter(|_| !process.worker), process.size);
        let steps = host_clocks.steps(&process.domain, process.clock);
        for call in &mut calls.calls {
            call.enter = to_boottime(steps, call.enter);
            call.exit = call.exit.map(|exit| to_boottime(steps, exit));
        }
        calls.mpi.convert(|time| to_boottime(steps, time));
    }
}

/// Reads collectives from the regions of one source of a translated file.
fn of_blocks(
    shard: &Shard,
    source: &InputSource,
    names: &RegionNames,
    sample: &CallSample,
) -> ProcessCollectives {
    let mut read = |table: TableId, take: &mut dyn FnMut(&Rows<Local>)| {
        let blocks = source.pieces.iter().filter_map(|piece| match piece {
            SourcePiece::Block(block, None) if block.header.kind == BlockKind::Rows(table) => Some(block),
            _ => None,
        });
        let blocks: Vec<_> = blocks.collect();
        take_readable(&blocks, |block| block_rows(shard, &source.tables, block).ok(), take);
    };
    names.find_collectives(&mut read, sample)
}

/// Passes the rows of the pieces that can be read to `take`, in order.
fn take_readable<T: Sync>(
    pieces: &[T],
    read: impl Fn(&T) -> Option<Rows<Local>> + Sync,
    take: &mut dyn FnMut(&Rows<Local>),
) {
    for some in pieces.chunks(PIECES_AT_ONCE) {
        let rows: Vec<_> = some.par_iter().map(&read).collect();
        rows.iter().flatten().for_each(&mut *take);
    }
}

/// Reads collectives from the regions of a database's table set. Skips previous merges, because their results are
/// stored and their times are job times. Skips sets with several processes, because regions do not show which process
/// made a call.
pub(super) fn of_table_set(
    database: &Database,
    set: &StoredTableSet,
    pieces: &[SourcePiece],
    names: &RegionNames,
    process: &Process,
    sample: &CallSample,
) -> ProcessCollectives {
    if names.is_empty() || set.is_merged() || set.processes.len() > 1 {
        return ProcessCollectives::default();
    }
    let mut read = |wanted: TableId, take: &mut dyn FnMut(&Rows<Local>)| {
        let named = Wanted::Named(RegionNames::columns(wanted));
        let Some(place) = set.position(wanted) else { return };
        let pieces = pieces.iter().filter_map(|piece| match piece {
            SourcePiece::Rows { table_set, table, piece, .. } if *table == place => Some((*table_set, piece)),
            _ => None,
        });
        let pieces: Vec<_> = pieces.collect();
        take_readable(&pieces, |(set, piece)| database.rows(*set, place, piece, named).ok(), take);
    };
    let mut calls = names.find_collectives(&mut read, sample);
    calls.set_ranks(process.rank, process.size);
    calls
}
