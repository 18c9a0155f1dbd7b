//! What must not get into a shard or an output: secrets on command lines and in variables.

/// What stands for a secret.
const MASK: &str = "***";

/// Beginnings of words that are tokens whatever option they belong to.
const TOKEN_PREFIXES: [&str; 8] = ["hf_", "ghp_", "gho_", "github_pat_", "glpat-", "sk-", "xoxb-", "AKIA"];
/// A token has at least this much behind its beginning.
const TOKEN_BYTES: usize = 12;
/// Parts of names that mean a secret, whatever else the name says. The library in the traced program
/// goes by the same ones.
const SECRET_PARTS: [&str; 7] = ["TOKEN", "KEY", "SECRET", "PASSW", "CRED", "JWT", "AUTH"];
/// More of them for options, headers and variables.
const SECRET_WORD_PARTS: [&str; 3] = ["PASSPHR", "COOKIE", "AWS_SESSION"];
/// More of them for variables of a whole environment, where nobody chose the names.
const SECRET_VARIABLE_PARTS: [&str; 6] = ["PASS", "PWD", "SESSIONID", "PRIVATE", "WEBHOOK", "DSN"];
/// Parts of names of variables that sound like one of those and are none.
const HARMLESS_VARIABLE_PARTS: [&str; 3] = ["BYPASS", "PASSTHR", "PASSES"];
/// Parts of names of options that sound like a secret and are none.
const HARMLESS_PARTS: [&str; 8] =
    ["TOKENIZER", "TOKENS", "KEYWORD", "KEYBOARD", "CREDIT", "AUTHORS", "COOKIE-JAR", "COOKIEJAR"];
/// Programs with a short option for a password, and whether it may stand right behind the letter. A short option
/// means a secret only there: `-p` of most programs is a port. A second word is the command of the program.
const SHORT_OPTIONS: [(&str, &str, &str, bool); 19] = [
    ("sshpass", "", "-p", true),
    ("mysql", "", "-p", true),
    ("mysqldump", "", "-p", true),
    ("mysqladmin", "", "-p", true),
    ("mariadb", "", "-p", true),
    ("mongo", "", "-p", false),
    ("mongosh", "", "-p", false),
    ("mongodump", "", "-p", false),
    ("docker", "login", "-p", false),
    ("podman", "login", "-p", false),
    ("apptainer", "login", "-p", false),
    ("singularity", "login", "-p", false),
    ("7z", "", "-p", true),
    ("zip", "", "-P", true),
    ("unzip", "", "-P", true),
    ("ldapsearch", "", "-w", true),
    ("redis-cli", "", "-a", false),
    ("curl", "", "-u", true),
    ("curl", "", "--user", false),
];
/// Of these only the attached form has a password: a word behind the option is something else.
const ATTACHED_ONLY: [&str; 5] = ["mysql", "mysqldump", "mysqladmin", "mariadb", "7z"];
/// Longest name of an option.
const NAME_BYTES: usize = 64;

