//! The shared-memory contract between the intercept library and the collector.
