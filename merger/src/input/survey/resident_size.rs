//! Memory that an input occupies from its survey to the end of the merge. A job can have thousands of inputs, so this
//! is kept small and counted against `--memory`.

use crate::input::best_clock_sets::{BestClockSets, keep_best};
use crate::input::source::KeyRange;
use crate::input::survey::InputSurvey;
use crate::input::{InputSource, KeySpace, OpenInput, PieceRef, SourcePiece, StackSpace};
use rpd_rocpd::read::{ProcessFacts, StoredTable, StoredTableSet};
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, BlockRef};
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{ClockSet, Node};

/// Approximate overhead of an allocation, bytes.
const ALLOCATION_BYTES: usize = 16;
/// Bytes per input in lists of plans, units and messages.
const INPUT_BYTES: usize = 512;
/// Bytes per string beside its text: position and hash in the survey; later its id, and its hash in a table set.
const STRING_BYTES: usize = 56;
/// Largest piece in bytes that each thread's memory includes anyway.
const USUAL_PIECE_BYTES: u64 = 1 << 20;
/// Number of copies of a long row that exist while it is read, rewritten and put into pages.
const ROW_COPIES: u64 = 8;
/// Additional bytes of the pages of such a row's unit: the page buffer grows to twice its length.
const PAGE_BUFFER_BYTES: u64 = 16 << 20;
/// Bytes of an entry of a B-tree with an integer value.
const TREE_ENTRY_BYTES: usize = 40;

impl InputSurvey {
    /// Drops data that no later phase reads, and the spare capacity of lists.
    pub(crate) fn shrink(&mut self) {
        match &mut self.input {
            OpenInput::None => {}
            OpenInput::Shard(shard) => {
                shard.forget_records();
                keep_best_clocks(shard);
            }
            OpenInput::Database(open) => {
                open.database.forget_pieces();
                open.strings.shrink_to_fit();
            }
        }
        self.sources.shrink_to_fit();
        self.losses.shrink_to_fit();
        self.warnings.shrink_to_fit();
    }

    /// Returns the approximate bytes that the input's strings take while it is read or written. Valid until its
    /// hashes are taken.
    pub(crate) fn string_bytes(&self) -> usize {
        let strings: usize = self.hashes.iter().map(Vec::len).sum();
        let blocks = self.input.shard().into_iter().flat_map(Shard::blocks).map(|block| block.header);
        let texts = blocks.filter(|header| header.kind == BlockKind::Rows(rocpd::STRING));
        2 * texts.map(|header| header.raw_bytes as usize).sum::<usize>() + strings * STRING_BYTES
    }

    /// Returns the approximate bytes that the input's longest piece takes while it is processed; 0 if it is no longer
    /// than a usual piece.
    pub(crate) fn longest_piece(&self) -> u64 {
        let bytes = |piece: &SourcePiece| match piece {
            SourcePiece::Rows { piece, .. } => piece.bytes,
            SourcePiece::Block(block, _) => u64::from(block.header.raw_bytes),
            SourcePiece::Process | SourcePiece::Tail => 0,
        };
        let pieces = self.sources.iter().flat_map(|source| source.pieces.iter()).map(bytes);
        let pieces_of_strings = match &self.input {
            OpenInput::Database(open) => {
                open.strings.iter().flat_map(|table| &table.pieces).map(|p| p.bytes).max()
            }
            OpenInput::Shard(_) | OpenInput::None => None,
        };
        let longest = pieces.chain(pieces_of_strings).max().unwrap_or(0);
        match longest > USUAL_PIECE_BYTES {
            true => longest.saturating_mul(ROW_COPIES).saturating_add(PAGE_BUFFER_BYTES),
            false => 0,
        }
    }

    /// Returns the approximate bytes that the input occupies until the end of the merge.
    pub(crate) fn bytes(&self) -> usize {
        let input = match &self.input {
            OpenInput::None => 0,
            OpenInput::Shard(shard) => of_shard(shard),
            OpenInput::Database(open) => {
                let pieces = open.strings.iter().flat_map(|table| &table.pieces);
                let pages =
                    pieces.map(|piece| size_of::<SourcePiece>() + piece.pages() * 4 + ALLOCATION_BYTES);
                open.database.table_sets().iter().map(of_table_set).sum::<usize>() + pages.sum::<usize>()
            }
        };
        let texts = |lines: &[String]| lines.iter().map(|line| of_text(line)).sum::<usize>();
        let lists =
            size_of_val(&self.losses[..]) + self.rows_read.len() * TREE_ENTRY_BYTES + texts(&self.warnings);
        let path = 3 * self.input.path().as_os_str().len();
        size_of::<InputSurvey>()
            + INPUT_BYTES
            + path
            + lists
            + input
            + self.set_strings.len() * 64
            + self.sources.iter().map(of_source).sum::<usize>()
    }
}

