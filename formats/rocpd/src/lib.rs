//! RocPD databases (ROCm 7): schema, views, writing.
