//! What it takes to stand in front of a library: the real function, the outermost call, and the number of a call.

pub(crate) mod inside;
pub(crate) mod real;
pub(crate) mod sequence;
