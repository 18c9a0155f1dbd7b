//! Finds ids in JSON text by path and rewrites them in place. All other bytes stay unchanged.

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Maximum nesting of JSON text. SQLite allows 1000; real texts stay far below 100.
const MAX_DEPTH: usize = 128;

/// Value at a path of a JSON text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonId {
    /// Nothing, or not a number: there is no id.
    Nothing,
    /// An integer, at this position in the text.
    Id(Range<usize>, i64),
    /// A number that cannot be a key.
    NoId(Range<usize>),
    /// A key that occurs twice or is not Unicode, so that readers would disagree about the value.
    Ambiguous,
}

/// A key of an object. Borrowed unless it contains escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Members of an object, in their order.
struct Members<'a>(Vec<(Key<'a>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Returns whether a text is JSON of at most [`MAX_DEPTH`] levels.
pub(super) fn is_json(text: &[u8]) -> bool {
    depth(text) <= MAX_DEPTH && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Returns the deepest nesting of brackets outside of strings.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Wraps a text that is not JSON into a JSON object.
pub(super) fn wrapped(text: &[u8]) -> Vec<u8> {
    json!({ "rpd": { "no_json": String::from_utf8_lossy(text) } }).to_string().into_bytes()
}

/// Looks up `path` in the JSON text `json`.
pub(super) fn find(json: &str, path: &[String]) -> JsonId {
    let mut text = json.trim();
    for key in path {
        if !text.starts_with('{') {
            return JsonId::Nothing;
        }
        let Ok(Members(members)) = serde_json::from_str(text) else { return JsonId::Ambiguous };
        let mut values = members.iter().filter(|(k, _)| k.0 == *key).map(|(_, value)| value);
        text = match (values.next(), values.next()) {
            (None, _) => return JsonId::Nothing,
            (Some(value), None) => value.get(),
            (Some(_), Some(_)) => return JsonId::Ambiguous,
        };
    }
    // `text` is a slice of `json`, because RawValue borrows.
    let start = text.as_ptr() as usize - json.as_ptr() as usize;
    let place = start..start + text.len();
    match text.parse() {
        Ok(id) => JsonId::Id(place, id),
        Err(_) if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => JsonId::NoId(place),
        Err(_) => JsonId::Nothing,
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
            JsonId::Id(place, id) => Some((json[place].to_owned(), id)),
            _ => None,
        }
    }

    #[test]
    fn finds_the_number_and_nothing_else() {
        let json = r#"{ "a\n": 1, "kernel_id":  7, "pc": {"x": [1, {"code_object_id": 9}], "code_object_id": -3 } }"#;
        assert_eq!(id(json, &["kernel_id"]), Some(("7".to_owned(), 7)));
        assert_eq!(id(json, &["pc", "code_object_id"]), Some(("-3".to_owned(), -3)));
        assert_eq!(find(json, &path(&["code_object_id"])), JsonId::Nothing);
        assert_eq!(find(r#"{"kernel_id": "7"}"#, &path(&["kernel_id"])), JsonId::Nothing);
        assert_eq!(find("[7]", &path(&["kernel_id"])), JsonId::Nothing);
        assert_eq!(find("", &path(&["kernel_id"])), JsonId::Nothing);
        assert_eq!(find(r#"{"kernel_id":9223372036854775808}"#, &path(&["kernel_id"])), JsonId::NoId(13..32));
    }

    #[test]
    fn nesting_without_end_is_refused_and_not_followed() {
        let deep = format!("{{\"kernel_id\": {}", "[".repeat(1 << 20));
        assert!(!is_json(deep.as_bytes()));
        assert!(is_json(&wrapped(deep.as_bytes())));
        let balanced = "[".repeat(2000) + &"]".repeat(2000);
        assert!(!is_json(balanced.as_bytes()));
        assert!(is_json(format!("[\"{balanced}\\\"[\"]").as_bytes()));
    }

    #[test]
    fn what_readers_would_read_differently_is_not_rewritten() {
        let twice = r#"{"stream_id":3,"stream_id":2}"#;
        assert_eq!(find(twice, &path(&["stream_id"])), JsonId::Ambiguous);
        assert_eq!(find(r#"{"\ud800":1,"stream_id":3}"#, &path(&["stream_id"])), JsonId::Ambiguous);
    }
}
