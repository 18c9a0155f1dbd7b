//! What must not get into a shard: secrets on command lines.

/// What stands for a secret.
const MASK: &str = "***";

/// Beginnings of words that are tokens whatever option they belong to.
const TOKEN_PREFIXES: [&str; 8] = ["hf_", "ghp_", "gho_", "github_pat_", "glpat-", "sk-", "xoxb-", "AKIA"];

/// A command line in one line, secrets masked.
///
/// Masked are the values of options whose name sounds like a secret (`--api-key X`, `--token=X`,
/// `SECRET=X`), words that look like well-known tokens, and passwords in URLs.
pub fn masked_command(arguments: &[String]) -> String {
    let mut masked = Vec::with_capacity(arguments.len());
    let mut value_is_secret = false;
    for argument in arguments {
        if std::mem::take(&mut value_is_secret) && !argument.starts_with('-') {
            masked.push(MASK.to_owned());
            continue;
        }
        let (text, next) = masked_argument(argument);
        value_is_secret = next;
        masked.push(text);
    }
    masked.join(" ")
}

/// One argument, and whether the next one is a secret.
fn masked_argument(argument: &str) -> (String, bool) {
    if let Some((name, _)) = argument.split_once('=')
        && name.len() <= 64
        && is_secret_name(name)
    {
        return (format!("{name}={MASK}"), false);
    }
    if argument.starts_with('-') && !argument.contains('=') && is_secret_name(argument) {
        return (argument.to_owned(), true);
    }
    let (name, value) = argument.split_once('=').map_or(("", argument), |(name, value)| (name, value));
    if TOKEN_PREFIXES.iter().any(|prefix| value.len() >= prefix.len() + 12 && value.starts_with(prefix)) {
        let equals = if name.is_empty() { "" } else { "=" };
        return (format!("{name}{equals}{MASK}"), false);
    }
    (masked_url(argument), false)
}

/// Whether the name of an option or variable sounds like that of a secret. `--tokenizer` and
/// `--max-tokens` are common and are not.
fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    let upper = name.to_ascii_uppercase();
    if ["TOKENIZER", "TOKENS", "KEYWORD", "KEYBOARD"].iter().any(|word| upper.contains(word)) {
        return false;
    }
    rpd_ring::identity::is_secret(&upper)
}

/// `scheme://user:password@host` without the password.
fn masked_url(argument: &str) -> String {
    let masked = || {
        let (scheme, rest) = argument.split_once("://")?;
        let authority = rest.split('/').next()?;
        let (login, _) = authority.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        let after = rest.get(login.len()..)?;
        Some(format!("{scheme}://{user}:{MASK}{after}"))
    };
    masked().unwrap_or_else(|| argument.to_owned())
}

#[cfg(test)]
mod tests {
    use super::masked_command;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        let cases = [
            ("train.py --epochs 3", "train.py --epochs 3"),
            ("train.py --api-key abc --lr 1", "train.py --api-key *** --lr 1"),
            ("train.py --token=abc", "train.py --token=***"),
            ("env WANDB_API_KEY=abc python3", "env WANDB_API_KEY=*** python3"),
            ("train.py --tokenizer gpt2 --max-tokens 5", "train.py --tokenizer gpt2 --max-tokens 5"),
            ("login hf_abcdefghijklmnop", "login ***"),
            ("--auth=ghp_abcdefghijklmnop", "--auth=***"),
            ("curl https://me:pw@host/x", "curl https://me:***@host/x"),
            ("curl https://host/x", "curl https://host/x"),
            ("a --password --verbose", "a --password --verbose"),
        ];
        for (given, wanted) in cases {
            let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(masked_command(&arguments), wanted);
        }
    }
}
