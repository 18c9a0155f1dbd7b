//! Texts by number: messages of markers, and new names of kernels.

use crate::process_output::ElementError;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum number of numbered texts.
const MAX_NUMBERS: usize = 2 << 20;
/// Maximum number of bytes of distinct texts.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct MessageTexts {
    texts: HashMap<u64, Arc<str>>,
    distinct: HashSet<Arc<str>>,
    bytes: usize,
}

impl MessageTexts {
    /// Adds a text. Equal texts are stored once, because programs repeat them.
    pub(crate) fn add(&mut self, number: u64, text: &str) -> Result<(), ElementError> {
        if self.texts.len() >= MAX_NUMBERS {
            return Err(ElementError::OverLimit);
        }
        let text = match self.distinct.get(text) {
            Some(known) => known.clone(),
            None if self.bytes + text.len() > MAX_BYTES => return Err(ElementError::OverLimit),
            None => {
                let new: Arc<str> = text.into();
                self.bytes += text.len();
                self.distinct.insert(new.clone());
                new
            }
        };
        self.texts.insert(number, text);
        Ok(())
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<str>> {
        self.texts.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once_and_memory_is_bounded() {
        let mut messages = MessageTexts::default();
        let long = "x".repeat(MAX_BYTES / 2);
        for number in 0..8 {
            messages.add(number, &long).unwrap();
        }
        messages.add(8, &long[1..]).unwrap();
        assert!(matches!(messages.add(9, "more"), Err(ElementError::OverLimit)));
        assert_eq!(messages.get(7).as_deref(), Some(&long[..]));
        assert!(messages.get(9).is_none());
    }
}
