use super::block::{BlockHeader, BlockKind};
use super::block_ref::BlockRef;
use super::index::ENTRY_BYTES;
use super::owner::Owner;
use super::pending::{Pending, Strings};
use super::reserve::Reserve;
use super::{ZSTD_LEVEL, checksum, file_header};
use crate::codec::{MAX_RAW_BYTES, MAX_ROWS, encode_columns, encode_handles};
use crate::model::row_types::TableRow;
use crate::model::{Keys, Local, Rows, RowsBuilder, Schema, TableId, Value};
use crate::record::{LossCause, RunIdentity, wire};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Maximum bytes of text and blobs in one row.
pub const MAX_VALUE_BYTES: usize = 16 << 20;
/// A block is closed when its texts have this many bytes.
const BLOCK_TEXT_BYTES: usize = 4 << 20;

/// Error of writing a shard.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The operating system reported an error.
    #[error("failed to write the shard: {0}")]
    Io(#[from] io::Error),
    /// The table was not described before the row.
    #[error("failed to write a row: {0} is not described in this shard")]
    UnknownTable(TableId),
    /// The row exceeds [`MAX_VALUE_BYTES`], or the string exceeds
    /// [`MAX_STRING_LENGTH`](super::MAX_STRING_LENGTH).
    #[error("failed to write a row of {table}: its text has {bytes} bytes, at most {most} are allowed")]
    TextTooLong {
        /// The table.
        table: TableId,
        /// Actual number of bytes.
        bytes: usize,
        /// Maximum number of bytes.
        most: usize,
    },
    /// A block or record is larger than readers accept.
    #[error("failed to write a block: it has {0} bytes, at most {MAX_RAW_BYTES} are allowed")]
    BlockTooLong(usize),
    /// The number of a carried table is reserved for built-in tables.
    #[error("failed to describe a table: number {0:?} is reserved for built-in tables")]
    Reserved(TableId),
}

/// Writes one shard.
///
/// The sink receives each block in two writes; on a shared file system wrap it in a buffer of one megabyte.
/// [`ShardWriter::finish`] writes the end if there is space. For a file that may reach its limit see
/// [`ShardWriter::end`].
pub struct ShardWriter<W: Write> {
    pub(super) sink: W,
    /// Bytes of the shard so far.
    pub(super) position: u64,
    pub(super) schema: Schema,
    /// The identity record, encoded.
    pub(super) identity: Vec<u8>,
    /// The last record of each process, encoded.
    pub(super) processes: BTreeMap<u32, Vec<u8>>,
    /// The last record of the command, encoded.
    pub(super) command: Option<Vec<u8>>,
    pub(super) losses: BTreeMap<(u32, Option<TableId>, LossCause), Option<u64>>,
    /// Positions of open blocks in `pending`. An entry is never removed.
    pub(super) places: BTreeMap<(u32, TableId), usize>,
    pub(super) pending: Vec<Pending>,
    /// Position of the block that got the last row; the next row usually belongs to it too.
    last: usize,
    /// Number of rows in all open blocks.
    pub(super) pending_rows: usize,
    /// Position of the open block that reuses the memory of an earlier block.
    warm: usize,
    pub(super) strings: Strings,
    pub(super) blocks: Vec<BlockRef>,
    /// Buffers for a block before and after compression, reused for every block.
    raw: Vec<u8>,
    pub(super) stored: Vec<u8>,
    zstd: zstd::bulk::Compressor<'static>,
    pub(super) reserve: Reserve,
    /// The owner of a foreign file. Its facts about processes replace those of the file.
    pub(super) owner: Option<Box<Owner>>,
}

impl<W: Write> ShardWriter<W> {
    /// Starts a shard: writes the file header and the identity.
    pub fn new(sink: W, run: &RunIdentity) -> Result<ShardWriter<W>, WriteError> {
        let mut writer = ShardWriter {
            sink,
            position: 0,
            schema: Schema::builtin().clone(),
            identity: wire::encode(run),
            processes: BTreeMap::new(),
            command: None,
            losses: BTreeMap::new(),
            places: BTreeMap::new(),
            pending: Vec::new(),
            last: 0,
            pending_rows: 0,
            warm: 0,
            strings: Strings::default(),
            blocks: Vec::new(),
            raw: Vec::new(),
            stored: Vec::new(),
            zstd: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            reserve: Reserve::default(),
            owner: None,
        };
        writer.write(&file_header())?;
        writer.record(BlockKind::Identity, 0, &wire::encode(run))?;
        Ok(writer)
    }

    /// Starts the shard of a translated file with the limit, clock sets and processes of its owner.
    pub fn of_owner(sink: W, owner: &Owner) -> Result<ShardWriter<W>, WriteError> {
        let mut writer = ShardWriter::new(sink, &owner.run)?;
        writer.reserve.limit = owner.most_bytes;
        owner.clocks.iter().try_for_each(|set| writer.clock(set))?;
        writer.owner = owner.processes.is_some().then(|| Box::new(owner.clone()));
        Ok(writer)
    }

