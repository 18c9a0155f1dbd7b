//! Ids inside JSON text: found by path, rewritten in place, everything else byte for byte as it was.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// What stands at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or no number: there is no id.
    Nothing,
    /// An integer, at this place in the text.
    Id(Range<usize>, i64),
    /// A number that is no key of anything.
    NoId(Range<usize>),
}

/// A key of an object. Borrowed unless it has escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Whether a text is JSON, nested no deeper than serde_json goes (128 levels).
pub(super) fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// A text that is no JSON, as JSON.
pub(super) fn wrapped(text: &[u8]) -> Vec<u8> {
    json!({ "rpd": { "no_json": String::from_utf8_lossy(text) } }).to_string().into_bytes()
}

/// Looks `path` up in the JSON text `json`.
pub(super) fn find(json: &str, path: &[String]) -> Found {
    let mut text = json.trim();
    for key in path {
        let Ok(object) = serde_json::from_str::<HashMap<Key<'_>, &RawValue>>(text) else {
            return Found::Nothing;
        };
        match object.get(&Key(Cow::Borrowed(key))) {
            Some(value) => text = value.get(),
            None => return Found::Nothing,
        }
    }
    // `text` is a slice of `json`: RawValue borrows.
    let start = text.as_ptr() as usize - json.as_ptr() as usize;
    let place = start..start + text.len();
    match text.parse() {
        Ok(id) => Found::Id(place, id),
        Err(_) if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Found::NoId(place),
        Err(_) => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|k| (*k).to_owned()).collect()
    }

    fn id(json: &str, keys: &[&str]) -> Option<(String, i64)> {
        match find(json, &path(keys)) {
            Found::Id(place, id) => Some((json[place].to_owned(), id)),
            _ => None,
        }
    }

    #[test]
    fn finds_the_number_and_nothing_else() {
        let json = r#"{ "a\n": 1, "kernel_id":  7, "pc": {"x": [1, {"code_object_id": 9}], "code_object_id": -3 } }"#;
        assert_eq!(id(json, &["kernel_id"]), Some(("7".to_owned(), 7)));
        assert_eq!(id(json, &["pc", "code_object_id"]), Some(("-3".to_owned(), -3)));
        assert_eq!(find(json, &path(&["code_object_id"])), Found::Nothing);
        assert_eq!(find(r#"{"kernel_id": "7"}"#, &path(&["kernel_id"])), Found::Nothing);
        assert_eq!(find("[7]", &path(&["kernel_id"])), Found::Nothing);
        assert_eq!(find("", &path(&["kernel_id"])), Found::Nothing);
        assert_eq!(find(r#"{"kernel_id":9223372036854775808}"#, &path(&["kernel_id"])), Found::NoId(13..32));
    }

    #[test]
    fn nesting_without_end_is_refused_and_not_followed() {
        let deep = format!("{{\"kernel_id\": {}", "[".repeat(1 << 20));
        assert!(!is_json(deep.as_bytes()));
        assert_eq!(find(&deep, &path(&["kernel_id"])), Found::Nothing);
        assert!(is_json(&wrapped(deep.as_bytes())));
    }
}
