//! SQLite databases by their pages: finished leaf pages out, leaf pages in.
//!
//! SQLite inserts about a million rows a second and reads a few million, mostly in its byte code and B-tree
//! balancing. A merge needs neither: its rows come in the order of their keys. So [`write`](mod@write) encodes
//! columns straight into the leaf pages of a table's B-tree, and [`read`] decodes them straight into columns.
//! Everything else (schema, small tables, indexes, journals) stays with SQLite itself.
//!
//! The source for all byte layouts is <https://sqlite.org/fileformat2.html>.

mod format;
pub mod read;
pub mod write;
