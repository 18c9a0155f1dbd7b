//! Quotes words as a shell reads them.

use std::path::{Path, PathBuf};

/// Returns inputs as the words of a command, each after a space; empty for none. `None` if a name is not UTF-8 or has
/// control characters, so that it cannot be printed.
pub fn input_words(inputs: &[PathBuf]) -> Option<String> {
    inputs.iter().map(|input| Some(format!(" {}", path_word(input)?))).collect()
}

/// Returns a path as one word, which is no option. `None` if it is not UTF-8 or has control characters.
pub fn path_word(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    let is_option = path.starts_with('-');
    shell_word(&if is_option { format!("./{path}") } else { path.to_owned() })
}

/// Returns a text as one word. `None` if it has control characters.
pub fn shell_word(text: &str) -> Option<String> {
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
    fn no_name_is_an_option_or_breaks_the_line() {
        assert_eq!(input_words(&["-x".into()]).unwrap(), " ./-x");
        assert_eq!(input_words(&["a".into(), "b\nc".into()]), None);
    }
}
