//! Paths as text. A UTF-8 path is its own text. Other bytes are escaped such that two paths never have the same text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns a path as text. A byte that is not UTF-8 becomes `\xff`. The backslash of a name that contains such an
/// escape is itself escaped (`\x5cxff`).
pub(crate) fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        let valid = chunk.valid();
        for (at, character) in valid.char_indices() {
            match character {
                '\\' if is_escape(&valid.as_bytes()[at..]) => text.push_str("\\x5c"),
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns whether bytes start like an escaped byte.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Serializes a path with any bytes, for other merge ranks.
pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_os_str().as_bytes().serialize(serializer)
}

/// Deserializes a path that [`serialize`] wrote.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Vec::<u8>::deserialize(deserializer).map(|bytes| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::ffi::OsStr;

    #[test]
    fn paths_that_differ_have_texts_that_differ() {
        let text = |bytes: &[u8]| path_text(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(text("/run/trace \u{e4}\\n.json".as_bytes()), "/run/trace \u{e4}\\n.json");
        assert_eq!(text(b"a\xff.json"), "a\\xff.json");
        assert_eq!(text(b"a\\xff.json"), "a\\x5cxff.json");
        // All names of up to five of these bytes.
        let mut names: Vec<Vec<u8>> = vec![Vec::new()];
        let mut texts = BTreeSet::new();
        for _ in 0..5 {
            let longer = |name: &Vec<u8>| {
                let more = |byte| [&name[..], &[byte]].concat();
                [b'\\', b'x', b'5', b'c', 0xff, 0xc3].map(more)
            };
            names = names.iter().flat_map(longer).collect();
            names.iter().for_each(|name| assert!(texts.insert(text(name)), "{name:?}"));
        }
    }
}
