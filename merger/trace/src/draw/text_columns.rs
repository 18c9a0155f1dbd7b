//! Processes the texts of columns, each distinct text once.

use super::arg_values::{StoredValue, number_or_text};
use super::members::MemberCount;
use crate::item::{TextId, TextTable, UnitDictionary};
use rpd_shard::model::{Cells, TextCells, Value};
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;

/// Returns the message in the extdata of an event (0 if there is none), and its number of arguments.
pub(super) fn parse_message(
    extdata: &[u8],
    dictionary: &mut UnitDictionary,
    mended: &mut u64,
) -> (TextId, u32) {
    #[derive(Deserialize)]
    struct Extdata<'a> {
        #[serde(borrow, default)]
        message: Option<Cow<'a, str>>,
        #[serde(default)]
        args: MemberCount,
    }
    if extdata.len() < br#"{"args":{"a":1}}"#.len().min(br#"{"message":""}"#.len()) {
        return (TextId(0), 0);
    }
    let text = lossy(extdata, mended);
    // serde would read the elements of an array as struct fields.
    let object = Some(&*text).filter(|text| text.trim_start().starts_with('{'));
    let parsed = object.and_then(|text| serde_json::from_str::<Extdata<'_>>(text).ok());
    let Some(extdata) = parsed else { return (TextId(0), 0) };
    (extdata.message.map_or(TextId(0), |message| dictionary.texts.add(&message)), extdata.args.0)
}

/// Returns a text with U+FFFD for bytes that are not UTF-8, and counts it if it has any.
fn lossy<'a>(text: &'a [u8], mended: &mut u64) -> Cow<'a, str> {
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
            None => {
                let text = lossy(text, mended);
                let start = texts.len() as u32;
                texts.push_str(&text);
                StoredValue::Text(start, text.len() as u32)
            }
        };
        if let Some(known) = self.known.get_mut(code) {
            *known = Some(stored);
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_extdata_says() {
        let mut dictionary = UnitDictionary::default();
        let mut mended = 0;
        let mut of = |text: &str| {
            let (id, _) = parse_message(text.as_bytes(), &mut dictionary, &mut mended);
            dictionary.texts.get(id).to_owned()
        };
        assert_eq!(of(r#"{"message": "step \"1\""}"#), "step \"1\"");
        assert_eq!(of(r#"{"other":{"message":"no"},"message":"yes"}"#), "yes");
        for none in
            ["{}", "", r#"{"message":17}"#, r#"{"message":null}"#, r#"["message","a"]"#, "{\"message\":\"x"]
        {
            assert_eq!(of(none), "", "{none}");
        }
        assert_eq!(of(r#"{"message":"kept","args":[{"a":1}, 2.5, true, null]}"#), "kept");
        let mut count = |text: &str| parse_message(text.as_bytes(), &mut dictionary, &mut mended).1;
        assert_eq!(count(r#"{"args":{"External id":5,"Input Dims":[[1,2],{"a":3}],"c":"d"}}"#), 3);
        assert_eq!(count(r#"{"message":"a","args":{"b":null}}"#), 1);
        for none in [
            "{\"args\":{}}      ",
            r#"{"args":[1,2,3,4]}"#,
            r#"{"args":"text of some"}"#,
            r#"{"args":-1234567}"#,
        ] {
            assert_eq!(count(none), 0, "{none}");
        }
    }
}
