//! Starts the built programs, never without a time limit, and looks at what they leave.

mod binaries;
mod database;
mod free_port;
mod job;
mod merge;
mod mpi;
mod perfetto_ui;
mod report;
mod report_page;
mod trace_processor;
mod tree;

pub use binaries::{binary, built, python, repository};
pub use database::{AMD_TAGS, Database, dump_difference};
pub use free_port::free_port;
pub use job::{Job, JobOutcome};
pub use merge::{RunFolder, losses, losses_of_all, remove, replaced, rpd_merge, rpd_merge_mpi};
pub use mpi::{mpi_missing, mpirun};
pub use perfetto_ui::{OpenedBy, OpenedTrace, PerfettoUi};
pub use report::{assert_refused, leftovers};
pub use report_page::PageBrowser;
pub use trace_processor::{Row, TraceProcessor};

/// Says that a test did not run, and why: where the output of passed tests is shown too.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED {what}: {why}");
}
