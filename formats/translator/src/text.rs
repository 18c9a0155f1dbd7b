/// Returns at most the first `max_bytes` of a text without splitting a UTF-8 character. Text that is not UTF-8 is
/// cut at most four bytes before the limit.
pub fn cut_text(text: &[u8], max_bytes: usize) -> &[u8] {
    let Some(mut end) = (text.len() > max_bytes).then_some(max_bytes) else { return text };
    while end > 0 && text.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) && max_bytes - end < 4 {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_split() {
        let text = "a\u{e4}\u{20ac}".as_bytes();
        let cut: Vec<&[u8]> = (0..=text.len()).map(|max_bytes| cut_text(text, max_bytes)).collect();
        let [empty, a, umlaut] = ["", "a", "a\u{e4}"].map(str::as_bytes);
        assert_eq!(cut, [empty, a, a, umlaut, umlaut, umlaut, text]);
    }
}
