//! Ids inside JSON text: found by path, rewritten in place, everything else byte for byte as it was.

use serde_json::value::RawValue;
use std::collections::HashMap;

/// The number at `path` in the object `json`: its place in the text and its value.
///
/// `None` where the text is no JSON object (or nested deeper than serde_json allows), the path is not
/// there, or what stands there is no integer.
pub(super) fn find(json: &str, path: &[String]) -> Option<(std::ops::Range<usize>, i64)> {
    let mut text = json;
    for key in path {
        let object: HashMap<&str, &RawValue> = serde_json::from_str(text).ok()?;
        text = object.get(key.as_str())?.get();
    }
    let value = text.parse().ok()?;
    // `text` is a slice of `json`: RawValue borrows.
    let start = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    Some((start..start + text.len(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|k| (*k).to_owned()).collect()
    }

    #[test]
    fn finds_the_number_and_nothing_else() {
        let json = r#"{ "kernel_id":  7, "pc": {"x": [1, {"code_object_id": 9}], "code_object_id": -3 } }"#;
        let (place, value) = find(json, &path(&["kernel_id"])).unwrap();
        assert_eq!((&json[place], value), ("7", 7));
        let (place, value) = find(json, &path(&["pc", "code_object_id"])).unwrap();
        assert_eq!((&json[place], value), ("-3", -3));
        assert_eq!(find(json, &path(&["code_object_id"])), None);
        assert_eq!(find(r#"{"kernel_id": "7"}"#, &path(&["kernel_id"])), None);
        assert_eq!(find("[7]", &path(&["kernel_id"])), None);
    }

    #[test]
    fn nesting_without_end_is_refused_and_not_followed() {
        let deep = format!("{{\"kernel_id\": {}", "[".repeat(1 << 20));
        assert_eq!(find(&deep, &path(&["kernel_id"])), None);
    }
}
