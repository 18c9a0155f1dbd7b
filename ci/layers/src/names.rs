//! Counts words in names of types.

use crate::source_tree::SourceTree;

/// Returns whether a type name in CamelCase is one word, such as `Shard` or `MPI`.
pub fn is_one_word(name: &str) -> bool {
    let letters: Vec<char> = name.chars().collect();
    let begins_word = |at: usize| {
        let (before, here) = (letters[at - 1], letters[at]);
        let is_end_of_capitals =
            before.is_uppercase() && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        here.is_uppercase() && (!before.is_uppercase() || is_end_of_capitals)
    };
    !(1..letters.len()).any(begins_word)
}

/// Returns the number of public types with a name of one word, and the number of all public types.
pub fn share_of_one_word_names(tree: &SourceTree) -> (usize, usize) {
    let names = || tree.files().flat_map(|file| &file.public_types);
    (names().filter(|item| is_one_word(&item.name)).count(), names().count())
}

#[cfg(test)]
mod tests {
    use super::is_one_word;

    #[test]
    fn words_begin_with_capitals() {
        for name in ["Shard", "MPI", "Utf8", "X"] {
            assert!(is_one_word(name), "{name}");
        }
        for name in ["ClockFit", "MpiCall", "MPIRank", "ClockID"] {
            assert!(!is_one_word(name), "{name}");
        }
    }
}
