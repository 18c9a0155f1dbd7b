//! Position of a piece among the inputs.

/// Position of a piece among this rank's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PieceRef {
    /// Position of the input.
    pub input: usize,
    /// Position of the source in the input.
    pub source: usize,
    /// Position of the piece in the source.
    pub piece: usize,
}
