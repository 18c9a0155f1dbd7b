//! Decodes leaf pages into columns.

use super::cell::{SERIALS, Types, class, classify, eight, varint};
use super::columns::{Column, ColumnPlace, Expected, TooLong};
use super::database::PageDatabase;
use super::error::{PageError, PageProblem};
use super::leaves::header_offset;
use crate::format::{TABLE_LEAF, local_payload, u16_at, u32_at};
use rpd_shard::model::{Cells, Keys, Value};
use std::ops::Range;

/// Length of a leaf's header in bytes.
const LEAF_HEAD: usize = 8;
/// Maximum number of bytes of one read, unless a page is larger.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of consecutive pages of other tables that one read includes rather than skips.
const MAX_GAP: u32 = 3;
/// Number of zero bytes after the pages, so that 8 bytes can be loaded at the last value.
const SLACK_BYTES: usize = 8;
/// Maximum number of bytes in memory: offsets are u32, and value lengths are added to them.
const MAX_PAYLOAD_BYTES: usize = 1 << 31;

/// The output that is wanted for a column of the record.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// No output: [`Cells::Absent`].
    Skip,
    /// `INTEGER PRIMARY KEY`: the rowid, as integers.
    RowidAlias,
    /// The values with their stored types. A column with REAL affinity stores integral values as integers.
    Value {
        /// Value of rows that were written before the column was added: the column's default, or NULL.
        default: Value<'a>,
    },
    /// The values, with integers converted to floating-point numbers, as REAL affinity requires.
    Real {
        /// See [`Wanted::Value`].
        default: Value<'a>,
    },
}

/// Rows of a table.
#[derive(Debug)]
pub struct TableRows {
    /// The rowids, ascending.
    pub keys: Keys,
    /// One entry per wanted column: `Int`, `Real` or `Text` if all values have that type or are NULL, else `Any`. A
    /// column that contains only NULL is `Int`. Equal texts that are not close to each other may have several
    /// codes.
    pub columns: Vec<Cells>,
    /// Number of rows.
    pub len: usize,
}

