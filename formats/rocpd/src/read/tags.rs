//! The metadata tags of a table set.

use crate::schema::METADATA as METADATA_NAME;
use rpd_shard::model::columns::text;
use rpd_shard::model::{Local, Rows, Table, TableId, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Maximum number of tags.
const MAX_TAGS: usize = 1024;
/// Maximum bytes of a tag, and of its value.
const MAX_VALUE: usize = 1 << 20;

/// Description of the metadata table, which the data model lacks.
pub(super) static METADATA: LazyLock<Arc<Table>> = LazyLock::new(|| {
    let columns = ["tag", "value"].map(|name| text(name).not_null()).into();
    Arc::new(Table { id: TableId(0), name: METADATA_NAME.to_owned(), columns })
});

/// Adds the tags of some rows. If a tag occurs twice, the first row counts.
pub(super) fn add(tags: &mut BTreeMap<String, String>, rows: &Rows<Local>) {
    for row in 0..rows.len {
        let text = |column: &str| {
            Some(match rows.column(column).get(row) {
                Value::Int(number) => number.to_string(),
                Value::Real(number) => number.to_string(),
                value => value.text_lossy().filter(|text| text.len() <= MAX_VALUE)?.into_owned(),
            })
        };
        if let (Some(tag), Some(value)) = (text("tag"), text("value"))
            && tags.len() < MAX_TAGS
        {
            tags.entry(tag).or_insert(value);
        }
    }
}

/// Returns the schema version in the tags: major, minor, patch. Returns `Ok(None)` if there is none.
///
/// # Errors
/// The text of a version that cannot be parsed or that is not 3.
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
