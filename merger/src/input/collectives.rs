//! The collectives of an input: what its blocks told is completed, and regions of other formats are read
//! once more if their names say that there are any.

use super::home::{HostClocks, to_boottime};
use super::opened::block_rows;
use super::source::{InputSource, SourcePiece};
use rayon::prelude::*;
use rpd_collectives::{CallSample, ProcessCollectives, RegionNames, collectives_of_regions, region_columns};
use rpd_rocpd::read::{Database, Space, Wanted};
use rpd_run::is_merged_set;
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, ShardStrings};
use rpd_shard::model::{Local, Rows, TableId, rocpd};
use rpd_shard::record::Process;

/// Pieces that are decoded at once.
const PIECES_AT_ONCE: usize = 16;

/// What the blocks of a shard told is completed: by the regions of a translated file, and by ranks. `sources` are in output order.
pub(super) fn settle_collectives(
    shard: &Shard,
    strings: &ShardStrings,
    homes: &HostClocks,
    sample: &CallSample,
    sources: &mut [InputSource],
) {
    let nodes = sources.windows(2).any(|two| two[0].process.node != two[1].process.node);
    // A file of another format with several nodes is a merge: its times are job times.
    // Where our own library recorded the calls, that says more than regions.
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
        let said = &mut source.collectives;
        said.agree_on_result(process.rank.filter(|_| !process.worker), process.size);
        let steps = homes.steps(&process.domain, process.clock);
        for call in &mut said.calls {
            call.enter = to_boottime(steps, call.enter);
            call.exit = call.exit.map(|exit| to_boottime(steps, exit));
        }
        said.mpi.convert(|time| to_boottime(steps, time));
    }
}

/// The regions of a source of a translated file.
fn of_blocks(
    shard: &Shard,
    source: &InputSource,
    names: &RegionNames,
    sample: &CallSample,
) -> ProcessCollectives {
    let mut read = |table: TableId, take: &mut dyn FnMut(&Rows<Local>)| {
        let blocks: Vec<_> = source
            .pieces
            .iter()
            .filter_map(|piece| match piece {
                SourcePiece::Block(block, None) if block.header.kind == BlockKind::Rows(table) => Some(block),
                _ => None,
            })
            .collect();
        for some in blocks.chunks(PIECES_AT_ONCE) {
            let rows: Vec<_> =
                some.par_iter().map(|block| block_rows(shard, &source.tables, block).ok()).collect();
            rows.iter().flatten().for_each(&mut *take);
        }
    };
    collectives_of_regions(names, &mut read, sample)
}

/// The regions of a space of a database. Those of a merge of ours are not looked at: what follows from them was
/// told then, and its times are job times. Of several processes in one space nobody can say whose they are.
pub(super) fn of_space(
    database: &Database,
    space: &Space,
    pieces: &[SourcePiece],
    names: &RegionNames,
    process: &Process,
    sample: &CallSample,
) -> ProcessCollectives {
    if names.is_empty() || is_merged_set(space) || space.processes.len() > 1 {
        return ProcessCollectives::default();
    }
    let mut read = |wanted: TableId, take: &mut dyn FnMut(&Rows<Local>)| {
        let named = Wanted::Named(region_columns(wanted));
        let Some(place) = space.position(wanted) else { return };
        let pieces: Vec<_> = pieces
            .iter()
            .filter_map(|piece| match piece {
                SourcePiece::Rows { space, table, piece } if *table == place => Some((*space, piece)),
                _ => None,
            })
            .collect();
        for some in pieces.chunks(PIECES_AT_ONCE) {
            let rows: Vec<_> = some
                .par_iter()
                .map(|(space, piece)| database.rows(*space, place, piece, named).ok())
                .collect();
            rows.iter().flatten().for_each(&mut *take);
        }
    };
    let mut said = collectives_of_regions(names, &mut read, sample);
    said.agree_on_result(process.rank, process.size);
    said
}
