//! The strings of the job, and their numbers in a unit.

use super::tables::{Ids, Tables};
use crate::item::{TextId, Texts};
use rpd_console::Failure;
use rpd_shard::model::{Value, rocpd};
use std::borrow::Cow;

/// `rocpd_string`, which all processes share.
#[derive(Debug, Default)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// Their ids, ascending.
    ids: Vec<i64>,
}

impl Strings {
    pub(super) fn read(tables: &Tables) -> Result<Strings, Failure> {
        let mut strings = Strings::default();
        let every = Ids::range(i64::MIN, i64::MAX);
        tables.all(rocpd::STRING, &every, &["string"], &mut |rows, places| {
            let texts = rows.column("string");
            for i in places {
                let id = rows.keys.get(i);
                if strings.ids.last().is_some_and(|before| *before >= id) {
                    return Err(tables.failure("ids of rocpd_string do not ascend: merge its inputs again"));
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

    /// The place of a string.
    #[inline]
    fn place(&self, id: i64) -> Option<usize> {
        let near = usize::try_from(id.checked_sub(*self.ids.first()?)?).ok()?;
        match self.ids.get(near) {
            Some(found) if *found == id => Some(near),
            _ => self.ids.binary_search(&id).ok(),
        }
    }

    fn at(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(place).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    /// The string with this id, `None` where there is none.
    pub(super) fn get(&self, id: i64) -> Option<Cow<'_, str>> {
        self.place(id).map(|place| String::from_utf8_lossy(self.at(place)))
    }
}

/// The numbers that strings have in a unit.
#[derive(Debug)]
pub(super) struct StringTexts<'a> {
    strings: &'a Strings,
    /// Number of a text and 1 by the place of the string; 0 where it was not asked for.
    numbers: Vec<u32>,
}

impl<'a> StringTexts<'a> {
    pub(super) fn new(strings: &'a Strings) -> StringTexts<'a> {
        StringTexts { strings, numbers: vec![0; strings.ids.len()] }
    }

    /// The text of a string, the empty one where there is none.
    #[inline]
    pub(super) fn text(&mut self, id: Option<i64>, texts: &mut Texts, mended: &mut u64) -> TextId {
        let Some(place) = id.and_then(|id| self.strings.place(id)) else { return TextId(0) };
        match self.numbers.get_mut(place) {
            Some(0) => {
                let text = String::from_utf8_lossy(self.strings.at(place));
                *mended += u64::from(matches!(text, Cow::Owned(_)));
                let number = texts.add(&text);
                if let Some(cell) = self.numbers.get_mut(place) {
                    *cell = number.0.saturating_add(1);
                }
                number
            }
            Some(number) => TextId(*number - 1),
            None => TextId(0),
        }
    }
}
