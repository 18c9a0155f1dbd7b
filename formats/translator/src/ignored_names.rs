use std::collections::BTreeMap;

/// Maximum number of names; content with further names is counted under [`OTHER_NAMES`].
const MAX_NAMES: usize = 1000;
/// Maximum characters of a name.
const MAX_NAME_CHARS: usize = 200;
const OTHER_NAMES: &str = "other things";

/// Counts, by name, content of a file that RocPD cannot represent. Number and length of the names are bounded.
#[derive(Clone, Debug, Default)]
pub struct IgnoredNames {
    counts: BTreeMap<String, u64>,
}

impl IgnoredNames {
    /// Counts content with this name. A count of 0 adds no name.
    pub fn add(&mut self, name: &str, count: u64) {
        if count == 0 {
            return;
        }
        let end = name.char_indices().nth(MAX_NAME_CHARS).map_or(name.len(), |(end, _)| end);
        let name = name.get(..end).unwrap_or(name);
        if let Some(known) = self.counts.get_mut(name) {
            *known += count;
            return;
        }
        let name = if self.counts.len() < MAX_NAMES { name } else { OTHER_NAMES };
        *self.counts.entry(name.to_owned()).or_default() += count;
    }

    /// Returns the counts by name.
    pub fn into_counts(self) -> BTreeMap<String, u64> {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let mut names = IgnoredNames::default();
        names.add(&"\u{e4}".repeat(MAX_NAME_CHARS + 1), 1);
        names.add("nothing", 0);
        (0..MAX_NAMES).for_each(|number| names.add(&number.to_string(), 2));
        let counts = names.into_counts();
        assert_eq!((counts.len(), counts[OTHER_NAMES]), (MAX_NAMES + 1, 2));
        assert_eq!(counts[&"\u{e4}".repeat(MAX_NAME_CHARS)], 1);
    }
}
