//! Short options of unknown programs that hold a secret: `-pX`, and `-u user:X`.
//!
//! The rule, which docs/REFERENCE.md states for users:
//!
//! * `-pX` is a password. Exceptions: `X` has fewer than four characters; `X` is a number or a list of numbers (a
//!   port); the first word of the option is one of [`WORDS`].
//! * The text after the first `:` in the value of `-u`, `-U` or `--user` is a password. Exceptions: both sides are
//!   numbers (user and group); the value is a URL.

/// Common options with one dash and several letters of programs, compilers and launchers.
const WORDS: [&str; 42] = [
    "pack",
    "page",
    "parallel",
    "param",
    "params",
    "parse",
    "part",
    "particles",
    "partition",
    "path",
    "pattern",
    "pc",
    "pedantic",
    "perhost",
    "pernode",
    "persocket",
    "phase",
    "physics",
    "pidfile",
    "pipe",
    "plot",
    "plugin",
    "pool",
    "port",
    "precision",
    "prefix",
    "prepend",
    "pressure",
    "print",
    "priority",
    "problem",
    "proc",
    "process",
    "processes",
    "procs",
    "profile",
    "progress",
    "project",
    "properties",
    "property",
    "pthread",
    "pthreads",
];
/// Options with a user as their value, or a user with a password.
const LOGIN_OPTIONS: [&str; 3] = ["-u", "-U", "--user"];
/// Minimum number of characters of a value of `-p` that is a password. Shorter values are letters of other options,
/// as in `tar -pxf`.
const MIN_PASSWORD_CHARS: usize = 4;

/// Returns the start of the secret in an option that has its value attached.
pub(super) fn attached_secret(option: &str) -> Option<usize> {
    attached_password(option).or_else(|| attached_login(option))
}

/// Returns whether the next word may be a user with a password.
pub(super) fn takes_login(option: &str) -> bool {
    LOGIN_OPTIONS.contains(&option)
}

/// Returns the start of the password in `user:password`.
pub(super) fn login_secret(value: &str) -> Option<usize> {
    let (user, password) = value.split_once(':')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_url = password.starts_with("//");
    let is_login = !user.is_empty() && !password.is_empty() && !is_url;
    (is_login && !(is_number(user) && is_number(password))).then_some(user.len() + 1)
}

fn attached_password(option: &str) -> Option<usize> {
    let value = option.strip_prefix("-p")?;
    let bare = value.strip_prefix('=').unwrap_or(value);
    let word = option[1..].split(['=', '_', '-', ':', '.']).next().unwrap_or("");
    let is_numbers = bare.bytes().all(|byte| byte.is_ascii_digit() || b":,./-".contains(&byte));
    let is_password =
        bare.chars().nth(MIN_PASSWORD_CHARS - 1).is_some() && !is_numbers && !WORDS.contains(&word);
    is_password.then_some(option.len() - bare.len())
}

fn attached_login(option: &str) -> Option<usize> {
    let value = LOGIN_OPTIONS.iter().find_map(|name| {
        let value = option.strip_prefix(name)?;
        let behind_equals = value.strip_prefix('=');
        if name.starts_with("--") { behind_equals } else { behind_equals.or(Some(value)) }
    })?;
    Some(option.len() - value.len() + login_secret(value)?)
}
