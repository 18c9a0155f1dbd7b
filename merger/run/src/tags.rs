//! Metadata tags that show that rpd-merge wrote a table set.

use rpd_rocpd::read::StoredTableSet;

/// Tag of a merged database.
pub(crate) const VERSION_TAG: &str = "rpd.version";
/// Tag of the second and all later table sets of a merged database. Their times are job times, too.
pub const FURTHER_SET: &str = "rpd.set";

/// Returns whether rpd-merge wrote a table set.
pub fn is_merged_set(set: &StoredTableSet) -> bool {
    set.tags.contains_key(VERSION_TAG) || set.tags.contains_key(FURTHER_SET)
}
