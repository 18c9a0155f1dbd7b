//! Paths as texts. A path that is UTF-8 is its own text; other bytes are escaped, so that two paths never have one text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path as a text: a byte that is no UTF-8 becomes `\xff`, and so does the backslash of a name that has such a text itself
/// (`\x5cxff`).
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
            // A String takes all that is written.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether bytes begin like an escaped byte.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Writes a path for other merge ranks, whatever its bytes are.
pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_os_str().as_bytes().serialize(serializer)
}

/// Reads what [`serialize`] wrote.
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
        // All names of these bytes, of up to five.
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
