//! Columns of a block as bytes, before zstd. docs/FORMATS.md has the byte tables.
//!
//! Every count is bounded before anything is allocated for it: rows by the block header, dictionary
//! entries by the rows, bytes by what is left of the input.

mod codes;
mod column;
mod handles;
pub(crate) mod varint;

pub use column::{decode_columns, decode_needed, encode_columns};
pub(crate) use handles::{decode_handles, encode_handles};

/// Maximum number of rows of one block.
pub const MAX_ROWS: usize = 65_536;
/// Maximum bytes of one block before compression. Also bounds what its texts come to when repeated
/// values are written out, so that a few bytes cannot ask for terabytes of output.
pub const MAX_RAW_BYTES: usize = 64 << 20;

/// Bytes that are no column data.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The input ends early.
    #[error("column data ends early")]
    Short,
    /// A number with more than ten bytes.
    #[error("number is longer than 64 bits")]
    Varint,
    /// A tag of no known encoding.
    #[error("unknown column encoding {0}")]
    Encoding(u8),
    /// A column that is near to a later one, or to one without integers.
    #[error("column {0} refers to a column that is not there")]
    Near(u8),
    /// A column that takes the codes of an earlier one, where none has any.
    #[error("a column refers to codes that are not there")]
    NoCodes,
    /// A code past the end of the dictionary, or more entries than there can be.
    #[error("code {0} is out of range")]
    Code(u64),
    /// Repeated texts come to more than a block may hold.
    #[error("texts of the block have more than {MAX_RAW_BYTES} bytes")]
    TooMuchText,
    /// Keys of rows that do not ascend, or that leave no room after them.
    #[error("the keys of the rows do not ascend")]
    Keys,
    /// Bytes after the last column.
    #[error("{0} bytes are left over")]
    LeftOver(usize),
}
