//! End-to-end tests, synthetic runs and benchmarks.
