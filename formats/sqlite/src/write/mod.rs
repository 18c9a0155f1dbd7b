//! Tables as finished pages: no inserts, no byte code, no balancing.
//!
//! 1. SQLite itself makes the file: schema and empty tables, pages of 4096 bytes without reserved bytes, UTF-8,
//!    rollback journal, no auto_vacuum. It is closed. [`PageDatabase`](crate::read::PageDatabase) reads its pages and the
//!    tables' root pages.
//! 2. A [`LeafWriter`] turns columns into a [`LeafRun`]: leaves of one table, after them their overflow pages. Leaves hold
//!    neither their own number nor their siblings', so a run is made before its place is known; only the
//!    links to overflow pages are patched by [`LeafRun::place`]. Any number of threads and ranks do this at once.
//! 3. Each run is written to its place with [`PlacedRun::write_to`].
//! 4. When all are in place, a [`Sealer`] builds the interior pages of each table from the leaves' last rowids, puts
//!    the top into the root page that the schema names, and brings the file header up to date.
//!
//! Until the sealing the header still describes the file of step 1, so a merge that dies leaves empty tables.
//!
//! Nothing here checks constraints or keeps indexes: a table that has an index, UNIQUE included, must be filled
//! through SQLite.

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

/// Bytes of the pages that are written.
pub const PAGE_SIZE: usize = 4096;
