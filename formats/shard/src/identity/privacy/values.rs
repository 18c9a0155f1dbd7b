//! Secrets inside words: after names, in URLs, and words with the form of a token.

use super::extent::{argument, header_words, is_quote, is_scheme, part, quoted, until};
use super::names::{
    is_header, is_name_byte, is_secret_name, is_secret_option, is_secret_parameter, is_secret_setting,
    takes_colon,
};
use super::{MASK, NAME_BYTES};

/// Prefixes of words that are tokens, whatever option they belong to.
const TOKEN_PREFIXES: [&str; 8] = ["hf_", "ghp_", "gho_", "github_pat_", "glpat-", "sk-", "xoxb-", "AKIA"];
/// Minimum number of bytes of a token after its prefix.
const TOKEN_BYTES: usize = 12;
/// User names in URLs that are not tokens.
const USERS: [&str; 10] =
    ["git", "hg", "svn", "user", "username", "anonymous", "guest", "root", "admin", "x-access-token"];
/// URL prefixes after which the path is a secret.
const SECRET_PATHS: [&str; 3] =
    ["hooks.slack.com/services/", "discord.com/api/webhooks/", "hooks.slack.com/workflows/"];

/// Extent of an unquoted header value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    /// Some words: the text is a command line.
    Words,
    /// To the end of the line: the text is an argument or a variable.
    Line,
}

pub(super) fn mask_values(text: &str, header: Header) -> String {
    let mut masked = String::with_capacity(text.len());
    // End of the text that is already copied, and start of the current word.
    let (mut done, mut word) = (0, 0);
    for (at, byte) in text.bytes().enumerate() {
        if at < done {
            word = at + 1;
            continue;
        }
        let secret = match byte {
            b':' if text[at..].starts_with("://") => userinfo(text, at),
            b':' | b'=' => value(text, at, header),
            b'/' => secret_path(text, at),
            b' ' | b'\t' if is_scheme(&text[word..at]) => Some(part(text, at + 1)),
            b'-' if word == at && text[at..].starts_with("-----BEGIN ") => private_key(text, at),
            _ if is_name_byte(byte) && word == at => jwt_or_token(text, at),
            _ => None,
        };
        if !is_name_byte(byte) {
            word = at + 1;
        }
        if let Some((from, to)) = secret.filter(|(from, to)| from < to) {
            masked.push_str(&text[done..from]);
            masked.push_str(MASK);
            done = to;
        }
    }
    masked.push_str(&text[done..]);
    masked
}

pub(super) fn is_token(word: &str) -> bool {
    TOKEN_PREFIXES.iter().any(|prefix| word.len() >= prefix.len() + TOKEN_BYTES && word.starts_with(prefix))
}

/// Returns the extent of the password in `://user:password@host`, or of the token in `https://token@host`.
fn userinfo(text: &str, colon: usize) -> Option<(usize, usize)> {
    let at = colon + 3;
    let rest = &text[at..];
    let ends = |c: char| c == '/' || c.is_whitespace() || c == '"' || c == '\'';
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let (login, _) = authority.rsplit_once('@')?;
    if let Some((user, _)) = login.split_once(':') {
        return Some((at + user.len() + 1, at + login.len()));
    }
    let is_web = ["http", "https"].iter().any(|scheme| {
        let name = colon.checked_sub(scheme.len()).and_then(|from| text.get(from..colon));
        name.is_some_and(|name| name.eq_ignore_ascii_case(scheme))
    });
    (is_web && !USERS.contains(&login)).then_some((at, at + login.len()))
}

/// Returns the extent of the secret path of a webhook URL.
fn secret_path(text: &str, at: usize) -> Option<(usize, usize)> {
    let before = &text.as_bytes()[..=at];
    let is_one = SECRET_PATHS.iter().any(|path| before.ends_with(path.as_bytes()));
    is_one.then(|| (at + 1, part_of_url(text, at + 1).1))
}

fn part_of_url(text: &str, at: usize) -> (usize, usize) {
    let ends = |c: char| c.is_whitespace() || "\"'\\&#,;)}]".contains(c);
    let rest = &text[at..];
    (at, at + rest.find(ends).unwrap_or(rest.len()))
}

/// Returns the extent of the text between the first and last line of a private key.
fn private_key(text: &str, at: usize) -> Option<(usize, usize)> {
    let head = text.as_bytes().get(at..)?;
    let head = &head[..head.len().min(NAME_BYTES)];
    let is_private = head.windows(11).any(|window| window == b"PRIVATE KEY");
    let dashes = head.windows(5).skip(5).position(|window| window == b"-----").filter(|_| is_private)?;
    let from = at + 5 + dashes + 5;
    Some((from, from + text[from..].find("-----END ").unwrap_or(text.len() - from)))
}

