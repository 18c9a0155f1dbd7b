use crate::wire;

/// Maximum length of a text in bytes; longer texts are cut.
pub const MAX_TEXT: usize = 64 << 10;

/// Numbers of texts that were not written unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendedText {
    /// Texts longer than [`MAX_TEXT`]: cut, with an ellipsis at the end.
    pub cut: u64,
    /// Texts with NUL, at which readers would end the text: NUL is replaced by U+2400.
    pub nul: u64,
}

/// Writes a field with a text that every reader accepts.
pub(crate) fn text(out: &mut Vec<u8>, field: u32, text: &str, mended: &mut MendedText) {
    let mut shown = text;
    let mut end = "";
    if text.len() > MAX_TEXT {
        mended.cut += 1;
        end = "\u{2026}";
        shown = &text[..char_boundary(text, MAX_TEXT - end.len())];
    }
    if shown.contains('\0') {
        mended.nul += 1;
        let visible = shown.replace('\0', "\u{2400}");
        // U+2400 has three bytes, so the replacement can make the text too long.
        let mut whole = visible + end;
        if whole.len() > MAX_TEXT {
            whole.truncate(char_boundary(&whole, MAX_TEXT));
        }
        wire::bytes(out, field, whole.as_bytes());
    } else if end.is_empty() {
        wire::bytes(out, field, shown.as_bytes());
    } else {
        wire::bytes(out, field, [shown, end].concat().as_bytes());
    }
}

/// Returns the last character boundary at or before an offset.
fn char_boundary(text: &str, place: usize) -> usize {
    (0..=place.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &str) -> (String, MendedText) {
        let mut out = Vec::new();
        let mut mended = MendedText::default();
        text(&mut out, 1, value, &mut mended);
        let mut head = Vec::new();
        wire::varint(&mut head, (out.len() - if out.len() > 16_000 { 4 } else { 2 }) as u64);
        assert_eq!(out[1..=head.len()], head);
        (String::from_utf8(out.split_off(1 + head.len())).unwrap(), mended)
    }

    #[test]
    fn texts_are_written_as_they_are() {
        for text in ["", "kernel<int, 4>()", "Größe \u{1f980}", "\u{1}\n\t\\\"", &"x".repeat(MAX_TEXT)] {
            assert_eq!(written(text), (text.to_owned(), MendedText::default()));
        }
    }

    #[test]
    fn nul_becomes_visible_and_is_counted() {
        assert_eq!(written("a\0b\0"), ("a\u{2400}b\u{2400}".into(), MendedText { cut: 0, nul: 1 }));
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_counted() {
        for text in ["x".repeat(MAX_TEXT + 1), "\u{1f980}".repeat(MAX_TEXT), "ä\0".repeat(MAX_TEXT)] {
            let (text, mended) = written(&text);
            assert!(text.len() <= MAX_TEXT && text.len() > MAX_TEXT - 7, "{}", text.len());
            assert_eq!(mended.cut, 1);
        }
    }
}
