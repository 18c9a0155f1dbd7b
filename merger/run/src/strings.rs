//! The strings of a run.

use super::tables::{IdRanges, RunTables};
use rpd_console::Failure;
use rpd_shard::model::{Value, rocpd};
use std::borrow::Cow;

/// The table `rocpd_string`, which all processes share.
#[derive(Debug, Default)]
pub struct RunStrings {
    bytes: Vec<u8>,
    /// End of each string in `bytes`.
    ends: Vec<usize>,
    /// Ids of the strings, ascending.
    ids: Vec<i64>,
}

impl RunStrings {
    /// Reads all strings.
    ///
    /// # Errors
    /// If they cannot be read, or their ids do not ascend.
    pub(crate) fn read(tables: &RunTables) -> Result<RunStrings, Failure> {
        let mut strings = RunStrings::default();
        tables.read_rows(rocpd::STRING, &IdRanges::all(), &["string"], &mut |rows, places| {
            let texts = rows.column("string");
            for i in places {
                let id = rows.keys.get(i);
                if strings.ids.last().is_some_and(|before| *before >= id) {
                    return Err(tables.descending_ids(rocpd::STRING));
                }
                if let Value::Text(text) | Value::Blob(text) = texts.get(i) {
                    strings.bytes.extend_from_slice(text);
                }
                strings.ends.push(strings.bytes.len());
                strings.ids.push(id);
            }
            Ok(())
        })?;
        Ok(strings)
    }

    /// Returns the place of the string with this id.
    #[inline]
    pub fn place(&self, id: i64) -> Option<usize> {
        let near = usize::try_from(id.checked_sub(*self.ids.first()?)?).ok()?;
        match self.ids.get(near) {
            Some(found) if *found == id => Some(near),
            _ => self.ids.binary_search(&id).ok(),
        }
    }

    /// Returns the bytes of the string at a place.
    pub fn at(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(place).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the string with this id, or `None` if there is none.
    pub fn get(&self, id: i64) -> Option<Cow<'_, str>> {
        self.place(id).map(|place| String::from_utf8_lossy(self.at(place)))
    }
}
