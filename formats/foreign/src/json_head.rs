//! Check whether the beginning of a file is JSON.

/// Result of reading the beginning of a file as JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JsonHead {
    /// The first value is complete.
    Whole,
    /// The text ends inside the first value and is valid so far.
    Open,
    /// The text is not valid JSON.
    Broken,
}

/// Values other than numbers and strings; Python writes the last three.
const WORDS: [&[u8]; 6] = [b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity"];

/// The next expected element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    Key,
    Colon,
    /// A comma, or the end of the array or object.
    Next,
}

/// Reads JSON up to the end of its first value. Accepts comments and trailing commas, as in settings files.
pub(crate) fn read_json(text: &[u8]) -> JsonHead {
    // One byte per open bracket; the text is bounded.
    let mut open: Vec<u8> = Vec::new();
    let mut expected = Expected::Value;
    let mut rest = text;
    loop {
        rest = after_space(rest);
        let Some((first, after)) = rest.split_first() else { return JsonHead::Open };
        let used = match (expected, *first) {
            (Expected::Value, bracket @ (b'{' | b'[')) => {
                open.push(bracket);
                expected = if bracket == b'{' { Expected::Key } else { Expected::Value };
                rest = after;
                continue;
            }
            (Expected::Value | Expected::Key | Expected::Next, end @ (b'}' | b']')) => {
                let is_array = end == b']';
                if open.pop() != Some(if is_array { b'[' } else { b'{' })
                    || expected == Expected::Value && !is_array
                {
                    return JsonHead::Broken;
                }
                Some(1)
            }
            (Expected::Colon, b':') => {
                (expected, rest) = (Expected::Value, after);
                continue;
            }
            (Expected::Next, b',') => {
                expected = if open.last() == Some(&b'{') { Expected::Key } else { Expected::Value };
                rest = after;
                continue;
            }
            (Expected::Value | Expected::Key, b'"') => string_length(rest),
            (Expected::Value, _) => match word_length(rest) {
                Ok(length) => length,
                Err(()) => return JsonHead::Broken,
            },
            _ => return JsonHead::Broken,
        };
        let Some(after) = used.and_then(|used| rest.get(used..)) else { return JsonHead::Open };
        rest = after;
        match expected {
            Expected::Key if *first == b'"' => expected = Expected::Colon,
            _ if open.is_empty() => return JsonHead::Whole,
            _ => expected = Expected::Next,
        }
    }
}

/// Returns the text after white space and comments.
fn after_space(text: &[u8]) -> &[u8] {
    let mut rest = text.trim_ascii_start();
    while let Some(comment) = rest.strip_prefix(b"/") {
        let end = match comment.first() {
            Some(b'/') => comment.iter().position(|byte| *byte == b'\n'),
            Some(b'*') => comment.windows(2).skip(1).position(|end| end == b"*/").map(|at| at + 2),
            Some(_) => return rest,
            None => None,
        };
        let after = end.and_then(|end| comment.get(end + 1..)).unwrap_or_default();
        rest = after.trim_ascii_start();
    }
    rest
}

/// Returns the bytes of the string at the start of `text`, including its quotes; `None` if it is not closed.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    let mut bytes = text.iter().enumerate().skip(1);
    let end = bytes.find(|(_, byte)| {
        let ends = **byte == b'"' && !is_escaped;
        is_escaped = **byte == b'\\' && !is_escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// Returns the bytes of the number or word at the start of `text`; `None` if it may continue beyond the text.
fn word_length(text: &[u8]) -> Result<Option<usize>, ()> {
    let is_end = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    let end = text.iter().position(is_end);
    let word = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    let is_number = |word: &[u8]| {
        let digits = word.strip_prefix(b"-").unwrap_or(word);
        digits.first().is_some_and(u8::is_ascii_digit)
            && digits.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte))
    };
    let is_begun = || word == b"-" || WORDS.iter().any(|known| known.starts_with(word));
    match end {
        _ if word.is_empty() => Err(()),
        Some(end) if is_number(word) || WORDS.contains(&word) => Ok(Some(end)),
        Some(_) => Err(()),
        None if is_number(word) || is_begun() => Ok(None),
        None => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_open_and_broken_texts_are_told_apart() {
        for whole in [
            "{}",
            " [1, -2.5e+3, {\"a\": [true, null, NaN]}] rest",
            "\"te\\\"xt\\\\\" {",
            "// settings\n{\"a\": 1, /* more */ \"b\": [1,],}",
            "12 ",
        ] {
            assert_eq!(read_json(whole.as_bytes()), JsonHead::Whole, "{whole}");
        }
        for broken in [
            "hello",
            "{1: 2}",
            "[1 2]",
            "{\"a\" 1}",
            "{\"a\": }",
            "[}",
            "]",
            "{\"a\": tru}",
            "\u{1}",
            "1x ",
            "/ ",
        ] {
            assert_eq!(read_json(broken.as_bytes()), JsonHead::Broken, "{broken}");
        }
        assert_eq!(read_json(b"\x1f\x8b"), JsonHead::Broken);
        // Independent of the length.
        let text = b"{\"ab\\n\": [1.5, false, {\"c\": \"d\"}, [], {}], \"e\": null, \"f\": -Infinity}";
        for length in 0..text.len() {
            assert_eq!(read_json(&text[..length]), JsonHead::Open, "{length}");
        }
        assert_eq!(read_json(text), JsonHead::Whole);
        assert_eq!(read_json(&[b'['; 1 << 16]), JsonHead::Open);
    }
}