/// Returns the name before a position, its start, and whether it is quoted.
fn name_before(text: &str, at: usize) -> Option<(&str, usize, bool)> {
    let before = text[..at].trim_end();
    let mut name = before.trim_end_matches(['"', '\'', '\\']);
    if text.as_bytes().get(at) == Some(&b'=') && before.ends_with(']') {
        // `environ['TOKEN'] = 'X'`
        name = before.trim_end_matches(']').trim_end_matches(['"', '\'', '\\']);
    }
    let is_quoted = name.len() < before.len();
    let length = name.bytes().rev().take(NAME_BYTES + 1).take_while(|byte| is_name_byte(*byte)).count();
    let start = name.len() - length;
    (1..=NAME_BYTES).contains(&length).then_some((&name[start..], start, is_quoted))
}

/// Returns the extent of the value after `:` or `=` if the name before it indicates a secret.
fn value(text: &str, at: usize, header: Header) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let (name, start, is_quoted) = name_before(text, at)?;
    let next = *bytes.get(at + 1)?;
    let before = text[..start].chars().next_back();
    let beginning = beginning_of_word(&text[at + 1..]);
    let is_colon = bytes.get(at) == Some(&b':');
    let is_parameter = !is_colon && matches!(before, Some('?' | '&'));
    let is_bare_colon = is_colon && !is_quoted && !next.is_ascii_whitespace() && !is_quote(next);
    let is_secret = if is_bare_colon {
        // Accepts `/password:X` and `--token:X`; rejects `keyserver:80` and `auth/token:latest`.
        let is_slashed = before == Some('/') && text[..start - 1].chars().next_back().is_none_or(is_opening);
        let is_option = name.starts_with('-') || is_slashed;
        (is_option || before.is_none_or(is_opening) && !beginning.starts_with(['/', ':']))
            && takes_colon(name, beginning)
    } else if is_parameter {
        is_secret_parameter(name, beginning)
    } else if is_colon {
        is_secret_name(name) || is_secret_option(name, beginning)
    } else {
        is_secret_setting(name, beginning)
    };
    if !is_secret {
        return None;
    }
    let rest = &text[at + 1..];
    let from = at + 1 + (rest.len() - rest.trim_ascii_start().len());
    if let Some(inside) = quoted(text, from) {
        return Some(inside);
    }
    if is_colon && !is_quoted && (!is_bare_colon || is_header(name)) {
        return Some(match (header, before) {
            (Header::Words, Some(quote @ ('"' | '\''))) => until(text, from, |c| c == quote || c == '\n'),
            (Header::Words, _) => header_words(text, from),
            (Header::Line, _) => until(text, from, |c| "\"'\n\r\\".contains(c)),
        });
    }
    Some(match before {
        _ if is_parameter => part_of_url(text, from),
        _ if is_quoted => part(text, from),
        None => argument(text, from),
        Some(c) if c.is_whitespace() => argument(text, from),
        // A quoted option is one argument together with its value.
        Some(quote @ ('"' | '\'')) if name.starts_with("--") => {
            until(text, from, |c| c == quote || c == '\\')
        }
        _ => part(text, from),
    })
}

/// Returns whether a character may precede a name.
fn is_opening(c: char) -> bool {
    c.is_whitespace() || "\"'`({[,;=".contains(c)
}

/// Returns up to eight characters of the first word of a text. Reading more for every name would take too long.
fn beginning_of_word(text: &str) -> &str {
    let text = text.trim_ascii_start().trim_start_matches(['"', '\'']);
    let few = text.char_indices().nth(8).map_or(text.len(), |(at, _)| at);
    let few = &text[..few];
    &few[..few.find(|c: char| c.is_whitespace() || "\"'\\,;&|)}]".contains(c)).unwrap_or(few.len())]
}

/// Returns the extent of a JSON web token, or of another token with a prefix that no file or folder has.
fn jwt_or_token(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    let word = &rest[..rest.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(rest.len())];
    let is_jwt = word.starts_with("eyJ") && word.len() >= 20 && word.contains('.');
    let is_path = text[..at].ends_with('/') && !text[..at].ends_with("//");
    (is_jwt || is_token(word) && !is_path).then_some((at, at + word.len()))
}
