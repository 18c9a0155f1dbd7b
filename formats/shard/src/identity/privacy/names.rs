//! Names that indicate a secret.

/// Name parts that indicate a secret in any name. The library in the traced program uses the same list.
pub(super) const SECRET_PARTS: [&str; 7] = ["TOKEN", "KEY", "SECRET", "PASSW", "CRED", "JWT", "AUTH"];
/// Further name parts for options, headers and variables.
const SECRET_WORD_PARTS: [&str; 3] = ["PASSPHR", "COOKIE", "AWS_SESSION"];
/// Further name parts for variables of a whole environment, in which the user did not choose the names.
const SECRET_VARIABLE_PARTS: [&str; 10] = [
    "PASS",
    "PWD",
    "SESSIONID",
    "PRIVATE",
    "WEBHOOK",
    "DSN",
    "CONNECTION_STRING",
    "CONNECTIONSTRING",
    "CONN_STR",
    "UNSEAL",
];
/// Parts of variable names that contain one of those but do not indicate a secret.
const HARMLESS_VARIABLE_PARTS: [&str; 3] = ["BYPASS", "PASSTHR", "PASSES"];
/// Parts of option names that contain one of those but do not indicate a secret.
const HARMLESS_PARTS: [&str; 8] =
    ["TOKENIZER", "TOKENS", "KEYWORD", "KEYBOARD", "CREDIT", "AUTHORS", "COOKIE-JAR", "COOKIEJAR"];
/// Words that indicate a secret as the last word of an option name, such as `--db-pass`.
const LAST_OPTION_WORDS: [&str; 7] = ["PWD", "PW", "PASS", "PASSCODE", "BEARER", "PSK", "HMAC"];
/// Further last words of option names, unless the value is that of a switch: `-pin on` pins threads.
const CODES: [&str; 6] = ["PIN", "PAT", "OTP", "SALT", "SAS", "TOK"];
const SWITCHES: [&str; 8] = ["on", "off", "auto", "yes", "no", "true", "false", "1"];
/// Words before `PASS` that make it mean a turn.
const TURNS: [&str; 9] = ["FIRST", "SECOND", "ONE", "TWO", "SINGLE", "MULTI", "NO", "FORWARD", "BACKWARD"];
/// Words that indicate a secret anywhere in a variable name.
const VARIABLE_WORDS: [&str; 5] = ["BEARER", "HMAC", "MFA", "SIGNATURE", "NETRC"];
/// Words that indicate a secret at the end of a variable name. `PIN_MEMORY` and `LOGIN_NODE` are no secrets.
const LAST_VARIABLE_WORDS: [&str; 10] =
    ["PAT", "PW", "SK", "OTP", "PIN", "SAS", "SALT", "TOK", "LOGIN", "PSK"];
/// Variables that end like a secret but control thread placement: the switch of Intel MPI.
const PINNING: [&str; 1] = ["I_MPI_PIN"];
/// Ends of names of headers with several words as their value.
const HEADERS: [&str; 2] = ["AUTHORIZATION", "COOKIE"];
/// Names that a value may follow after a `:` without white space.
const COLON_WORDS: [&str; 9] =
    ["TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "PW", "SECRET", "APIKEY"];

/// Returns whether the name of an option or variable indicates a secret. The common names `--tokenizer`,
/// `--max-tokens` and `--author` do not.
pub fn is_secret_name(name: &str) -> bool {
    let mut upper = name.to_ascii_uppercase();
    HARMLESS_PARTS.iter().for_each(|harmless| upper = upper.replace(harmless, ""));
    // `AUTHOR` is also the start of `AUTHORIZATION`.
    if upper.ends_with("AUTHOR") {
        upper = upper.replace("AUTHOR", "");
    }
    SECRET_PARTS.iter().chain(&SECRET_WORD_PARTS).any(|part| upper.contains(part))
}

/// Returns whether the name of a variable of a whole environment indicates a secret.
pub fn is_secret_variable(name: &str) -> bool {
    let mut upper = name.to_ascii_uppercase();
    if matches!(upper.as_str(), "PWD" | "OLDPWD") {
        return false;
    }
    HARMLESS_VARIABLE_PARTS.iter().for_each(|harmless| upper = upper.replace(harmless, ""));
    is_secret_name(&upper)
        || SECRET_VARIABLE_PARTS.iter().any(|part| upper.contains(part))
        || !PINNING.contains(&upper.as_str()) && has_secret_word(&upper)
}

fn has_secret_word(upper: &str) -> bool {
    let is_listed = |word: &str| VARIABLE_WORDS.contains(&word);
    let last = last_word(upper);
    words(upper).any(is_listed)
        || LAST_VARIABLE_WORDS.contains(&last)
        || last.len() > 2 && last.ends_with("PW")
        || words(upper).skip(1).any(|word| word == "SAS")
}

/// Returns whether the value of `--name X` is a secret.
pub(super) fn is_secret_option(name: &str, value: &str) -> bool {
    if is_secret_name(name) {
        return true;
    }
    let upper = name.trim_start_matches('-').to_ascii_uppercase();
    let last = last_word(&upper);
    match last {
        // `--pwd` with a path is a working directory.
        "PWD" => !value.trim_start_matches(['"', '\'', '\\']).starts_with(['/', '.', '~', '$']),
        "PASS" => {
            let before = upper.len().checked_sub("_PASS".len()).and_then(|end| upper.get(..end));
            let is_turn = before.is_some_and(|before| TURNS.contains(&last_word(before)));
            let is_number = value.len() <= 2 && value.bytes().all(|byte| byte.is_ascii_digit());
            !is_turn && (!is_number || value.is_empty())
        }
        _ if CODES.contains(&last) => {
            !SWITCHES.iter().any(|switch| !value.is_empty() && switch.starts_with(value))
        }
        _ => LAST_OPTION_WORDS.contains(&last) || upper == "PROXY-USER",
    }
}

/// Returns whether the value of `NAME=X` is a secret. A name in capitals is that of a variable.
pub(super) fn is_secret_setting(name: &str, value: &str) -> bool {
    let is_variable = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    if is_variable { is_secret_variable(name) } else { is_secret_option(name, value) }
}

/// Returns whether the value of `?name=X` in a URL is a secret.
pub(super) fn is_secret_parameter(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    is_secret_setting(name, value) || matches!(last_word(&upper), "SIG" | "SIGNATURE")
}

/// Returns whether the value of `name:X` is a secret.
pub(super) fn takes_colon(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_key = ["API_KEY", "API-KEY", "ACCESS_KEY", "ACCESS-KEY"].iter().any(|key| upper.ends_with(key));
    is_secret_option(name, value) && (is_key || COLON_WORDS.contains(&last_word(&upper)) || is_header(name))
        || upper == "PASS"
}

/// Returns whether this is a header with a secret. It may follow its option directly, as in `-HAuthorization`.
pub(super) fn is_header(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    HEADERS.iter().any(|header| upper.ends_with(header))
}

fn words(upper: &str) -> impl Iterator<Item = &str> {
    upper.split(['_', '-', '.'])
}

fn last_word(upper: &str) -> &str {
    upper.rsplit(['_', '-', '.']).next().unwrap_or(upper)
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
