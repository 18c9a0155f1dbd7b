//! Maps strings of the run to texts of a unit.

use crate::item::{TextId, TextTable};
use rpd_run::RunStrings;
use std::borrow::Cow;

/// Numbers of the run's strings in a unit.
#[derive(Debug)]
pub(super) struct StringTexts<'a> {
    strings: &'a RunStrings,
    /// Number of the text plus 1, by the place of the string; 0 if it was not requested yet.
    numbers: Vec<u32>,
}

impl<'a> StringTexts<'a> {
    pub(super) fn new(strings: &'a RunStrings) -> StringTexts<'a> {
        StringTexts { strings, numbers: vec![0; strings.len()] }
    }

    /// Returns the text of a string; the empty text if there is none.
    #[inline]
    pub(super) fn text(&mut self, id: Option<i64>, texts: &mut TextTable, mended: &mut u64) -> TextId {
        let Some(place) = id.and_then(|id| self.strings.place(id)) else { return TextId(0) };
        match self.numbers.get_mut(place) {
            Some(0) => {
                let text = String::from_utf8_lossy(self.strings.at(place));
                *mended += u64::from(matches!(text, Cow::Owned(_)));
                let number = texts.add(&text);
                if let Some(cell) = self.numbers.get_mut(place) {
                    *cell = number.0.saturating_add(1);
                }
                number
            }
            Some(number) => TextId(*number - 1),
            None => TextId(0),
        }
    }
}
