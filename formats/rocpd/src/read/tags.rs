//! The metadata of a space.

use crate::connect::identifier;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Most tags that are read.
const MAX_TAGS: usize = 1024;
/// Most bytes of a tag, and of its value.
const MAX_VALUE: usize = 1 << 20;

/// The rows of a metadata table. Of a tag that is there twice the first row counts.
pub(super) fn read(conn: &Connection, table: &str) -> rusqlite::Result<BTreeMap<String, String>> {
    let sql = format!(
        "SELECT CAST(tag AS TEXT), CAST(value AS TEXT) FROM {}
         WHERE length(tag) <= {MAX_VALUE} AND length(value) <= {MAX_VALUE} ORDER BY id LIMIT {MAX_TAGS}",
        identifier(table)
    );
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    let mut tags = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let text = |at: usize| -> rusqlite::Result<String> {
            Ok(String::from_utf8_lossy(row.get_ref(at)?.as_bytes()?).into_owned())
        };
        tags.entry(text(0)?).or_insert(text(1)?);
    }
    Ok(tags)
}

/// The version that the tags tell: major, minor, patch. `Ok(None)` where they tell none, and the text
/// where it is none of ours.
pub(super) fn version(tags: &BTreeMap<String, String>) -> Result<Option<[u32; 3]>, String> {
    let tag = |name: &str| tags.get(name).map(|text| text.trim().to_owned());
    let from_parts = || {
        let minor = tag("schema_version_minor").unwrap_or_else(|| "0".to_owned());
        let patch = tag("schema_version_patch").unwrap_or_else(|| "0".to_owned());
        Some(format!("{}.{minor}.{patch}", tag("schema_version_major")?))
    };
    let Some(text) = tag("schema_version").or_else(from_parts) else { return Ok(None) };
    let mut version = [0; 3];
    let mut parts = text.split('.');
    for place in &mut version {
        let Some(part) = parts.next() else { break };
        *place = part.parse().map_err(|_| text.clone())?;
    }
    if version[0] != 3 || parts.next().is_some() { Err(text) } else { Ok(Some(version)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers_that_begin_with_three() {
        let of = |text: &str| version(&BTreeMap::from([("schema_version".to_owned(), text.to_owned())]));
        assert_eq!(of("3"), Ok(Some([3, 0, 0])));
        assert_eq!(of("3.0.3"), Ok(Some([3, 0, 3])));
        assert_eq!(of("3.1"), Ok(Some([3, 1, 0])));
        for text in ["4.1.0", "2", "", "3.x", "3.0.0.1", "three"] {
            assert_eq!(of(text), Err(text.to_owned()));
        }
        assert_eq!(version(&BTreeMap::new()), Ok(None));
        let parts = [("schema_version_major", "3"), ("schema_version_patch", "2")];
        let parts = parts.map(|(tag, value)| (tag.to_owned(), value.to_owned()));
        assert_eq!(version(&BTreeMap::from(parts)), Ok(Some([3, 0, 2])));
    }
}
