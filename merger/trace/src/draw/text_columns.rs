//! Processes the texts of columns, each distinct text once.

use super::arg_values::{StoredValue, number_or_text};
use crate::item::{TextId, TextTable, UnitDictionary};
use rpd_shard::model::{Cells, TextCells, Value};
use std::borrow::Cow;
use std::ops::Range;

/// Returns a text with U+FFFD for bytes that are not UTF-8, and counts it if it has any.
pub(super) fn lossy<'a>(text: &'a [u8], mended: &mut u64) -> Cow<'a, str> {
    let text = String::from_utf8_lossy(text);
    *mended += u64::from(matches!(text, Cow::Owned(_)));
    text
}

pub(super) fn add_text(text: &[u8], texts: &mut TextTable, mended: &mut u64) -> TextId {
    texts.add(&lossy(text, mended))
}

/// Passes the result of `of` for each text of a column to `take`. `of` is called once for each distinct text.
/// Cells that are not texts yield `none`.
pub(super) fn each_text<T: Copy>(
    cells: &Cells,
    places: Range<usize>,
    none: T,
    mut of: impl FnMut(&[u8]) -> T,
    mut take: impl FnMut(T),
) {
    if let Cells::Text(texts) = cells {
        let mut known: Vec<Option<T>> = vec![None; texts.ends.len()];
        for code in texts.codes.get(places).unwrap_or_default() {
            let value = match known.get_mut(*code as usize) {
                Some(known) => *known.get_or_insert_with(|| of(texts.entry(*code))),
                None => none,
            };
            take(value);
        }
        return;
    }
    for place in places {
        take(match cells.get(place) {
            Value::Text(text) | Value::Blob(text) => of(text),
            _ => none,
        });
    }
}

/// Where the texts of args are stored.
pub(super) struct TextStore<'t> {
    pub(super) dictionary: &'t mut UnitDictionary,
    /// Texts of a chunk.
    pub(super) texts: &'t mut String,
}

impl TextStore<'_> {
    /// Stores a text that may occur again: as one number, if it is short.
    pub(super) fn add(self, text: &str) -> StoredValue {
        match text.len() <= MAX_KNOWN_TEXT_BYTES && self.dictionary.texts.memory() < MAX_KNOWN_BYTES {
            true => StoredValue::Known(self.dictionary.texts.add(text)),
            false => self.add_once(text),
        }
    }

    /// Stores a text that hardly occurs again.
    fn add_once(self, text: &str) -> StoredValue {
        let start = self.texts.len() as u32;
        self.texts.push_str(text);
        StoredValue::Text(start, text.len() as u32)
    }
}

/// Values of args in a piece. Repeated texts are stored as one number.
pub(super) struct KnownValues {
    /// Number of occurrences of each distinct text in the column.
    uses: Vec<u32>,
    known: Vec<Option<StoredValue>>,
}

/// Maximum number of bytes of arg texts that are numbered in a unit.
const MAX_KNOWN_BYTES: u64 = 64 << 20;
/// Maximum number of bytes of such a text.
const MAX_KNOWN_TEXT_BYTES: usize = 256;

impl KnownValues {
    pub(super) fn of(cells: &Cells, places: Range<usize>) -> KnownValues {
        let Cells::Text(texts) = cells else { return KnownValues { uses: Vec::new(), known: Vec::new() } };
        let mut uses = vec![0; texts.ends.len()];
        for code in texts.codes.get(places).unwrap_or_default() {
            if let Some(uses) = uses.get_mut(*code as usize) {
                *uses += 1;
            }
        }
        KnownValues { known: vec![None; uses.len()], uses }
    }

    #[inline]
    pub(super) fn stored_value(
        &mut self,
        cells: &Cells,
        i: usize,
        dictionary: &mut UnitDictionary,
        texts: &mut String,
        mended: &mut u64,
    ) -> StoredValue {
        let code = match cells {
            Cells::Text(texts) => texts.codes.get(i).copied().unwrap_or(TextCells::NULL) as usize,
            _ => usize::MAX,
        };
        if let Some(Some(stored)) = self.known.get(code) {
            return *stored;
        }
        let text = match cells.get(i) {
            Value::Null => return StoredValue::Known(TextId(0)),
            Value::Int(value) => return StoredValue::Int(value),
            Value::Real(value) => return StoredValue::Double(value),
            Value::Text(text) | Value::Blob(text) => text,
        };
        let is_repeated = self.uses.get(code).is_some_and(|uses| *uses > 1);
        let is_numbered =
            is_repeated && text.len() <= MAX_KNOWN_TEXT_BYTES && dictionary.texts.memory() < MAX_KNOWN_BYTES;
        let stored = match number_or_text(text) {
            Some(number) => number,
            None if is_numbered || text.is_empty() => {
                StoredValue::Known(add_text(text, &mut dictionary.texts, mended))
            }
            None => TextStore { dictionary, texts }.add_once(&lossy(text, mended)),
        };
        if let Some(known) = self.known.get_mut(code) {
            *known = Some(stored);
        }
        stored
    }
}
