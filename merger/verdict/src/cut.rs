//! Shortens names and texts.

use serde_json::Value as Json;

/// Mark in place of the middle of a name.
const MARK: &str = "...";
/// Maximum number of characters of a text that is printed for machines.
pub const MAX_TEXT_CHARS: usize = 1 << 14;

/// Returns a text of at most `max` characters. Begin and end of longer ones remain, as both tell templates apart.
pub fn cut_middle(text: &str, max: usize) -> String {
    // Bytes are at least as many as characters.
    if text.len() <= max || text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    let kept = max.saturating_sub(MARK.len());
    let (begin, end) = (kept.div_ceil(2), kept / 2);
    let first: String = text.chars().take(begin).collect();
    let mut last: Vec<char> = text.chars().rev().take(end).collect();
    last.reverse();
    first + MARK + &last.into_iter().collect::<String>()
}

/// Cuts the texts in a JSON value to [`MAX_TEXT_CHARS`].
pub fn cut_texts(value: &mut Json) {
    match value {
        Json::String(text) => *text = cut_middle(text, MAX_TEXT_CHARS),
        Json::Array(values) => values.iter_mut().for_each(cut_texts),
        Json::Object(members) => members.values_mut().for_each(cut_texts),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_long_names_is_cut() {
        assert_eq!(cut_middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut_middle("abcdefghijk", 10), "abcd...ijk");
        assert_eq!(cut_middle("äöüäöüäöüäöü", 12), "äöüäöüäöüäöü");
        assert_eq!(cut_middle("äöüäöüäöüäöü", 5), "ä...ü");
        assert_eq!(cut_middle(&"x".repeat(1 << 20), 60).len(), 60);
    }
}
