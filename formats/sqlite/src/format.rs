//! Names for the bytes of a file, shared by reading and writing.
//!
//! A file is a sequence of pages of one size, numbered from 1. Page 1 begins with the file header:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 16 | `SQLite format 3` and a zero |
//! | 16 | 2 | page size; 1 represents 65536 |
//! | 18 | 2 | write and read version: 1 = rollback journal, 2 = WAL |
//! | 20 | 1 | reserved bytes at the end of each page |
//! | 21 | 3 | payload fractions: 64, 32, 32 |
//! | 24 | 4 | change counter |
//! | 28 | 4 | pages of the file, if bytes 92 to 95 equal the change counter |
//! | 32 | 4 | first trunk page of the freelist, or 0 |
//! | 36 | 4 | pages on the freelist, trunks included |
//! | 44 | 4 | schema format, 1 to 4 |
//! | 52 | 4 | largest root page; not 0 where pages have back pointers (auto_vacuum) |
//! | 56 | 4 | text encoding: 1 = UTF-8, 2 and 3 = UTF-16 |
//! | 92 | 4 | change counter when the page count was written |
//!
//! A B-tree page starts with a header, followed by a two-byte pointer for each cell: its offset in the page. The
//! cells are at the end of the page. On page 1 the header is at offset 100, but cell offsets count from the start
//! of the page.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 1 | 13 = leaf of a table, 5 = interior page of a table (2 and 10: indexes) |
//! | 1 | 2 | first free block, or 0 |
//! | 3 | 2 | number of cells |
//! | 5 | 2 | where cells begin; 0 represents 65536 |
//! | 7 | 1 | bytes lost in gaps of less than 4 |
//! | 8 | 4 | interior pages only: the rightmost child |
//!
//! A cell of a leaf is `payload length (varint), rowid (varint), payload, first overflow page (u32)`. The last
//! field exists only if the payload does not fit into the page. A cell of an interior page is
//! `child page (u32), largest rowid below it (varint)`. A payload is a record:
//! `header length (varint), a serial type per column (varints), values`.
//!
//! Numbers are big endian. A varint stores 7 bits per byte, highest bits first. The high bit is set on every byte
//! but the last; a ninth byte stores 8 bits.
//!
//! | serial type | value | bytes |
//! |---|---|---|
//! | 0 | NULL | 0 |
//! | 1 to 6 | integer | 1, 2, 3, 4, 6, 8 |
//! | 7 | IEEE 754 double | 8 |
//! | 8, 9 | the integers 0 and 1 | 0 |
//! | even, from 12 on | blob | (n - 12) / 2 |
//! | odd, from 13 on | text | (n - 13) / 2 |

/// The first bytes of every database.
pub(crate) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Length of the file header in bytes.
pub(crate) const HEADER: usize = 100;
/// Page type byte of a table leaf.
pub(crate) const TABLE_LEAF: u8 = 13;
/// Page type byte of a table's interior page.
pub(crate) const TABLE_INTERIOR: u8 = 5;
/// Offset of the byte that SQLite locks. The page that contains this byte is never used.
pub(crate) const LOCK_BYTE: u64 = 1 << 30;

/// Offsets in the file header.
pub(crate) mod at {
    pub(crate) const PAGE_SIZE: usize = 16;
    pub(crate) const WRITE_VERSION: usize = 18;
    pub(crate) const READ_VERSION: usize = 19;
    pub(crate) const RESERVED: usize = 20;
    pub(crate) const CHANGES: usize = 24;
    pub(crate) const PAGES: usize = 28;
    pub(crate) const FREE_TRUNK: usize = 32;
    pub(crate) const FREE_PAGES: usize = 36;
    pub(crate) const SCHEMA_FORMAT: usize = 44;
    pub(crate) const AUTO_VACUUM: usize = 52;
    pub(crate) const ENCODING: usize = 56;
    pub(crate) const VALID_FOR: usize = 92;
}

/// Returns the number of payload bytes that a table leaf stores itself. The rest is in overflow pages of
/// `usable - 4` bytes each. `usable` is the page size without the reserved bytes.
pub(crate) fn local_payload(payload: u64, usable: usize) -> usize {
    let most = usable - 35;
    if payload <= most as u64 {
        return payload as usize;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let fitting = least + ((payload - least as u64) % (usable as u64 - 4)) as usize;
    if fitting <= most { fitting } else { least }
}

/// Returns the big-endian number at `offset`, or `None` beyond the end of `bytes`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Returns the big-endian number at `offset`, or `None` beyond the end of `bytes`.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}
