//! Writes tables as finished pages, without inserts, byte code or balancing.
//!
//! 1. SQLite itself creates the file with schema and empty tables, and closes it. The file has pages of 4096 bytes
//!    without reserved bytes, UTF-8 texts, a rollback journal and no auto_vacuum.
//!    [`PageDatabase`](crate::read::PageDatabase) reads its page count and the root pages of the tables.
//! 2. A [`LeafWriter`] encodes columns into a [`LeafRun`]: leaves of one table, then their overflow pages. Leaves
//!    contain neither their own page number nor those of their siblings, so a run is encoded before its place is
//!    known. [`LeafRun::place`] patches only the links to overflow pages. Any number of threads and ranks do this
//!    at once.
//! 3. [`PlacedRun::write_to`] writes each run to its place.
//! 4. After all runs are written, a [`Sealer`] builds the interior pages of each table from the last rowids of the
//!    leaves. It writes the top of each tree into the root page that the schema names, and updates the file header.
//!
//! Until then the header describes the file of step 1, so a merge that dies leaves empty tables.
//!
//! Nothing here checks constraints or maintains indexes. A table with an index, including UNIQUE, must be filled by
//! SQLite.

mod affinity;
mod counter;
mod error;
mod field;
mod leaf;
mod memory;
mod number;
mod page_map;
mod record;
mod run;
mod seal;
mod stage;

pub use affinity::Affinity;
pub use counter::reset_change_counter;
pub use error::{PageWriteError, SealError};
pub use field::Field;
pub use leaf::LeafWriter;
pub use memory::PageMemory;
pub use page_map::{LogicalPage, PageNumberError};
pub use run::{LeafRun, PlacedRun};
pub use seal::Sealer;

/// Size of the written pages in bytes.
pub const PAGE_SIZE: usize = 4096;
