//! RocPD to `.rpd`.
