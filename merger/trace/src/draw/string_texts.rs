//! Maps strings of the run to texts of a unit.

use super::text_columns::add_text;
use crate::item::{TextId, TextTable};
use rpd_run::RunStrings;

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
        let known = &mut self.numbers[place];
        if *known == 0 {
            *known = add_text(self.strings.at(place), texts, mended).0.saturating_add(1);
        }
        TextId(*known - 1)
    }
}
