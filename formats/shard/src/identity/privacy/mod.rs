//! What must not get into a shard or an output: secrets on command lines and in variables.
//!
//! * [`names`]: which names of options and variables sound like those of a secret.
//! * [`extent`]: where a value ends that is quoted, a word, or a header.
//! * [`words`]: secrets by the word before them, as of `--password X`.
//! * [`short_options`]: `-pX` and `-u user:X` of programs that are not known.
//! * [`values`]: secrets inside of words, as of `token=X` and URLs.
//!
//! Each of them goes through a text once: time is linear in its length.

mod extent;
mod names;
mod short_options;
#[cfg(test)]
mod tests;
mod values;
mod words;

pub use names::{is_secret_name, is_secret_variable};

use extent::is_scheme;
use names::{is_name_byte, is_secret_option, is_secret_setting};
use short_options::{attached_secret, login_secret, takes_login};
use values::{Header, is_token, mask_values};
use words::{mask_words, mask_words_after};

/// Replaces a secret.
const MASK: &str = "***";
/// Longest name of an option.
const NAME_BYTES: usize = 64;

/// A command line in one line, secrets masked.
///
/// Masked are the values of options whose name sounds like a secret (`--api-key X`, `--token=X`,
/// `SECRET=X`), words that look like well-known tokens, passwords in URLs, and inside of longer
/// arguments (a script, JSON, a header) the values after such names. `sshpass -p X`, `-pX` and `-u user:X` are
/// masked, `serve -p 8080` is not: [`short_options`] has the rule.
pub fn masked_command(arguments: &[String]) -> String {
    let mut masked = Vec::with_capacity(arguments.len());
    let mut value_is_secret = false;
    let mut option = "";
    for argument in arguments {
        let before = std::mem::replace(&mut option, argument);
        if let Some(text) = masked_value(before, argument) {
            masked.push(text);
            // `-password X` may be `-p` with a password, and is more often an option with one.
            value_is_secret = argument.bytes().all(is_name_byte) && is_secret_option(argument, "");
            continue;
        }
        if std::mem::take(&mut value_is_secret) && !argument.starts_with('-') {
            masked.push(MASK.to_owned());
            // `Authorization: Bearer X` in three words.
            value_is_secret = is_scheme(argument);
            continue;
        }
        let (text, next) = masked_argument(argument);
        value_is_secret = next;
        masked.push(text);
    }
    masked_line(&masked.join(" "))
}

/// An argument with a secret that a short option in it or before it takes; `None` if there is none. Blanks are
/// a part of the secret, as they are not where arguments are joined.
pub fn masked_value(before: &str, argument: &str) -> Option<String> {
    let login = if takes_login(before) { login_secret(argument) } else { None };
    let secret = login.or_else(|| attached_secret(argument))?;
    Some(format!("{}{MASK}", &argument[..secret]))
}

/// A recorded command line whose arguments are joined already, secrets masked as by [`masked_command`]. What is in
/// quotes counts as one argument.
pub fn masked_line(command: &str) -> String {
    mask_values(&mask_words(command), Header::Words)
}

/// Any text, secrets inside of it masked.
pub fn masked_text(text: &str) -> String {
    mask_values(&mask_words(text), Header::Line)
}

/// The value of a variable whose name is none of a secret, secrets inside of it masked: a proxy's URL may hold a
/// password, and `CURL_OPTS` is what follows `curl`.
pub fn masked_variable(name: &str, value: &str) -> String {
    mask_values(&mask_words_after(name, value), Header::Line)
}

/// Variables without their secrets: values of names that sound like a secret, and secrets inside of the others.
pub fn masked_environment(variables: Vec<(String, String)>) -> Vec<(String, String)> {
    let masked = |(name, value): (String, String)| {
        let is_secret = is_secret_variable(&name) && !value.is_empty();
        let value = if is_secret { MASK.to_owned() } else { masked_variable(&name, &value) };
        (name, value)
    };
    variables.into_iter().map(masked).collect()
}

/// One argument, and whether the next one is a secret.
fn masked_argument(argument: &str) -> (String, bool) {
    let (name, value) = argument.split_once('=').map_or(("", argument), |(name, value)| (name, value));
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES && name.bytes().all(is_name_byte);
    if is_name && is_secret_setting(name, value) {
        return (format!("{name}={MASK}"), false);
    }
    if name.is_empty()
        && argument.starts_with('-')
        && argument.len() <= NAME_BYTES
        && argument.bytes().all(is_name_byte)
        && is_secret_name(argument)
    {
        return (argument.to_owned(), true);
    }
    let header = argument.strip_suffix(':').is_some_and(|n| n.bytes().all(is_name_byte) && is_secret_name(n));
    if header || is_scheme(argument) {
        return (argument.to_owned(), true);
    }
    if (is_name || name.is_empty()) && is_token(value) {
        let equals = if name.is_empty() { "" } else { "=" };
        return (format!("{name}{equals}{MASK}"), false);
    }
    (masked_text(argument), false)
}
