//! The library that is preloaded into the traced program.
