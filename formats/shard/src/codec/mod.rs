//! Encoding of the columns of a block, before compression. docs/FORMATS.md has the byte tables.
//!
//! Every count is bounded before memory is allocated for it: rows by the block header, dictionary entries by the
//! rows, bytes by the rest of the input.

mod codes;
mod column;
mod handles;
pub(crate) mod varint;

pub use column::{decode_columns, decode_needed, encode_columns};
pub(crate) use handles::{decode_handles, encode_handles};

/// Maximum number of rows of one block.
pub const MAX_ROWS: usize = 65_536;
/// Maximum bytes of one block before compression. Also bounds the total length of its texts with repeated values
/// written out, so that a few bytes cannot expand to terabytes.
pub const MAX_RAW_BYTES: usize = 64 << 20;

/// Reason why bytes are not valid column data.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The input ends early.
    #[error("column data ends early")]
    Short,
    /// A number with more than ten bytes.
    #[error("number is longer than 64 bits")]
    Varint,
    /// The tag of an encoding is unknown.
    #[error("unknown column encoding {0}")]
    Encoding(u8),
    /// A column refers to a later column, or to one without integers.
    #[error("column {0} refers to a column that is not there")]
    Near(u8),
    /// A column uses the codes of an earlier column, but no earlier column has codes.
    #[error("a column refers to codes that are not there")]
    NoCodes,
    /// A code exceeds the dictionary, or the dictionary has more entries than possible.
    #[error("code {0} is out of range")]
    Code(u64),
    /// The texts, with repeated values written out, exceed the maximum size of a block.
    #[error("texts of the block have more than {MAX_RAW_BYTES} bytes")]
    TooMuchText,
    /// Row keys do not ascend, or the last one is the largest number.
    #[error("the keys of the rows do not ascend")]
    Keys,
    /// Bytes remain after the last column.
    #[error("{0} bytes are left over")]
    LeftOver(usize),
}
