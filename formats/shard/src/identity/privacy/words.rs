//! Words of a command that are secrets because of the words before them, also in a script that is one argument.

use super::extent::{argument, quoted};
use super::names::{is_name_byte, is_secret_option, is_secret_setting};
use super::short_options::{attached_secret, login_secret, takes_login};
use super::{MASK, NAME_BYTES};

/// A short option that holds a secret in a known program. In most other programs `-p` is a port.
#[derive(Clone, Copy, Debug)]
struct Known {
    programs: &'static [&'static str],
    /// Subcommand of the program that must precede the option; empty if none.
    command: &'static str,
    option: &'static str,
    place: SecretPlace,
}

/// Position of the value of a short option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SecretPlace {
    /// The next word.
    Next,
    /// Directly after the letter: the next word is not its value.
    Attached,
    /// `Next` or `Attached`, also after other letters: `-su X`.
    Either,
    /// The text after `%` in the value, which is attached or the next word.
    Percent,
}

const fn known(
    programs: &'static [&'static str],
    command: &'static str,
    option: &'static str,
    place: SecretPlace,
) -> Known {
    Known { programs, command, option, place }
}

const KNOWN: [Known; 14] = [
    known(&["sshpass"], "", "-p", SecretPlace::Either),
    known(&["mysql", "mysqldump", "mysqladmin", "mariadb", "7z"], "", "-p", SecretPlace::Attached),
    known(&["mongo", "mongosh", "mongodump"], "", "-p", SecretPlace::Next),
    known(&["docker", "podman", "apptainer", "singularity"], "login", "-p", SecretPlace::Next),
    known(&["zip", "unzip", "sqlcmd"], "", "-P", SecretPlace::Either),
    known(&["ldapsearch"], "", "-w", SecretPlace::Either),
    known(&["redis-cli"], "", "-a", SecretPlace::Next),
    known(&["curl"], "", "-u", SecretPlace::Either),
    known(&["curl"], "", "-U", SecretPlace::Either),
    known(&["curl"], "", "-b", SecretPlace::Either),
    known(&["curl"], "", "--user", SecretPlace::Either),
    known(&["smbclient", "rpcclient"], "", "-U", SecretPlace::Percent),
    known(&["smbclient"], "", "--user", SecretPlace::Percent),
    // The word itself is the secret; see `Command::positional`.
    known(&["wandb", "vault"], "login", "", SecretPlace::Next),
];
/// Letters of curl options without a value, which may precede a letter with one.
const CURL_FLAGS: &[char] = &[
    '#', '0', '1', '2', '3', '4', '6', 'a', 'f', 'g', 'G', 'i', 'I', 'j', 'J', 'k', 'l', 'L', 'n', 'N', 'O',
    'p', 'q', 'R', 's', 'S', 'v', 'Z',
];
/// Words that a name and a value follow: `mpiexec -genv NAME X`.
const SETTERS: [&str; 5] = ["-genv", "--genv", "-env", "set", "setenv"];
/// Characters that surround words of scripts and lists.
const WRAPPERS: [char; 11] = ['"', '\'', '\\', '(', ')', ';', '`', '[', ']', '{', ','];

/// Meaning of the next word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Any,
    Secret,
    /// `user%password`
    Login,
    /// `user:password`, or a user alone.
    User,
    /// The name of a variable; its value follows.
    Name,
}

/// State of the command that is being read.
struct Command {
    options: Vec<Known>,
    /// Number of words without a `-` that are still expected; the last of them is a secret.
    positional: Option<usize>,
    is_htpasswd: bool,
    next: Next,
}

/// Masks the words of a command that are secrets because of the words before them.
pub(super) fn mask_words(text: &str) -> String {
    mask_words_after("", text)
}

/// Masks the words of a variable's value. They are arguments of the programs that its name contains, as in
/// `CURL_OPTS`.
pub(super) fn mask_words_after(variable: &str, text: &str) -> String {
    let mut command = Command { options: Vec::new(), positional: None, is_htpasswd: false, next: Next::Any };
    let lower = variable.to_ascii_lowercase();
    lower.split(['_', '-', '.']).for_each(|word| command.begin(word));
    let mut masked = String::with_capacity(text.len());
    let (mut done, mut at) = (0, 0);
    while let Some(word) = word_at(text, at) {
        at = word.1;
        if let Some((from, to)) = command.secret(text, word).filter(|(from, to)| from < to) {
            masked.push_str(&text[done..from]);
            masked.push_str(MASK);
            (done, at) = (to, to);
        }
    }
    masked.push_str(&text[done..]);
    masked
}

/// Returns the extent of the next word.
fn word_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    let from = at + rest.find(|c: char| !c.is_whitespace())?;
    let length = text[from..].find(char::is_whitespace).unwrap_or(text.len() - from);
    Some((from, from + length))
}

