//! Quotes words as a shell reads them.

use crate::options::CommonArgs;
use std::path::PathBuf;

/// Returns inputs as the words of a command, each after a space; empty for none. `None` if a name is not UTF-8 or has
/// control characters, so that it cannot be printed.
pub(crate) fn input_words(inputs: &[PathBuf]) -> Option<String> {
    let words = inputs.iter().map(|input| {
        let path = input.to_str()?;
        let is_option = path.starts_with('-');
        shell_word(&if is_option { format!("./{path}") } else { path.to_owned() })
    });
    words.map(|word| Some(format!(" {}", word?))).collect()
}

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

/// Returns a text as one word. `None` if it has control characters.
fn shell_word(text: &str) -> Option<String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-./,:+@%".contains(character);
    if text.chars().any(char::is_control) {
        return None;
    }
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Some(text.to_owned()),
        false => Some(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_the_same_names() {
        let names = ["rpd-out/4711.0", "a b", "it's", "$HOME", "~", "", "a;b", "ä*?", "\\", "\"x\""];
        let inputs = names.map(PathBuf::from);
        let script = format!("printf '%s\\n'{}", input_words(&inputs).unwrap());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), names.join("\n") + "\n");
        assert_eq!(input_words(&inputs[..2]).unwrap(), " rpd-out/4711.0 'a b'");
        assert_eq!(input_words(&[]), Some(String::new()));
    }

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

    #[test]
    fn no_name_is_an_option_or_breaks_the_line() {
        assert_eq!(input_words(&["-x".into()]).unwrap(), " ./-x");
        assert_eq!(input_words(&["a".into(), "b\nc".into()]), None);
    }
}
