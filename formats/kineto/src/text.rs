//! Decodes the contents of JSON strings.

use rpd_translator::cut_text;
use std::borrow::Cow;

/// Maximum length of a name or value in bytes; longer ones are cut.
pub(crate) const MAX_NAME: usize = 64 << 10;

/// Returns the text of a string from the bytes between its quotes. An escape that JSON does not define yields the
/// byte after the backslash. Half a surrogate pair yields U+FFFD. A name with wrong escapes therefore remains a
/// name.
pub(crate) fn unescape(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            text.push(*byte);
            continue;
        }
        let Some((escape, after)) = rest.split_first() else { break };
        rest = after;
        match escape {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'u' => {
                let (letter, after) = letter(rest);
                rest = after;
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => text.push(*other),
        }
    }
    Cow::Owned(text)
}

/// Returns the character after `\u`, which may use a second escape, and the remaining bytes.
fn letter(rest: &[u8]) -> (char, &[u8]) {
    let (Some(first), Some(after)) = (unit(rest), rest.get(4..)) else {
        return (char::REPLACEMENT_CHARACTER, rest);
    };
    if (0xd800..0xdc00).contains(&first)
        && let Some(second) = after.strip_prefix(b"\\u").and_then(unit)
        && (0xdc00..0xe000).contains(&second)
    {
        let letter = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        let after = after.get(6..).unwrap_or_default();
        return (char::from_u32(letter).unwrap_or(char::REPLACEMENT_CHARACTER), after);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), after)
}

fn unit(rest: &[u8]) -> Option<u32> {
    let digits = rest.get(..4)?;
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?))
}

/// Returns at most the first [`MAX_NAME`] bytes of a name or value.
pub(crate) fn short(name: &[u8]) -> &[u8] {
    cut_text(name, MAX_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_json_and_no_text_is_refused() {
        for (raw, text) in [
            (r"a\n\t\r\b\f\\\/\x", "a\n\t\r\u{8}\u{c}\\/x".as_bytes()),
            (r"A😀", "A😀".as_bytes()),
            (r"\ud83dx\ude00", "\u{fffd}x\u{fffd}".as_bytes()),
            (r"\u12", "\u{fffd}12".as_bytes()),
            ("plain", b"plain"),
            ("\\", b""),
        ] {
            assert_eq!(unescape(raw.as_bytes()), text, "{raw}");
        }
        assert_eq!(unescape(br#"a\"b"#), &b"a\"b"[..]);
    }
}
