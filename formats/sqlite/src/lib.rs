//! Reads and writes SQLite databases page by page: columns to finished leaf pages, and leaf pages to columns.
//!
//! SQLite inserts about a million rows per second and reads a few million. Most of that time is spent in its byte
//! code and in balancing B-trees. A merge needs neither, because its rows arrive in the order of their keys.
//! [`write`](mod@write) therefore encodes columns directly into the leaf pages of a table's B-tree, and [`read`]
//! decodes leaf pages directly into columns.
//! SQLite itself handles everything else: schema, small tables, indexes and journals.
//! The source for all byte layouts is <https://sqlite.org/fileformat2.html>.

mod format;
pub mod read;
pub mod write;
