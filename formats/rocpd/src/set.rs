//! The table sets of a database: one in total, or one per process.

use crate::guid::Guid;

/// Maximum number of table sets of one database: SQLite combines at most this many tables in one view.
pub const MAX_SETS: usize = 500;
/// Maximum bytes of a guid, which every row stores.
const MAX_GUID: usize = 64;

/// The tables of one guid: the guid in their rows, and the suffix of their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableSet {
    guid: String,
    suffix: String,
}

impl TableSet {
    /// Creates the table set of a guid from any tool. Returns `None` if the guid is empty, longer than 64 bytes or
    /// has control characters.
    ///
    /// If the guid is a UUID or 32 lower-case hex digits, the suffix is that of AMD. Otherwise it is `_x` and the
    /// bytes of the guid in hex. Different guids thus have different names, also in SQLite, which does not
    /// distinguish `a` and `A`.
    pub fn new(guid: &str) -> Option<TableSet> {
        if guid.is_empty() || guid.len() > MAX_GUID || guid.chars().any(char::is_control) {
            return None;
        }
        let suffix = if is_uuid(guid) || is_md5(guid) {
            format!("_{guid}").replace('-', "_")
        } else {
            guid.bytes().fold("_x".to_owned(), |suffix, byte| suffix + &format!("{byte:02x}"))
        };
        Some(TableSet { guid: guid.to_owned(), suffix })
    }

    /// Returns the guid that the rows store.
    pub fn guid(&self) -> &str {
        &self.guid
    }

    /// Returns the suffix of every table name, which is also the value of the metadata tag `uuid`.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }
}

impl From<&Guid> for TableSet {
    fn from(guid: &Guid) -> TableSet {
        TableSet { guid: guid.to_string(), suffix: guid.suffix() }
    }
}

fn is_uuid(guid: &str) -> bool {
    guid.parse::<Guid>().is_ok()
}

fn is_md5(guid: &str) -> bool {
    guid.len() == 32 && guid.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_as_amds_do_where_the_guid_is_like_amds() {
        let suffix = |guid: &str| TableSet::new(guid).map(|set| set.suffix().to_owned());
        let guid = Guid::from_bits(0x5eed);
        assert_eq!(suffix(&guid.to_string()), Some(guid.suffix()));
        assert_eq!(TableSet::new(&guid.to_string()), Some(TableSet::from(&guid)));
        let md5 = "eca26941bc5147d1a2983961edb6dbb6";
        assert_eq!(suffix(md5), Some(format!("_{md5}")));
        assert_eq!(suffix("a\"b"), Some("_x612262".to_owned()));
    }

    #[test]
    fn guids_that_sqlite_takes_for_one_name_have_different_ones() {
        let guids =
            ["a-b", "a_b", "A_b", "x", "_x", "b", "'", "\"", "\u{fc}", "x78", "ab'); DROP TABLE t; --"];
        let mut names: Vec<String> = guids
            .iter()
            .map(|guid| TableSet::new(guid).map(|set| set.suffix.to_ascii_lowercase()).unwrap_or_default())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), guids.len(), "{names:?}");
        for guid in ["", "a\0b", "a\nb", &"g".repeat(65)] {
            assert_eq!(TableSet::new(guid), None, "{guid:?}");
        }
    }
}
