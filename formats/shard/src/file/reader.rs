use super::block::BlockKind;
use super::block_ref::{BlockDamage, BlockRef, Damage, payload};
use super::open_error::{OpenError, check_file_header};
use super::side_records::SideRecords;
use super::strings::{MAX_STRING_LENGTH, ShardStrings};
use super::{Bytes, Version, index};
use crate::codec::{decode_handles, decode_needed};
use crate::model::{Column, Keys, Local, Rows, Schema, Value, rocpd};
use crate::record::{ClockSet, Ledger, ProbeBurst, Process, ProfilerLoss, RunIdentity, Selection};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Error of reading a block. The rows of this block are lost, those of other blocks are not.
#[derive(Debug, thiserror::Error)]
#[error("{path}: block at offset {offset} ({rows} rows of {kind}): {cause}")]
pub struct BlockError {
    /// Path of the shard.
    pub path: PathBuf,
    /// Offset of the block, bytes.
    pub offset: u64,
    /// Table or record kind of the block.
    pub kind: String,
    /// Number of rows in the block.
    pub rows: u32,
    /// Reason.
    pub cause: BlockDamage,
}

/// An open shard: its blocks are located and its side records read; its rows are not read yet.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    bytes: Bytes,
    version: Version,
    schema: Schema,
    blocks: Vec<BlockRef>,
    damage: Vec<Damage>,
    /// Run and collector that the shard belongs to.
    pub identity: RunIdentity,
    /// Processes by their number in the shard.
    pub processes: BTreeMap<u32, Process>,
    /// The command that the collector was started for, traced or not. Older releases did not record it.
    pub command: Option<Box<Process>>,
    /// Clock sets in the order of recording.
    pub clocks: Vec<ClockSet>,
    /// Probe bursts from this node to others, in the order of recording. Only one collector per node records them.
    pub probes: Vec<ProbeBurst>,
    /// Rows that the collector wrote and lost; `None` if the shard was not finished.
    pub ledger: Option<Ledger>,
    /// Ranks that the user chose to record; `None` if all ranks are recorded.
    pub selection: Option<Selection>,
    /// Profilers with missing rows, in the order of recording.
    pub profiler_losses: Vec<ProfilerLoss>,
}

