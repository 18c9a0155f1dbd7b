//! The contents of JSON strings.

use rpd_translator::cut_text;
use std::borrow::Cow;

/// Longest name or value that is kept, bytes.
pub(crate) const MAX_NAME: usize = 64 << 10;

/// The text of a string from what is between its quotes. Escapes that JSON does not know represent the byte after
/// the backslash, and half a surrogate pair for U+FFFD: a name that the writer forgot to escape is still a name.
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

/// The letter after `\u`, which may take a second escape, and what follows it.
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

/// As much of a name or value as is kept.
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
