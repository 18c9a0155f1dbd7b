//! Extents of values in a text. All positions are byte offsets from the start of the text.

/// Characters that may directly follow a value and do not belong to it.
const CLOSERS: [char; 9] = ['"', '\'', '\\', ')', ']', '}', ';', ',', '`'];

/// Returns whether a word is an authorization scheme that a value follows.
pub(super) fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer")
}

pub(super) fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Returns the extent of the text in the quotes or the `$(..)` that start at `from`; `None` if there are none.
pub(super) fn quoted(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    if bytes.get(from..).is_some_and(|rest| rest.starts_with(b"$(")) {
        return Some((from, substitution(bytes, from)));
    }
    if bytes.get(from) == Some(&b'`') {
        return Some((from + 1, find(bytes, from + 1, b'`')));
    }
    let escaped = from + bytes.get(from..)?.iter().take_while(|byte| **byte == b'\\').count();
    let quote = bytes.get(escaped).copied().filter(|byte| is_quote(*byte))?;
    let inside = escaped + 1;
    let mut to = inside;
    while let Some(&byte) = bytes.get(to) {
        let rest = bytes.get(to..).unwrap_or_default();
        if byte == quote {
            // Forms in which a shell writes a single quote inside single quotes.
            match [&b"'\\''"[..], b"'\"'\"'"].into_iter().find(|one| escaped == from && rest.starts_with(one))
            {
                Some(one) => to += one.len(),
                None => break,
            }
        } else if byte == b'\\' {
            // `\"` ends a text that started with `\"`; in any other text it is part of the text.
            if escaped > from {
                break;
            }
            to += 2;
        } else if quote == b'"' && rest.starts_with(b"$(") {
            to = substitution(bytes, to);
        } else {
            to += 1;
        }
    }
    Some((inside, ceil(text, to)))
}

/// Returns the end of `$(..)`, or the end of the text if it is not closed.
fn substitution(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' => depth += 1,
            b')' if depth <= 1 => return at + 1,
            b')' => depth -= 1,
            _ => {}
        }
    }
    bytes.len()
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|byte| *byte == wanted).unwrap_or(rest.len())
}

/// Returns the next character boundary at or after `at`.
fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Returns the extent of a value that is one argument: quoted, or everything up to white space.
pub(super) fn argument(text: &str, from: usize) -> (usize, usize) {
    quoted(text, from).unwrap_or_else(|| {
        let rest = text.get(from..).unwrap_or_default();
        let word = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
        (from, from + word.trim_end_matches(CLOSERS).len())
    })
}

/// Returns the extent of a value inside a list, a script or a connection string.
pub(super) fn part(text: &str, at: usize) -> (usize, usize) {
    until(text, at, |c| c.is_whitespace() || "\"'\\,;&|)}]".contains(c))
}

/// Returns the extent from the first character that is not white space to the first one that `ends` accepts.
pub(super) fn until(text: &str, at: usize, ends: impl Fn(char) -> bool) -> (usize, usize) {
    let rest = text.get(at..).unwrap_or_default();
    let from = at + (rest.len() - rest.trim_start().len());
    let rest = text.get(from..).unwrap_or_default();
    (from, from + rest.find(ends).unwrap_or(rest.len()))
}

/// Returns the extent of an unquoted header value in a line that continues after it. It is a word, the word after
/// its scheme, and further words while they form a list.
pub(super) fn header_words(text: &str, from: usize) -> (usize, usize) {
    let word_at = |at: usize| until(text, at, char::is_whitespace);
    let (first, mut end) = word_at(from);
    let mut word = text.get(first..end).unwrap_or_default();
    while is_scheme(word) || is_other_scheme(word) || word.ends_with([';', ',']) {
        let (next, next_end) = word_at(end);
        let next_word = text.get(next..next_end).unwrap_or_default();
        if next_word.is_empty() || next_word.starts_with('-') {
            break;
        }
        (word, end) = (next_word, next_end);
    }
    let word_from = end - word.len();
    // Quotes that opened before the name.
    let length = word.trim_end_matches(CLOSERS).len();
    (first, word_from + length)
}

fn is_other_scheme(word: &str) -> bool {
    ["basic", "digest", "token", "negotiate", "apikey"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}