/// A command line in one line, secrets masked.
///
/// Masked are the values of options whose name sounds like a secret (`--api-key X`, `--token=X`,
/// `SECRET=X`), words that look like well-known tokens, passwords in URLs, and inside of longer
/// arguments (a script, JSON, a header) the values behind such names. A short option is one only of programs that are
/// known for it: `sshpass -p X` is masked, `serve -p 8080` is not.
pub fn masked_command(arguments: &[String]) -> String {
    let mut masked = Vec::with_capacity(arguments.len());
    let mut value_is_secret = false;
    for argument in arguments {
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
    masked_words(&masked.join(" "))
}

/// Words of a command that are secrets by what is before them, also in a script that is one argument.
fn masked_words(command: &str) -> String {
    let mut words: Vec<&str> = command.split(' ').collect();
    // The short options of the last known program, and whether the program is still to be given its command.
    let mut known: Vec<(&str, &str, &str, bool)> = Vec::new();
    let mut secret_next = false;
    let mut kept: Vec<String> = Vec::with_capacity(words.len());
    for word in words.drain(..) {
        let plain = word.trim_matches(['"', '\'', '\\', '(', ')', ';', '`']);
        if std::mem::take(&mut secret_next) && !plain.is_empty() && !plain.starts_with('-') {
            kept.push(word.replace(plain, MASK));
            continue;
        }
        let name = plain.rsplit('/').next().unwrap_or(plain);
        let programs = SHORT_OPTIONS.iter().filter(|(program, ..)| *program == name);
        let programs: Vec<_> = programs.copied().collect();
        if !programs.is_empty() {
            known = programs;
        }
        known
            .iter_mut()
            .filter(|(_, command, ..)| *command == plain)
            .for_each(|(_, command, ..)| *command = "");
        let own =
            known.iter().find(|(_, command, option, _)| command.is_empty() && plain.starts_with(option));
        match own {
            Some((program, _, option, _)) if plain == *option => {
                secret_next = !ATTACHED_ONLY.contains(program);
                kept.push(word.to_owned());
                known.clear();
            }
            Some((.., option, true)) => {
                kept.push(word.replace(plain, &format!("{option}{MASK}")));
                known.clear();
            }
            _ => {
                let is_option = plain.starts_with("--") && plain.bytes().all(is_name_byte);
                secret_next = is_option && is_secret_name(plain);
                kept.push(word.to_owned());
            }
        }
    }
    kept.join(" ")
}

/// Variables without the secrets in their values: a proxy's URL may hold a password.
pub fn masked_environment(variables: Vec<(String, String)>) -> Vec<(String, String)> {
    variables.into_iter().map(|(name, value)| (name, masked_text(&value))).collect()
}

/// One argument, and whether the next one is a secret.
fn masked_argument(argument: &str) -> (String, bool) {
    let (name, value) = argument.split_once('=').map_or(("", argument), |(name, value)| (name, value));
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES && name.bytes().all(is_name_byte);
    if is_name && is_secret_setting(name) {
        return (format!("{name}={MASK}"), false);
    }
    if name.is_empty()
        && argument.starts_with('-')
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

fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer")
}

fn is_token(word: &str) -> bool {
    TOKEN_PREFIXES.iter().any(|prefix| word.len() >= prefix.len() + TOKEN_BYTES && word.starts_with(prefix))
}

/// Whether the name of an option or variable sounds like that of a secret. `--tokenizer`,
/// `--max-tokens` and `--author` are common and are not.
pub fn is_secret_name(name: &str) -> bool {
    let mut upper = name.to_ascii_uppercase();
    HARMLESS_PARTS.iter().for_each(|harmless| upper = upper.replace(harmless, ""));
    // `AUTHOR` is the beginning of `AUTHORIZATION`.
    if upper.ends_with("AUTHOR") {
        upper = upper.replace("AUTHOR", "");
    }
    SECRET_PARTS.iter().chain(&SECRET_WORD_PARTS).any(|part| upper.contains(part))
}

/// Whether `NAME=X` is a secret. In capitals it is a variable, whoever sets it.
fn is_secret_setting(name: &str) -> bool {
    let is_variable = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    is_secret_name(name) || is_variable && is_secret_variable(name)
}

/// Whether the name of a variable of a whole environment sounds like that of a secret.
pub fn is_secret_variable(name: &str) -> bool {
    let mut upper = name.to_ascii_uppercase();
    if matches!(upper.as_str(), "PWD" | "OLDPWD") {
        return false;
    }
    HARMLESS_VARIABLE_PARTS.iter().for_each(|harmless| upper = upper.replace(harmless, ""));
    is_secret_name(&upper) || SECRET_VARIABLE_PARTS.iter().any(|part| upper.contains(part))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Any text, secrets inside of it masked.
pub fn masked_text(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    // What is copied already, and where the present word begins.
    let (mut done, mut word) = (0, 0);
    for (at, byte) in text.bytes().enumerate() {
        if at < done {
            word = at + 1;
            continue;
        }
        let secret = match byte {
            b':' if text[at..].starts_with("://") => password(text, at + 3),
            b':' | b'=' => value(text, at),
            b' ' | b'\t' if is_scheme(&text[word..at]) => Some(rest_of_word(text, at + 1)),
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

/// Where the password is in `user:password@host`.
fn password(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    let ends = |c: char| c == '/' || c.is_whitespace() || c == '"' || c == '\'';
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let (login, _) = authority.rsplit_once('@')?;
    let (user, _) = login.split_once(':')?;
    Some((at + user.len() + 1, at + login.len()))
}

/// Where the value is behind a name that sounds like a secret and a `:` or `=`.
fn value(text: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let before = text[..at].trim_end();
    let name = before.trim_end_matches(['"', '\'', '\\']);
    let is_quoted = name.len() < before.len();
    let start = name.bytes().rposition(|byte| !is_name_byte(byte)).map_or(0, |before| before + 1);
    let name = name.get(start..).filter(|name| name.len() <= NAME_BYTES)?;
    let next = bytes.get(at + 1)?;
    // `KEY=X`, `"key": "X"` and `Key: X`, but no `keyserver:80`.
    let is_secret = if bytes[at] == b'=' { is_secret_setting(name) } else { is_secret_name(name) };
    if !is_secret || bytes[at] == b':' && !is_quoted && !next.is_ascii_whitespace() && !is_quote(*next) {
        return None;
    }
    let skip =
        |from: usize, is: fn(&u8) -> bool| from + bytes[from..].iter().take_while(|byte| is(byte)).count();
    let from = skip(at + 1, u8::is_ascii_whitespace);
    let escaped = skip(from, |byte| *byte == b'\\');
    if let Some(quote) = bytes.get(escaped).copied().filter(|byte| is_quote(*byte)) {
        let from_quote = escaped + 1;
        let mut to = from_quote;
        while to < bytes.len() && bytes[to] != quote {
            // `\"` ends a text that began with one, and is a part of any other.
            if bytes[to] == b'\\' {
                if escaped > from {
                    break;
                }
                to += 1;
            }
            to += 1;
        }
        return Some((from_quote, ceil(text, to)));
    }
    // A header holds words; anything else is one.
    if bytes[at] == b':' && !is_quoted {
        let length = text[from..].find(['"', '\'', '\n', '\r', '\\']).unwrap_or(text.len() - from);
        return Some((from, from + length));
    }
    Some(rest_of_word(text, from))
}

/// The next boundary of characters.
fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

fn rest_of_word(text: &str, at: usize) -> (usize, usize) {
    let ends = |c: char| c.is_whitespace() || "\"'\\,;&|)}]".contains(c);
    let from = at + (text[at..].len() - text[at..].trim_start().len());
    (from, from + text[from..].find(ends).unwrap_or(text.len() - from))
}

/// A JSON web token, or another one whose beginning cannot be that of a file or folder.
fn jwt_or_token(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    let word = &rest[..rest.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(rest.len())];
    let is_jwt = word.starts_with("eyJ") && word.len() >= 20 && word.contains('.');
    let is_path = text[..at].ends_with('/') && !text[..at].ends_with("//");
    (is_jwt || is_token(word) && !is_path).then_some((at, at + word.len()))
}

#[cfg(test)]
mod tests {
    use super::{is_secret_variable, masked_command, masked_environment};
    use proptest::prelude::*;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        let cases = [
            ("train.py --epochs 3", "train.py --epochs 3"),
            ("train.py --api-key abc --lr 1", "train.py --api-key *** --lr 1"),
            ("train.py --token=abc", "train.py --token=***"),
            ("env WANDB_API_KEY=abc python3", "env WANDB_API_KEY=*** python3"),
            ("train.py --tokenizer gpt2 --max-tokens 5", "train.py --tokenizer gpt2 --max-tokens 5"),
            ("train.py --author me --keyserver a:80", "train.py --author me --keyserver ***"),
            ("login hf_abcdefghijklmnop", "login ***"),
            ("--auth=ghp_abcdefghijklmnop", "--auth=***"),
            ("--x=ghp_abcdefghijklmnop", "--x=***"),
            ("curl https://me:pw@host/x", "curl https://me:***@host/x"),
            ("curl https://host/x", "curl https://host/x"),
            ("redis://:pw@host:1 a=b", "redis://:***@host:1 a=b"),
            ("curl -H Authorization: Bearer abc", "curl -H Authorization: *** ***"),
            ("a --password --verbose", "a --password --verbose"),
            ("/data/hf_models_of_the_day/x --lr=1", "/data/hf_models_of_the_day/x --lr=1"),
        ];
        for (given, wanted) in cases {
            let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(masked_command(&arguments), wanted);
        }
    }

    #[test]
    fn passwords_of_known_programs_are_masked_and_ports_are_not() {
        let cases = [
            ("sshpass -p hush ssh -p 22 host", "sshpass -p *** ssh -p 22 host"),
            ("/usr/bin/sshpass -phush ssh host", "/usr/bin/sshpass -p*** ssh host"),
            ("srun mysql -u me -phush db", "srun mysql -u me -p*** db"),
            ("mysql -u me -p db", "mysql -u me -p db"),
            ("docker login -u me -p hush", "docker login -u me -p ***"),
            ("docker run -p 8080:80 image", "docker run -p 8080:80 image"),
            ("redis-cli -a hush ping", "redis-cli -a *** ping"),
            ("curl -u me:hush http://h/", "curl -u *** http://h/"),
            ("curl --user me:hush http://h/", "curl --user *** http://h/"),
            ("curl --cookie hush http://h/", "curl --cookie *** http://h/"),
            ("curl --cookie-jar jar.txt http://h/", "curl --cookie-jar jar.txt http://h/"),
            ("serve -p 8080 --port 80", "serve -p 8080 --port 80"),
            ("a.out -p 4 -u 2 -w 3 -a 1 -P 5", "a.out -p 4 -u 2 -w 3 -a 1 -P 5"),
            ("prog --password hush -n 2", "prog --password *** -n 2"),
            ("prog --password=hush -n 2", "prog --password=*** -n 2"),
            ("prog --token=hush --passphrase hush", "prog --token=*** --passphrase ***"),
            ("prog --passes 3 --bypass 1 --session 4", "prog --passes 3 --bypass 1 --session 4"),
            (
                "env AWS_SESSION=hush DB_PASS=hush NUM_PASSES=3 a",
                "env AWS_SESSION=*** DB_PASS=*** NUM_PASSES=3 a",
            ),
            ("env SSH_PRIVATE_KEY=hush X_AUTH=hush PWD=/a a", "env SSH_PRIVATE_KEY=*** X_AUTH=*** PWD=/a a"),
            ("git clone https://me:hush@h/r", "git clone https://me:***@h/r"),
        ];
        for (given, wanted) in cases {
            let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(masked_command(&arguments), wanted);
            // In a script that is one argument, and once more when it is merged.
            let script = ["sh", "-c", given].map(str::to_owned);
            assert_eq!(masked_command(&script), format!("sh -c {wanted}"));
            let again: Vec<String> = wanted.split(' ').map(str::to_owned).collect();
            assert_eq!(masked_command(&again), wanted);
        }
    }

    #[test]
    fn secrets_inside_of_an_argument_are_masked() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";
        let with_jwt = format!("a {jwt}, b");
        let cases = [
            ("Authorization: Basic abc def", "Authorization: ***"),
            ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: ***' x"),
            ("Bearer abc x", "Bearer *** x"),
            ("curl -H 'Cookie: id=abc; n=1' x", "curl -H 'Cookie: ***' x"),
            ("X-Api-Key: abc", "X-Api-Key: ***"),
            (r#"{"password":"X y","n":1}"#, r#"{"password":"***","n":1}"#),
            (r#"{"token": "a\"b", "n": 1}"#, r#"{"token": "***", "n": 1}"#),
            (r#"{\"token\": \"ab\", \"n\": 1}"#, r#"{\"token\": \"***\", \"n\": 1}"#),
            (r#"{'secret': 5, 'n': 1}"#, r#"{'secret': ***, 'n': 1}"#),
            ("export API_KEY=abc; run --lr=1", "export API_KEY=***; run --lr=1"),
            ("http://h/?token=abc&x=1", "http://h/?token=***&x=1"),
            ("tcp://a:b@c/ tcp://d:e@f/", "tcp://a:***@c/ tcp://d:***@f/"),
            (with_jwt.as_str(), "a ***, b"),
            ("keyserver:80 a: b = c", "keyserver:80 a: b = c"),
        ];
        for (given, wanted) in cases {
            assert_eq!(masked_command(&[given.to_owned()]), wanted);
        }
    }

    #[test]
    fn names_of_secrets_are_known() {
        let secret = "PGPASSWORD MYSQL_PWD db_pass AWS_SECRET_ACCESS_KEY GH_TOKEN SENTRY_DSN AWS_SESSION \
            AWS_SESSION_TOKEN AWS_CREDENTIALS REGISTRY_AUTH SSH_PRIVATE_KEY GPG_PASSPHRASE HTTP_COOKIE PHPSESSIONID";
        for name in secret.split_whitespace() {
            assert!(is_secret_variable(name), "{name}");
        }
        let harmless = "PWD OLDPWD PATH TOKENIZERS_PARALLELISM KMP_BYPASS SLURM_JOB_ID USER XDG_SESSION_ID \
            DESKTOP_SESSION DBUS_SESSION_BUS_ADDRESS TERM_SESSION_ID";
        for name in harmless.split_whitespace() {
            assert!(!is_secret_variable(name), "{name}");
        }
    }

    #[test]
    fn the_traced_program_goes_by_the_same_parts() {
        assert!(super::SECRET_PARTS.iter().all(|part| rpd_ring::identity::is_secret(part)));
        for name in ["PATH", "SLURM_JOB_ID", "PGPASS", "WORLD_SIZE", "COOKIE", "NCCL_DEBUG"] {
            assert!(!rpd_ring::identity::is_secret(name), "{name}");
        }
    }

    #[test]
    fn urls_in_variables_are_masked() {
        let variable = |value: &str| vec![("UCX_X".to_owned(), value.to_owned())];
        assert_eq!(
            masked_environment(variable("a,http://me:pw@proxy:1")),
            variable("a,http://me:***@proxy:1")
        );
        assert_eq!(masked_environment(variable("^tcp,ib0:1")), variable("^tcp,ib0:1"));
    }

    proptest! {
        #[test]
        fn any_text_can_be_masked(text in "(\\PC|[ :=\"'\\\\/@]|key|://|Bearer |eyJ){0,60}") {
            masked_command(&[text]);
        }
    }
}
