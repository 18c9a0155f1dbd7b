//! Masking of secrets on command lines and in variables, so that no shard or output contains them.
//!
//! * [`names`]: names of options and variables that indicate a secret.
//! * [`extent`]: the end of a value that is quoted, a word, or a header.
//! * [`words`]: secrets that the preceding word indicates, such as `--password X`.
//! * [`short_options`]: `-pX` and `-u user:X` of unknown programs.
//! * [`values`]: secrets inside words, such as `token=X` and URLs.
//!
//! Each module reads a text once: time is linear in its length.

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

/// Replacement for a secret.
const MASK: &str = "***";
/// Maximum bytes of an option name.
const NAME_BYTES: usize = 64;

/// Returns a command line as one line with its secrets masked.
///
/// Masked are:
/// * the values of options with a name that indicates a secret (`--api-key X`, `--token=X`, `SECRET=X`);
/// * words with the form of a well-known token, and passwords in URLs;
/// * values after such names inside longer arguments (a script, JSON, a header);
/// * `sshpass -p X`, `-pX` and `-u user:X`. `serve -p 8080` is not masked: `short_options` has the rule.
pub fn masked_command(arguments: &[String]) -> String {
    let mut masked = Vec::with_capacity(arguments.len());
    let mut value_is_secret = false;
    let mut option = "";
    for argument in arguments {
        let before = std::mem::replace(&mut option, argument);
        if let Some(text) = masked_value(before, argument) {
            masked.push(text);
            // `-password X` may be `-p` with a password attached; usually it is an option followed by a password.
            value_is_secret = argument.bytes().all(is_name_byte) && is_secret_option(argument, "");
            continue;
        }
        if std::mem::take(&mut value_is_secret) && !argument.starts_with('-') {
            masked.push(MASK.to_owned());
            // `Authorization: Bearer X` as three words.
            value_is_secret = is_scheme(argument);
            continue;
        }
        let (text, next) = masked_argument(argument);
        value_is_secret = next;
        masked.push(text);
    }
    masked_line(&masked.join(" "))
}

/// Masks the secret of a short option that is in `argument` or directly before it. Returns `None` if there is none.
/// White space belongs to the secret, unlike in joined arguments.
pub fn masked_value(before: &str, argument: &str) -> Option<String> {
    let login = if takes_login(before) { login_secret(argument) } else { None };
    let secret = login.or_else(|| attached_secret(argument))?;
    Some(format!("{}{MASK}", &argument[..secret]))
}

/// Masks secrets in a recorded command line of joined arguments, as [`masked_command`] does. Quoted
/// text counts as one argument.
pub fn masked_line(command: &str) -> String {
    mask_values(&mask_words(command), Header::Words)
}

/// Masks secrets in any text.
pub fn masked_text(text: &str) -> String {
    mask_values(&mask_words(text), Header::Line)
}

/// Masks secrets in the value of a variable with a name that does not indicate a secret. A proxy URL may contain a
/// password, and `CURL_OPTS` contains arguments of `curl`.
pub fn masked_variable(name: &str, value: &str) -> String {
    mask_values(&mask_words_after(name, value), Header::Line)
}

/// Masks variables: whole values if the name indicates a secret, otherwise the secrets inside the value.
pub fn masked_environment(variables: Vec<(String, String)>) -> Vec<(String, String)> {
    let masked = |(name, value): (String, String)| {
        let is_secret = is_secret_variable(&name) && !value.is_empty();
        let value = if is_secret { MASK.to_owned() } else { masked_variable(&name, &value) };
        (name, value)
    };
    variables.into_iter().map(masked).collect()
}

/// Masks one argument. Also returns whether the next argument is a secret.
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