impl Shard {
    /// Opens a shard file.
    pub fn open(path: &Path) -> Result<Shard, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let bytes = Bytes::open(path).map_err(io)?;
        Shard::from_bytes(path, bytes)
    }

    /// Opens a shard in memory; messages use `name` as its path.
    pub fn from_memory(name: &str, bytes: &[u8]) -> Result<Shard, OpenError> {
        Shard::from_bytes(Path::new(name), Bytes::memory(bytes))
    }

    fn from_bytes(path: &Path, bytes: Bytes) -> Result<Shard, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let version = check_file_header(path, &bytes)?;
        let found = index::find(&bytes).map_err(io)?;
        let mut records = SideRecords::default();
        for block in found.blocks.iter().filter(|b| !matches!(b.header.kind, BlockKind::Rows(_))) {
            // A damaged record is reported like any other damage; its second copy may be intact.
            let taken = (!records.is_full_of(block.header.kind))
                .then(|| payload(&bytes, block).ok())
                .flatten()
                .and_then(|raw| records.take(block.header.kind, &raw));
            if taken.is_none() {
                records.damaged.push(Damage {
                    offset: block.offset,
                    bytes: block.header.total_bytes(),
                    block: Some(block.header),
                });
            }
        }
        let identity = records.identity.ok_or_else(|| OpenError::NoIdentity { path: path.to_owned() })?;
        let mut damage = found.damage;
        damage.extend(records.damaged);
        damage.sort_by_key(|d| d.offset);
        Ok(Shard {
            path: path.to_owned(),
            bytes,
            version,
            schema: records.schema.unwrap_or_else(|| Schema::builtin().clone()),
            blocks: found.blocks,
            damage,
            identity,
            processes: records.processes,
            command: records.command,
            clocks: records.clocks,
            probes: records.probes,
            ledger: records.ledger,
            selection: records.selection,
            profiler_losses: records.profiler_losses,
        })
    }

    /// Returns the path of the shard.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version in the header; the newest version if the header is damaged.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the size of the shard, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.len()
    }

    /// Returns whether the collector finished the shard. If not, rows at the end may be missing.
    pub fn complete(&self) -> bool {
        self.ledger.is_some()
    }

    /// Closes the file. The next read reopens it, and fails if the file was replaced meanwhile. A merge needs this
    /// because a job has more shards than a process may have open files.
    pub fn release(&self) {
        self.bytes.release();
    }

    /// Frees everything that is not needed to read strings and single blocks, for a caller that has read the rest.
    /// Discards the other blocks, the damage, processes, command, ledger, selection and profiler losses.
    pub fn forget_records(&mut self) {
        self.blocks.retain(|block| block.header.kind == BlockKind::Rows(rocpd::STRING));
        self.blocks.shrink_to_fit();
        self.damage = Vec::new();
        (self.processes, self.command) = (BTreeMap::new(), None);
        (self.ledger, self.selection) = (None, None);
        self.profiler_losses = Vec::new();
    }

    /// Returns the bytes that belong to no complete block, and the damaged side records.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns all blocks, in the order of the file.
    pub fn blocks(&self) -> &[BlockRef] {
        &self.blocks
    }

    /// Returns the tables of this shard.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Reads the rows of a block of kind [`BlockKind::Rows`].
    pub fn rows(&self, block: &BlockRef) -> Result<Rows<Local>, BlockError> {
        self.rows_of(block, &|_| true).map_err(|cause| self.error(block, cause))
    }

    /// Reads the rows of a block for a caller that does not need all columns. Columns for which `needed` returns
    /// false may be absent if they are integers without NULL. Fails in the same cases as [`Shard::rows`].
    pub fn needed_rows(
        &self,
        block: &BlockRef,
        needed: &dyn Fn(&Column) -> bool,
    ) -> Result<Rows<Local>, BlockError> {
        self.rows_of(block, needed).map_err(|cause| self.error(block, cause))
    }

    fn rows_of(
        &self,
        block: &BlockRef,
        needed: &dyn Fn(&Column) -> bool,
    ) -> Result<Rows<Local>, BlockDamage> {
        let header = &block.header;
        let BlockKind::Rows(table) = header.kind else { return Err(BlockDamage::UnknownTable) };
        let table = self.schema.get(table).ok_or(BlockDamage::UnknownTable)?;
        let raw = payload(&self.bytes, block)?;
        let rows = header.rows as usize;
        let mut input = &raw[..];
        let keys = match header.handles {
            true => Keys::Sparse(decode_handles(&mut input, rows)?),
            false => Keys::Dense(header.first_key),
        };
        let columns = decode_needed(table, input, rows, needed)?;
        Ok(Rows::new(table.clone(), keys, columns, rows))
    }

    /// Reads the string table. Also returns the errors of string blocks that could not be read.
    pub fn strings(&self) -> (ShardStrings, Vec<BlockError>) {
        let mut strings = ShardStrings::default();
        let mut errors = Vec::new();
        let of_strings = |b: &&BlockRef| b.header.kind == BlockKind::Rows(rocpd::STRING);
        for block in self.blocks.iter().filter(of_strings) {
            let added = self.rows_of(block, &|_| true).and_then(|rows| {
                let cells = rows.column("string");
                let text = |i| match cells.get(i) {
                    Value::Text(text) => text,
                    _ => b"",
                };
                let bytes = (0..rows.len).map(|i| text(i).len()).sum();
                let longest = (0..rows.len).map(|i| text(i).len()).max();
                if longest > Some(MAX_STRING_LENGTH)
                    || block.header.first_key < 1
                    || block.header.handles
                    || !strings.is_within_limits(block.header.first_key, rows.len, bytes)
                {
                    return Err(BlockDamage::Strings);
                }
                (0..rows.len).for_each(|i| strings.add(rows.keys.get(i), text(i)));
                Ok(())
            });
            if let Err(cause) = added {
                errors.push(self.error(block, cause));
            }
        }
        (strings, errors)
    }

    fn error(&self, block: &BlockRef, cause: BlockDamage) -> BlockError {
        let kind = match block.header.kind {
            BlockKind::Rows(table) => {
                self.schema.get(table).map_or_else(|| table.to_string(), |t| t.name.clone())
            }
            kind => format!("{kind:?}"),
        };
        BlockError { path: self.path.clone(), offset: block.offset, kind, rows: block.header.rows, cause }
    }
}
