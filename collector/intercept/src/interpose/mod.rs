//! Interposition: finds the real function, detects the outermost call, and numbers calls.

pub(crate) mod inside;
pub(crate) mod real;
pub(crate) mod sequence;
