use super::{Version, checksum, le};
use crate::codec::{MAX_RAW_BYTES, MAX_ROWS};
use crate::model::TableId;

/// Length of a block header, bytes.
pub const BLOCK_HEADER_BYTES: usize = 72;
/// First bytes of a block; the version follows as the eighth byte.
pub(super) const BLOCK_MAGIC: &[u8; 7] = b"\x89RPDBLK";
/// Largest key of a row. A larger key counts as damage: no process produces that many rows.
const MAX_KEY: i64 = 1 << 40;

/// Content of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BlockKind {
    /// Rows of a table.
    Rows(TableId),
    /// A [`crate::record::RunIdentity`].
    Identity,
    /// A [`crate::record::Process`].
    Process,
    /// A [`crate::record::ClockSet`].
    Clock,
    /// The loss ledger: a [`crate::record::Ledger`].
    Ledger,
    /// The description of a table that is not built in.
    Table,
    /// The headers of all other blocks, with their offsets.
    Index,
    /// A [`crate::record::Selection`].
    Selection,
    /// A [`crate::record::ProbeBurst`] with receive times that the program read.
    Probes,
    /// A [`crate::record::ProbeBurst`] with receive times that the kernel recorded.
    KernelProbes,
    /// A [`crate::record::Process`] that describes the command of the rank.
    Command,
    /// A [`crate::record::ProfilerLoss`].
    ProfilerLoss,
    /// A record kind of a newer release; readers skip it.
    Unknown(u16),
}

const RECORD: u16 = 0x8000;

impl BlockKind {
    fn code(self) -> u16 {
        match self {
            BlockKind::Rows(table) => table.0,
            BlockKind::Identity => RECORD + 1,
            BlockKind::Process => RECORD + 2,
            BlockKind::Clock => RECORD + 3,
            BlockKind::Ledger => RECORD + 4,
            BlockKind::Table => RECORD + 5,
            BlockKind::Index => RECORD + 6,
            BlockKind::Selection => RECORD + 7,
            BlockKind::Probes => RECORD + 8,
            BlockKind::Command => RECORD + 9,
            BlockKind::KernelProbes => RECORD + 10,
            BlockKind::ProfilerLoss => RECORD + 11,
            BlockKind::Unknown(code) => code,
        }
    }

    fn from_code(code: u16) -> BlockKind {
        match code {
            code if code < RECORD => BlockKind::Rows(TableId(code)),
            code if code == RECORD + 1 => BlockKind::Identity,
            code if code == RECORD + 2 => BlockKind::Process,
            code if code == RECORD + 3 => BlockKind::Clock,
            code if code == RECORD + 4 => BlockKind::Ledger,
            code if code == RECORD + 5 => BlockKind::Table,
            code if code == RECORD + 6 => BlockKind::Index,
            code if code == RECORD + 7 => BlockKind::Selection,
            code if code == RECORD + 8 => BlockKind::Probes,
            code if code == RECORD + 9 => BlockKind::Command,
            code if code == RECORD + 10 => BlockKind::KernelProbes,
            code if code == RECORD + 11 => BlockKind::ProfilerLoss,
            code => BlockKind::Unknown(code),
        }
    }
}

/// The header of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Content of the block.
    pub kind: BlockKind,
    /// Number of the process that the rows belong to; 0 for the shard itself (strings, records).
    pub source: u32,
    /// Key of the first row; the keys of the other rows follow without gaps. If the keys are handles, the number of
    /// the first row.
    pub first_key: i64,
    /// Whether the payload begins with one key (a handle) per row.
    pub handles: bool,
    /// Number of rows.
    pub rows: u32,
    /// Bytes of the payload before compression.
    pub raw_bytes: u32,
    /// Bytes of the payload as stored after the header.
    pub stored_bytes: u32,
    /// Smallest time in the block, ns of the process's clock; `i64::MAX` if the block has no times.
    pub min_time: i64,
    /// Largest time in the block, ns of the process's clock; `i64::MIN` if the block has no times.
    pub max_time: i64,
    /// XXH3-64 of the stored bytes.
    pub checksum: u64,
}

impl BlockHeader {
    /// Encodes the header as it is stored.
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[..7].copy_from_slice(BLOCK_MAGIC);
        out[7] = Version::CURRENT.0;
        out[8..10].copy_from_slice(&self.kind.code().to_le_bytes());
        out[10] = u8::from(self.handles);
        out[12..16].copy_from_slice(&self.source.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_key.to_le_bytes());
        out[24..28].copy_from_slice(&self.rows.to_le_bytes());
        out[28..32].copy_from_slice(&self.raw_bytes.to_le_bytes());
        out[32..36].copy_from_slice(&self.stored_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.min_time.to_le_bytes());
        out[48..56].copy_from_slice(&self.max_time.to_le_bytes());
        out[56..64].copy_from_slice(&self.checksum.to_le_bytes());
        let sum = checksum(&out[..64]);
        out[64..72].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes a header. Returns `None` if the magic or the checksum is wrong, or a field exceeds its bound.
    pub fn from_bytes(bytes: &[u8]) -> Option<BlockHeader> {
        let bytes = bytes.get(..BLOCK_HEADER_BYTES)?;
        if &bytes[..7] != BLOCK_MAGIC || checksum(&bytes[..64]) != u64::from_le_bytes(le(bytes, 64)) {
            return None;
        }
        let header = BlockHeader {
            kind: BlockKind::from_code(u16::from_le_bytes(le(bytes, 8))),
            source: u32::from_le_bytes(le(bytes, 12)),
            first_key: i64::from_le_bytes(le(bytes, 16)),
            handles: bytes[10] & 1 == 1,
            rows: u32::from_le_bytes(le(bytes, 24)),
            raw_bytes: u32::from_le_bytes(le(bytes, 28)),
            stored_bytes: u32::from_le_bytes(le(bytes, 32)),
            min_time: i64::from_le_bytes(le(bytes, 40)),
            max_time: i64::from_le_bytes(le(bytes, 48)),
            checksum: u64::from_le_bytes(le(bytes, 56)),
        };
        // A valid checksum shows that the bytes are unchanged, not that the writer was correct.
        let bounded = bytes[7] <= Version::CURRENT.0
            && header.rows as usize <= MAX_ROWS
            && header.raw_bytes as usize <= MAX_RAW_BYTES
            && header.stored_bytes as usize <= 2 * MAX_RAW_BYTES
            && (0..=MAX_KEY).contains(&header.first_key);
        bounded.then_some(header)
    }

    /// Returns the length of header and payload, bytes.
    pub fn total_bytes(&self) -> u64 {
        BLOCK_HEADER_BYTES as u64 + u64::from(self.stored_bytes)
    }

    /// Returns the key after that of the last row.
    pub fn next_key(&self) -> i64 {
        self.first_key + i64::from(self.rows)
    }
}