    /// Adds a row with one value per column, in the order of the description. Returns its key.
    #[inline]
    pub fn push(&mut self, source: u32, table: TableId, row: &[Value<'_>]) -> Result<i64, WriteError> {
        let place = self.place(source, table)?;
        if self.reserve.full {
            let open = &mut self.pending[place];
            open.lost += 1;
            return Ok(open.last_key());
        }
        let rows = &mut self.pending[place].rows;
        if !rows.push_numbers(row) {
            let text = |v: &Value<'_>| if let Value::Text(t) | Value::Blob(t) = v { t.len() } else { 0 };
            let bytes = row.iter().map(text).sum();
            if bytes > MAX_VALUE_BYTES {
                return Err(WriteError::TextTooLong { table, bytes, most: MAX_VALUE_BYTES });
            }
            rows.push(row);
        }
        self.pending_rows += 1;
        self.pushed(place)
    }

    /// Adds a typed row of a process. Returns its key.
    ///
    /// # Errors
    /// Fails in the same cases as [`ShardWriter::push`].
    #[inline]
    pub fn push_row<R: TableRow>(&mut self, source: u32, row: &R) -> Result<R::Key, WriteError> {
        row.with_values(|values| self.push(source, R::TABLE, values)).map(R::key)
    }

    /// Adds a row with a handle as its key. Either all rows of a process's table have such a key or none. The keys
    /// must ascend.
    pub fn push_with_key(
        &mut self,
        source: u32,
        table: TableId,
        key: i64,
        row: &[Value<'_>],
    ) -> Result<(), WriteError> {
        let place = self.place(source, table)?;
        if !self.reserve.full {
            self.pending[place].handles.push(key);
        }
        let pushed = self.push(source, table, row);
        // A rejected row must not leave a key. If the row closed its block, the key was written with the block.
        if pushed.is_err() {
            let open = &mut self.pending[place];
            open.handles.truncate(open.rows.len());
        }
        pushed.map(drop)
    }

    /// Returns the position of the open block of a table.
    #[inline]
    fn place(&mut self, source: u32, table: TableId) -> Result<usize, WriteError> {
        match self.pending.get(self.last) {
            Some(pending) if pending.source == source && pending.table == table => {}
            _ => self.last = self.find(source, table)?,
        }
        Ok(self.last)
    }

    #[cold]
    fn find(&mut self, source: u32, table: TableId) -> Result<usize, WriteError> {
        if let Some(place) = self.places.get(&(source, table)) {
            return Ok(*place);
        }
        let description = self.schema.get(table).ok_or(WriteError::UnknownTable(table))?;
        let rows = RowsBuilder::new(description);
        self.places.insert((source, table), self.pending.len());
        self.pending.push(Pending { source, table, written: 0, lost: 0, rows, handles: Vec::new() });
        Ok(self.pending.len() - 1)
    }

    /// Returns the key of the row that was added last at `place`. Writes the block if it is full.
    #[inline]
    fn pushed(&mut self, place: usize) -> Result<i64, WriteError> {
        let open = &self.pending[place];
        let key = open.last_key();
        if open.rows.len() == MAX_ROWS || open.rows.text_bytes() >= BLOCK_TEXT_BYTES {
            self.flush_source(open.source)?;
        }
        Ok(key)
    }

    /// Writes all pending rows and strings, and flushes the sink.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let mut sources: Vec<u32> = self.places.keys().map(|(source, _)| *source).collect();
        sources.dedup();
        for source in sources {
            self.flush_source(source)?;
        }
        self.flush_strings()?;
        Ok(self.sink.flush()?)
    }

    /// Returns the number of rows that are in no block yet.
    pub fn pending_rows(&self) -> usize {
        self.pending_rows
    }

    /// Returns the number of bytes written to the sink so far.
    pub fn bytes_written(&self) -> u64 {
        self.position
    }

    /// Writes the open blocks of a process: strings first, then tables in the order of their numbers. A row thus
    /// follows all rows that it refers to, so that a truncated shard is consistent up to its end.
    fn flush_source(&mut self, source: u32) -> Result<(), WriteError> {
        self.flush_strings()?;
        let tables = self.places.range((source, TableId(0))..=(source, TableId(u16::MAX)));
        let places: Vec<usize> = tables.map(|(_, place)| *place).collect();
        for place in places {
            let open = &mut self.pending[place];
            let Some(description) = self.schema.get(open.table) else { continue };
            if open.rows.is_empty() {
                continue;
            }
            let rows = std::mem::replace(&mut open.rows, RowsBuilder::new(description));
            let handles = std::mem::take(&mut open.handles);
            // If blocks were lost because the shard is full, row numbers continue after the rows that were kept.
            let first = open.written as i64 + 1;
            let mut rows = rows.finish(first);
            if !handles.is_empty() {
                rows.keys = Keys::Sparse(handles);
            }
            self.pending_rows = self.pending_rows.saturating_sub(rows.len);
            let written = self.rows(source, first, &rows);
            let open = &mut self.pending[place];
            let is_written = matches!(written, Ok(true));
            *(if is_written { &mut open.written } else { &mut open.lost }) += rows.len as u64;
            // Only a table that fills its blocks keeps their memory for the next block.
            if rows.len == MAX_ROWS && is_written {
                open.rows.reuse(rows.columns);
                self.keep_warm(place);
            }
            written?;
        }
        Ok(())
    }

    /// Frees the unused memory of the previous warm block. Only one open block keeps unused memory, because
    /// processes start and end often.
    fn keep_warm(&mut self, place: usize) {
        let before = std::mem::replace(&mut self.warm, place);
        if before != place
            && let Some(open) = self.pending.get_mut(before)
            && open.rows.is_empty()
            && let Some(description) = self.schema.get(open.table)
        {
            open.rows = RowsBuilder::new(description);
        }
    }

    fn flush_strings(&mut self) -> Result<(), WriteError> {
        while self.strings.flushed < self.strings.cells.ends.len() {
            let first = self.strings.flushed;
            let mut rows = RowsBuilder::new(&Schema::builtin().tables()[0]);
            while first + rows.len() < self.strings.cells.ends.len()
                && rows.len() < MAX_ROWS
                && rows.text_bytes() < BLOCK_TEXT_BYTES
            {
                let code = (first + rows.len()) as u32;
                rows.push(&[Value::Text(self.strings.cells.entry(code))]);
            }
            // Strings that do not fit are counted as lost when the shard is declared full.
            let rows = rows.finish(first as i64 + 1);
            if self.rows(0, first as i64 + 1, &rows)? {
                self.strings.flushed += rows.len;
            }
        }
        Ok(())
    }

    /// Writes a block of rows; `first` is the number of its first row. Returns false if the shard is full.
    fn rows(&mut self, source: u32, first: i64, rows: &Rows<Local>) -> Result<bool, WriteError> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let handles = match &rows.keys {
            Keys::Sparse(keys) => {
                encode_handles(keys, &mut raw);
                true
            }
            Keys::Dense(_) => false,
        };
        encode_columns(&rows.table, &rows.columns, rows.len, &mut raw);
        let (min_time, max_time) = rows.time_bounds().unwrap_or((i64::MAX, i64::MIN));
        let written = self.block(
            BlockHeader {
                first_key: first,
                handles,
                rows: rows.len as u32,
                min_time,
                max_time,
                ..record_header(BlockKind::Rows(rows.id()), source)
            },
            &raw,
        );
        self.raw = raw;
        written
    }