impl PageDatabase {
    /// Decodes leaf pages of one table, in the given order. `wanted` has one entry per column of the record.
    /// Further columns of a record are ignored.
    ///
    /// # Errors
    /// Returns the error of the first damaged page; the pages before and after it can be read without it. The texts
    /// of one column may have up to 4 GiB. All long rows together may not have more bytes than the file.
    pub fn rows(&self, pages: &[u32], wanted: &[Wanted<'_>]) -> Result<TableRows, PageError> {
        self.rows_bounded(pages, wanted, self.bytes())
    }

    /// Decodes leaf pages like [`rows`](PageDatabase::rows), with at most `overflow` bytes in overflow pages.
    /// Returns [`PageProblem::TooLong`] if there are more.
    pub fn rows_bounded(
        &self,
        pages: &[u32],
        wanted: &[Wanted<'_>],
        overflow: u64,
    ) -> Result<TableRows, PageError> {
        self.decode(pages, Decoder::new(self, wanted, pages.len(), overflow))
    }

    /// Decodes the rows of some cells of one leaf page. Cells are numbered like the result of
    /// [`PageDatabase::payloads`].
    pub fn rows_of_cells(
        &self,
        page: u32,
        cells: Range<usize>,
        wanted: &[Wanted<'_>],
    ) -> Result<TableRows, PageError> {
        let decoder = Decoder::new(self, wanted, 1, self.bytes());
        self.decode(&[page], Decoder { wanted_cells: cells, ..decoder })
    }

    /// Returns the payload length of each cell of a leaf page in bytes, in the order of the rowids. The lengths are
    /// those stored in the page; they are not checked.
    pub fn payloads(&self, page: u32) -> Result<Vec<u64>, PageError> {
        let mut bytes = vec![0; self.page_size];
        self.read_from(page, &mut bytes)?;
        let cell = |pointer| Cell::at(&bytes[..self.usable], pointer).map(|cell| cell.length);
        let head = header_offset(page);
        let lengths = match bytes.get(head) {
            Some(&TABLE_LEAF) => {
                let cells = usize::from(u16_at(&bytes, head + 3).unwrap_or(0));
                let pointers = (0..cells).map(|i| u16_at(&bytes, head + LEAF_HEAD + 2 * i));
                pointers.map(|pointer| cell(usize::from(pointer?))).collect::<Option<Vec<u64>>>()
            }
            _ => None,
        };
        lengths.ok_or_else(|| self.error(page, PageProblem::Cells))
    }

    fn bytes(&self) -> u64 {
        u64::from(self.page_count()) * self.page_size as u64
    }

    fn decode(&self, pages: &[u32], mut decoder: Decoder<'_>) -> Result<TableRows, PageError> {
        let mut rest = pages;
        while let Some((first, _)) = rest.split_first() {
            let (near, far) = rest.split_at(self.close_by(rest));
            let last = near.last().unwrap_or(first);
            decoder.read(*first, *last)?;
            for page in near {
                decoder.page(*page, (page - first) as usize * self.page_size)?;
            }
            rest = far;
        }
        Ok(decoder.finish())
    }

    /// Returns how many of these pages are read in one call.
    fn close_by(&self, pages: &[u32]) -> usize {
        let most = (READ_BYTES / self.page_size).max(1) as u32;
        let first = pages.first().copied().unwrap_or(0);
        let close = |pair: &[u32]| {
            let [before, page] = pair else { return false };
            page > before && page - before <= MAX_GAP + 1 && page - first < most && *page <= self.page_count()
        };
        1 + pages.windows(2).take_while(|pair| close(pair)).count()
    }
}

/// Decodes pages one after another.
struct Decoder<'a> {
    database: &'a PageDatabase,
    wanted: &'a [Wanted<'a>],
    /// One entry per wanted column; `None` for columns that are not collected.
    columns: Vec<Option<Column>>,
    keys: RowIds,
    /// Consecutive pages, then the long payloads of the current page, then [`SLACK`].
    bytes: Vec<u8>,
    /// Number of bytes of the pages.
    read: usize,
    /// Positions of the rows of the current page.
    places: Vec<ColumnPlace>,
    /// Rowids of the current page.
    rowids: Vec<i64>,
    /// Number of pages that are not decoded yet.
    pages: usize,
    /// Number of bytes that overflow pages may still contribute.
    overflow: u64,
    /// Range of the cells to decode on each page.
    wanted_cells: Range<usize>,
}

impl<'a> Decoder<'a> {
    fn new(database: &'a PageDatabase, wanted: &'a [Wanted<'a>], pages: usize, overflow: u64) -> Decoder<'a> {
        let column = |wanted: &Wanted<'_>| match wanted {
            Wanted::Skip | Wanted::RowidAlias => None,
            Wanted::Value { .. } => Some(Column::new(false)),
            Wanted::Real { .. } => Some(Column::new(true)),
        };
        Decoder {
            database,
            wanted,
            columns: wanted.iter().map(column).collect(),
            keys: RowIds::default(),
            bytes: Vec::new(),
            read: 0,
            places: Vec::new(),
            rowids: Vec::new(),
            pages,
            overflow,
            wanted_cells: 0..usize::MAX,
        }
    }

    fn read(&mut self, first: u32, last: u32) -> Result<(), PageError> {
        self.read = (last - first + 1) as usize * self.database.page_size;
        self.bytes.resize(self.read + SLACK_BYTES, 0);
        self.database.read_from(first, &mut self.bytes[..self.read])?;
        self.bytes[self.read..].fill(0);
        Ok(())
    }

    /// Adds the rows of the page at `offset` in the bytes.
    fn page(&mut self, page: u32, offset: usize) -> Result<(), PageError> {
        let database = self.database;
        self.cells(page, offset).map_err(|problem| database.error(page, problem))
    }

    fn cells(&mut self, page: u32, offset: usize) -> Result<(), PageProblem> {
        self.locate(page, offset)?;
        self.columns()?;
        if let Some(row) = self.places.iter().position(|place| place.values > place.end) {
            return Err(self.damaged(row));
        }
        if self.bytes.len() > self.read + SLACK_BYTES {
            self.bytes.truncate(self.read);
            self.bytes.resize(self.read + SLACK_BYTES, 0);
        }
        let expected = self.expected();
        self.keys.append(&self.rowids, expected.rows);
        self.pages = self.pages.saturating_sub(1);
        Ok(())
    }

    fn damaged(&self, row: usize) -> PageProblem {
        PageProblem::Record { rowid: self.rowids.get(row).copied().unwrap_or(0) }
    }

    /// Estimates the rows and bytes from the current page on, assuming that the other pages are similar. Adds a
    /// margin of rows, but not more rows than the pages could hold.
    fn expected(&self) -> Expected {
        let rows = self.rowids.len();
        let most = self.database.usable / (self.wanted.len() + 4);
        Expected {
            rows: (rows + rows / 16 + 1).min(most).max(rows).saturating_mul(self.pages),
            bytes: self.pages.saturating_mul(self.database.usable),
        }
    }

    /// Finds the records of a page.
    fn locate(&mut self, page: u32, offset: usize) -> Result<(), PageProblem> {
        let usable = self.database.usable;
        let head = header_offset(page);
        let bytes = self.bytes.get(offset..offset + usable).ok_or(PageProblem::Missing)?;
        match bytes.get(head) {
            Some(&TABLE_LEAF) => {}
            other => return Err(PageProblem::Type(other.copied().unwrap_or(0))),
        }
        let cells = usize::from(u16_at(bytes, head + 3).unwrap_or(0));
        let content = head + LEAF_HEAD + 2 * cells;
        let pointers = bytes.get(head + LEAF_HEAD..content).ok_or(PageProblem::Cells)?;
        let mut last = self.keys.last();
        let mut free_bytes = usable - content;
        let mut long = Vec::new();
        self.places.clear();
        self.rowids.clear();
        let wanted = self.wanted_cells.clone();
        for pointer in pointers.chunks_exact(2).take(wanted.end).skip(wanted.start) {
            let at = usize::from(u16::from_be_bytes([pointer[0], pointer[1]]));
            let cell = Cell::at(bytes, at).filter(|_| at >= content).ok_or(PageProblem::Cells)?;
            // Overlapping cells would have more bytes in total than the page.
            free_bytes = free_bytes.checked_sub(cell.end - at).ok_or(PageProblem::Cells)?;
            if last.is_some_and(|last| last >= cell.rowid) {
                return Err(PageProblem::Order);
            }
            last = Some(cell.rowid);
            self.rowids.push(cell.rowid);
            if let Some(link) = cell.link {
                long.push((self.places.len(), link, cell));
                self.places.push(ColumnPlace::default());
                continue;
            }
            let (header, types) = header(bytes, &cell)?;
            let start = offset + cell.payload;
            self.places.push(ColumnPlace::new(offset + types, start + header as usize, start + cell.local));
        }
        for (row, link, cell) in long {
            self.places[row] = self.gather(link, &cell, offset)?;
        }
        Ok(())
    }

    /// Appends a payload that continues in overflow pages to the bytes of the pages.
    ///
    /// An overflow page is `next page (u32), bytes`.
    fn gather(&mut self, mut link: u32, cell: &Cell, offset: usize) -> Result<ColumnPlace, PageProblem> {
        let database = self.database;
        let start = self.bytes.len();
        let mut rest = cell.length - cell.local as u64;
        self.overflow = self.overflow.checked_sub(rest).ok_or(PageProblem::TooLong)?;
        if cell.length > MAX_PAYLOAD_BYTES.saturating_sub(start) as u64 {
            return Err(PageProblem::TooLong);
        }
        let local = offset + cell.payload;
        self.bytes.extend_from_within(local..local + cell.local);
        let mut page = vec![0; database.usable];
        while rest > 0 {
            let broken = PageProblem::Overflow { rowid: cell.rowid, overflow: link };
            database.read_from(link, &mut page).map_err(|error| match error.problem {
                PageProblem::Missing => broken,
                problem => problem,
            })?;
            let (next, bytes) = page.split_at(4);
            let bytes = &bytes[..bytes.len().min(usize::try_from(rest).unwrap_or(usize::MAX))];
            self.bytes.extend_from_slice(bytes);
            rest -= bytes.len() as u64;
            link = u32_at(next, 0).unwrap_or(0);
        }
        let end = self.bytes.len();
        self.bytes.resize(end + SLACK_BYTES, 0);
        let whole = Cell { payload: start, local: end - start, ..*cell };
        let (header, types) = header(&self.bytes, &whole)?;
        Ok(ColumnPlace::new(types, start + header as usize, end))
    }

    /// Adds the values of the page, column by column.
    fn columns(&mut self) -> Result<(), PageProblem> {
        let expected = self.expected();
        let mut next = 0;
        while next < self.wanted.len() {
            let bytes = &self.bytes;
            // Up to 8 columns that all rows have.
            let left = |place: &ColumnPlace| place.header_end.saturating_sub(place.types) as usize;
            let Some(left) = self.places.iter().map(left).min() else { return Ok(()) };
            let mut types = [Types::default(); 8];
            let types = &mut types[..left.min(8).min(self.wanted.len() - next)];
            classify(self.places.iter().map(|place| eight(bytes, place.types as usize)), types);
            let short = |types: &&Types| types.classes & (class::LONG | class::BAD) == 0;
            let short = types.iter().take_while(short).count();
            for (i, (column, types)) in self.columns[next..].iter_mut().zip(&types[..short]).enumerate() {
                match (column, types.only) {
                    (Some(column), _) => column.append(bytes, expected, &mut self.places, i, *types)?,
                    (None, Some(only)) => {
                        let length = u32::from(SERIALS[usize::from(only)].length);
                        self.places.iter_mut().for_each(|place| place.values += length);
                    }
                    (None, None) => self.places.iter_mut().for_each(|place| {
                        place.values += u32::from(place.serial(bytes, i).length);
                    }),
                }
            }
            self.places.iter_mut().for_each(|place| place.types += short as u32);
            next += short;
            if short < 8 && next < self.wanted.len() {
                self.by_value(next, expected)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Adds a column that some rows do not have, or that has serial types of several bytes.
    fn by_value(&mut self, column: usize, expected: Expected) -> Result<(), PageProblem> {
        let (Some(collected), Some(wanted)) = (self.columns.get_mut(column), self.wanted.get(column)) else {
            return Ok(());
        };
        if let Some(collected) = collected {
            collected.reserve_rows(self.places.len(), expected);
        }
        for (place, rowid) in self.places.iter_mut().zip(&self.rowids) {
            let value = place.next(&self.bytes).ok_or(PageProblem::Record { rowid: *rowid })?;
            let Some(collected) = collected else { continue };
            collected.push(match (value, wanted) {
                (Some(value), _) => value,
                (None, Wanted::Value { default } | Wanted::Real { default }) => *default,
                (None, Wanted::Skip | Wanted::RowidAlias) => Value::Null,
            })?;
        }
        Ok(())
    }

    fn finish(self) -> TableRows {
        let keys = self.keys;
        let columns =
            self.columns.into_iter().zip(self.wanted).map(|(column, wanted)| match (column, wanted) {
                (Some(column), _) => column.finish(),
                (None, Wanted::RowidAlias) => {
                    Cells::ints((0..keys.len).map(|row| keys.keys.get(row)).collect())
                }
                (None, _) => Cells::Absent,
            });
        TableRows { columns: columns.collect(), len: keys.len, keys: keys.keys }
    }
}

/// Ascending rowids, stored as a list only if there are gaps.
#[derive(Debug)]
struct RowIds {
    keys: Keys,
    len: usize,
}

impl Default for RowIds {
    fn default() -> Self {
        RowIds { keys: Keys::Dense(0), len: 0 }
    }
}

impl RowIds {
    fn last(&self) -> Option<i64> {
        Some(self.keys.get(self.len.checked_sub(1)?))
    }

    /// Adds the rowids of a page; `expected` rowids are expected from this page on.
    fn append(&mut self, rowids: &[i64], expected: usize) {
        let (Some(first), Some(last)) = (rowids.first(), rowids.last()) else { return };
        // Rowids ascend, so equality means that there is no gap.
        let dense = last.wrapping_sub(*first) == rowids.len() as i64 - 1;
        let before = self.last();
        match (&mut self.keys, before) {
            (keys, None) if dense => *keys = Keys::Dense(*first),
            (Keys::Dense(_), Some(before)) if dense && before.checked_add(1) == Some(*first) => {}
            (Keys::Sparse(keys), _) => keys.extend_from_slice(rowids),
            (keys @ Keys::Dense(_), _) => {
                let mut all = Vec::with_capacity(self.len + expected);
                all.extend((0..self.len).map(|row| keys.get(row)));
                all.extend_from_slice(rowids);
                *keys = Keys::Sparse(all);
            }
        }
        self.len += rowids.len();
    }
}

/// A cell of a leaf.
struct Cell {
    rowid: i64,
    /// Length of the payload in bytes.
    length: u64,
    /// Offset of the payload.
    payload: usize,
    /// Number of payload bytes in the cell itself.
    local: usize,
    /// The first overflow page with the rest.
    link: Option<u32>,
    /// Offset of the end of the cell.
    end: usize,
}

impl Cell {
    /// Returns the cell at this offset of a page's usable bytes, if the cell lies within them.
    #[inline]
    fn at(page: &[u8], at: usize) -> Option<Cell> {
        let (length, after) = varint(page, at)?;
        let (rowid, payload) = varint(page, after)?;
        let local = local_payload(length, page.len());
        let (link, end) = if local as u64 == length {
            (None, payload + local)
        } else {
            (Some(u32_at(page, payload + local)?), payload + local + 4)
        };
        (end <= page.len()).then_some(Cell { rowid: rowid as i64, length, payload, local, link, end })
    }
}

/// Returns the length of the header of a cell's record, and the offset of its first serial type.
#[inline]
fn header(bytes: &[u8], cell: &Cell) -> Result<(u64, usize), PageProblem> {
    match varint(bytes, cell.payload) {
        Some((header, types)) if header <= cell.length && header >= (types - cell.payload) as u64 => {
            Ok((header, types))
        }
        _ => Err(PageProblem::Record { rowid: cell.rowid }),
    }
}

impl From<TooLong> for PageProblem {
    fn from(_: TooLong) -> Self {
        PageProblem::TooLong
    }
}