impl Command {
    /// Returns the extent of the secret in a word. A quoted value may be longer than the word.
    fn secret(&mut self, text: &str, (from, to): (usize, usize)) -> Option<(usize, usize)> {
        let word = &text[from..to];
        let plain = word.trim_matches(WRAPPERS);
        let start = from + (word.len() - word.trim_start_matches(WRAPPERS).len());
        let is_quoted = word.starts_with(['"', '\'', '\\']);
        let is_value = !word.starts_with(')') && (!plain.is_empty() && !plain.starts_with('-') || is_quoted);
        match std::mem::replace(&mut self.next, Next::Any) {
            Next::Secret if is_value || word.starts_with('`') => return Some(argument(text, from)),
            Next::Login if is_value => return after_percent(plain, start),
            // The rest of a text is searched only if it is then masked: time stays linear.
            Next::User if is_value => {
                if let Some(at) = login_secret(plain) {
                    let from_secret = start + at;
                    return Some((from_secret, argument(text, from).1.max(from_secret)));
                }
            }
            Next::Name if is_name(plain) && is_secret_setting(&plain.to_ascii_uppercase(), "") => {
                self.next = Next::Secret;
                return None;
            }
            _ => {}
        }
        if matches!(plain, "|" | "||" | "&" | "&&") {
            self.forget();
            return None;
        }
        self.begin(plain);
        let secret = self.option(text, plain, start).or_else(|| self.place(text, plain, from));
        let short = if secret.is_none() { self.short_option(text, plain, start) } else { None };
        if secret.is_none() && self.next == Next::Any {
            let is_option = plain.starts_with('-') && is_name(plain);
            let value = &text[to..];
            let value = value.trim_ascii_start();
            let few = value.char_indices().nth(3).map_or(value.len(), |(at, _)| at);
            let few = value[..few].split_ascii_whitespace().next().unwrap_or("");
            // `-password X` may be `-p` with a password attached; usually it is an option followed by a password.
            if is_option && is_secret_option(plain, few) {
                self.next = Next::Secret;
            } else if SETTERS.contains(&plain) {
                self.next = Next::Name;
            }
        }
        if word.ends_with(';') {
            self.forget();
        }
        secret.or(short)
    }

    fn forget(&mut self) {
        (self.options, self.positional, self.is_htpasswd) = (Vec::new(), None, false);
    }

    /// Recognises a known program, its subcommand, or an option of htpasswd.
    fn begin(&mut self, plain: &str) {
        let name = plain.rsplit('/').next().unwrap_or(plain);
        if KNOWN.iter().any(|known| known.programs.contains(&name)) {
            self.forget();
            self.options = KNOWN.iter().filter(|known| known.programs.contains(&name)).copied().collect();
        } else if name == "htpasswd" {
            self.forget();
            self.is_htpasswd = true;
        } else if let Some(own) =
            self.options.iter_mut().find(|own| !own.command.is_empty() && own.command == plain)
        {
            own.command = "";
            // Counts the subcommand itself as the first word.
            self.positional = own.option.is_empty().then_some(2);
        } else if self.is_htpasswd && matches!(plain, "-C" | "-r") {
            // The number after this option is one more word.
            self.positional = self.positional.map(|left| left + 1);
        } else if self.is_htpasswd && plain.starts_with('-') && plain.contains('b') {
            self.positional = Some(if plain.contains('n') { 2 } else { 3 });
        }
    }

    /// Handles a short option of a known program.
    fn option(&mut self, text: &str, plain: &str, start: usize) -> Option<(usize, usize)> {
        let own = self.options.iter().filter(|own| own.command.is_empty() && !own.option.is_empty());
        let (own, offset) = own.copied().find_map(|own| Some((own, value_offset(plain, own)?)))?;
        if own.programs.contains(&"sshpass") {
            // The options of another program follow.
            self.forget();
        }
        let is_bare = offset == plain.len();
        match own.place {
            SecretPlace::Next | SecretPlace::Either if is_bare => self.next = Next::Secret,
            SecretPlace::Percent if is_bare => self.next = Next::Login,
            SecretPlace::Percent => return after_percent(plain.get(offset..)?, start + offset),
            SecretPlace::Attached | SecretPlace::Either if !is_bare => {
                return quoted(text, start + offset).or(Some((start + offset, start + plain.len())));
            }
            _ => {}
        }
        None
    }

    /// Handles a short option of a program that is not in the list of known ones.
    fn short_option(&mut self, text: &str, plain: &str, start: usize) -> Option<(usize, usize)> {
        if self.next != Next::Any {
            return None;
        }
        if takes_login(plain) {
            self.next = Next::User;
            return None;
        }
        let secret = start + attached_secret(plain)?;
        let in_quotes = quoted(text, secret).filter(|(from, to)| from < to);
        in_quotes.or(Some((secret, start + plain.len())))
    }

    /// Returns the extent of a word that is a secret because of its position.
    fn place(&mut self, text: &str, plain: &str, from: usize) -> Option<(usize, usize)> {
        let left = self.positional?;
        if plain.starts_with('-') || plain.contains("://") || plain.contains('=') {
            return None;
        }
        if left > 1 {
            self.positional = Some(left - 1);
            return None;
        }
        self.positional = None;
        Some(argument(text, from))
    }
}

/// Returns the start of the value if the word is this option.
fn value_offset(plain: &str, own: Known) -> Option<usize> {
    if plain == own.option {
        return Some(plain.len());
    }
    if own.option.starts_with("--") {
        return plain.strip_prefix(own.option)?.starts_with('=').then_some(own.option.len() + 1);
    }
    if own.place == SecretPlace::Next || plain.starts_with("--") {
        return None;
    }
    let letters = plain.strip_prefix('-')?;
    let letters =
        if own.programs.contains(&"curl") { letters.trim_start_matches(CURL_FLAGS) } else { letters };
    let value = letters.strip_prefix(own.option.strip_prefix('-')?)?;
    Some(plain.len() - value.len())
}

fn after_percent(word: &str, start: usize) -> Option<(usize, usize)> {
    let at = word.find('%')?;
    Some((start + at + 1, start + word.len()))
}

fn is_name(plain: &str) -> bool {
    plain.len() <= NAME_BYTES && plain.bytes().all(is_name_byte)
}