    /// Writes a record. Returns false if the shard is full.
    pub(super) fn record(&mut self, kind: BlockKind, source: u32, raw: &[u8]) -> Result<bool, WriteError> {
        self.block(record_header(kind, source), raw)
    }

    /// Compresses and writes one block. If the end would not fit after it, declares the shard full and returns false.
    fn block(&mut self, header: BlockHeader, raw: &[u8]) -> Result<bool, WriteError> {
        if self.reserve.full {
            return Ok(false);
        }
        let header = self.compress(header, raw)?;
        let block = BlockRef { offset: self.position, header };
        // Index entry of this block; compression adds less than one byte to it.
        let entry = ENTRY_BYTES as u64 + 1;
        if block.end().saturating_add(entry + self.max_end_bytes()) > self.reserve.limit {
            self.fill();
            return Ok(false);
        }
        self.blocks.push(block);
        self.write(&header.to_bytes())?;
        let stored = std::mem::take(&mut self.stored);
        self.write(&stored)?;
        self.stored = stored;
        Ok(true)
    }

    /// Compresses a block into `stored`. Sets the lengths and the checksum of the header.
    pub(super) fn compress(
        &mut self,
        mut header: BlockHeader,
        raw: &[u8],
    ) -> Result<BlockHeader, WriteError> {
        if raw.len() > MAX_RAW_BYTES {
            return Err(WriteError::BlockTooLong(raw.len()));
        }
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.zstd.compress_to_buffer(raw, &mut self.stored)?;
        header.raw_bytes = raw.len() as u32;
        header.stored_bytes = self.stored.len() as u32;
        header.checksum = checksum(&self.stored);
        Ok(header)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.sink.write_all(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}

/// Returns the header of a record without lengths and checksum.
pub(super) fn record_header(kind: BlockKind, source: u32) -> BlockHeader {
    BlockHeader {
        kind,
        source,
        first_key: 0,
        handles: false,
        rows: 0,
        raw_bytes: 0,
        stored_bytes: 0,
        min_time: i64::MAX,
        max_time: i64::MIN,
        checksum: 0,
    }
}
