//! The selection of a run as words of a command.

use crate::options::CommonArgs;
use rpd_shard::shell_words::shell_word;

/// Returns the options that select a part of a run as the words of a command, each after a space; empty for none.
/// `None` if a value has control characters.
pub(crate) fn selection_words(common: &CommonArgs) -> Option<String> {
    let options = [
        ("--window", common.window.map(|window| window.to_string())),
        ("--ranks", common.ranks.as_ref().map(|ranks| ranks.to_string())),
        ("--nodes", common.nodes.as_ref().map(|nodes| nodes.join(","))),
        ("--step", common.step.clone()),
    ];
    let given = options.into_iter().filter_map(|(option, value)| Some((option, value?)));
    let words = given.map(|(option, value)| {
        let between = if value.starts_with('-') { '=' } else { ' ' };
        Some(format!(" {option}{between}{}", shell_word(&value)?))
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn a_selection_is_read_as_it_was_given() {
        let common = CommonArgs {
            window: Some("1.5..20".parse().unwrap()),
            ranks: Some("0,2-3".parse().unwrap()),
            nodes: Some(vec!["it's".to_owned(), "n 1".to_owned()]),
            step: Some("-step".to_owned()),
            ..CommonArgs::default()
        };
        let words = selection_words(&common).unwrap();
        assert_eq!(words, r" --window 1.5..20 --ranks 0,2-3 --nodes 'it'\''s,n 1' --step=-step");
        let output = Command::new("sh").args(["-c", &format!("printf '%s\\n'{words}")]).output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().contains("\n--nodes\nit's,n 1\n"));
        assert_eq!(selection_words(&CommonArgs::default()), Some(String::new()));
        let hostile = CommonArgs { step: Some("a\nb".to_owned()), ..CommonArgs::default() };
        assert_eq!(selection_words(&hostile), None);
    }
}