/// Keeps only the best clock set of each domain, which is the one that later phases use. A shard has a clock set
/// every few seconds. The first domain remains the first.
fn keep_best_clocks(shard: &mut Shard) {
    let first = shard.clocks.first().map(|set| set.domain.clone());
    let mut best = BestClockSets::new();
    keep_best(&mut best, std::mem::take(&mut shard.clocks));
    let mut sets: Vec<ClockSet> = best.into_values().collect();
    sets.sort_by_key(|set| Some(&set.domain) != first.as_ref());
    shard.clocks = sets;
}

fn of_shard(shard: &Shard) -> usize {
    let clocks = shard.clocks.iter().map(|set| size_of::<ClockSet>() + of_text(&set.domain.boot_id));
    size_of_val(shard.blocks())
        + size_of_val(shard.schema().tables())
        + clocks.sum::<usize>()
        + 4 * ALLOCATION_BYTES
}

fn of_table_set(set: &StoredTableSet) -> usize {
    let tags = set.tags.iter().map(|(tag, value)| 2 * size_of::<String>() + of_text(tag) + of_text(value));
    let table_name = 24 + set.suffix.len() + ALLOCATION_BYTES;
    size_of::<StoredTableSet>()
        + set.tables.len() * (size_of::<StoredTable>() + table_name)
        + size_of_val(set.schema.tables())
        + tags.sum::<usize>()
        + set.nodes.iter().map(|(_, node)| of_node(node)).sum::<usize>()
        + set.processes.len() * (size_of::<ProcessFacts>() + ALLOCATION_BYTES)
        + set.warnings.iter().map(|line| of_text(line)).sum::<usize>()
        + 4 * ALLOCATION_BYTES
}

fn of_source(source: &InputSource) -> usize {
    let of_piece = |piece: &SourcePiece| {
        size_of::<SourcePiece>()
            + size_of::<PieceRef>()
            + match piece {
                SourcePiece::Block(_, Some(_)) => size_of::<BlockRef>() / 2 + ALLOCATION_BYTES,
                SourcePiece::Rows { piece, .. } => piece.pages() * 4 + ALLOCATION_BYTES,
                SourcePiece::Process | SourcePiece::Block(_, None) | SourcePiece::Tail => 0,
            }
    };
    let of_keys =
        |space: &KeySpace| size_of::<KeySpace>() + size_of_val(&space.stored[..]) + ALLOCATION_BYTES;
    let process = &source.process;
    let environment = process.environment.iter().map(|(name, value)| of_text(name) + of_text(value));
    let stacks = match &source.stacks {
        StackSpace::Offset(_) => 0,
        StackSpace::Dictionary(values) => size_of_val(&values[..]),
    };
    // For each table, the first id and the number of ids.
    let bases = source.tables.len() * (TREE_ENTRY_BYTES + size_of::<u64>() + size_of::<TableId>());
    size_of::<InputSource>()
        + source.pieces.iter().map(of_piece).sum::<usize>()
        + source.spaces.values().map(of_keys).sum::<usize>()
        + source.nodes.iter().map(|(_, node)| of_node(node)).sum::<usize>()
        + of_node(&process.node)
        + of_text(&process.command)
        + environment.sum::<usize>()
        + source.tracks.len() * (TREE_ENTRY_BYTES + size_of::<KeyRange>())
        + stacks
        + bases
        + source.memberships.iter().map(|(side, _)| of_text(&side.name) + TREE_ENTRY_BYTES).sum::<usize>()
}

fn of_node(node: &Node) -> usize {
    let texts = [
        &node.machine_id,
        &node.boot_id,
        &node.system_name,
        &node.hostname,
        &node.release,
        &node.version,
        &node.hardware_name,
        &node.domain_name,
    ];
    size_of::<Node>() + texts.into_iter().map(|text| of_text(text)).sum::<usize>()
}

fn of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + ALLOCATION_BYTES }
}
