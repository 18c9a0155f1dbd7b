//! Removes secrets from recorded facts of a process.

use rpd_shard::identity::{
    is_rank_variable, is_secret_variable, masked_line, masked_text, masked_value, masked_variable,
};
use serde_json::{Map, Value as Json};

/// Replacement for a secret.
const MASK: &str = "***";

/// A word that does not have the form of a secret.
const PROBE: &str = "word";

/// Variables to keep.
#[derive(Clone, Copy, Debug)]
pub enum Keep<'a> {
    /// All variables, with secrets masked.
    All,
    /// These variables and those with a rank, with secrets masked.
    Listed(&'a [String]),
}

/// Masks the secrets of a recorded environment, which is a JSON object or a list of variables.
///
/// Masked are values of variables with names of secrets, and secrets inside other values. A text that needs
/// no change is returned unchanged. A text of another form is masked as plain text, or replaced by `{}` if only
/// some variables are kept.
pub fn redacted_environment(json: &str, keep: Keep<'_>) -> String {
    if let Ok(mut variables) = serde_json::from_str::<Vec<Json>>(json) {
        let changed = redact_variables(&mut variables, keep);
        return if changed { Json::Array(variables).to_string() } else { json.to_owned() };
    }
    let Ok(mut environment) = serde_json::from_str::<Map<String, Json>>(json) else {
        return match keep {
            Keep::All => masked_text(json),
            Keep::Listed(_) => "{}".to_owned(),
        };
    };
    let mut changed = false;
    if let Keep::Listed(names) = keep {
        let before = environment.len();
        environment.retain(|name, _| names.contains(name) || is_rank_variable(name));
        changed = environment.len() != before;
    }
    for (name, value) in &mut environment {
        changed |= mask(name, value);
    }
    if changed { Json::Object(environment).to_string() } else { json.to_owned() }
}

/// Masks the value of a variable. Returns whether it changed.
fn mask(name: &str, value: &mut Json) -> bool {
    let masked = match value {
        Json::String(text) if is_secret_variable(name) && !text.is_empty() => MASK.to_owned(),
        Json::String(text) => masked_variable(name, text),
        Json::Array(values) => {
            return values.iter_mut().fold(false, |changed, value| mask(name, value) | changed);
        }
        Json::Object(values) => {
            return values.iter_mut().fold(false, |changed, (inner, value)| {
                let name = if is_secret_variable(name) { name } else { inner };
                mask(name, value) | changed
            });
        }
        Json::Number(_) if is_secret_variable(name) => MASK.to_owned(),
        _ => return false,
    };
    let changed = value.as_str() != Some(&masked);
    if changed {
        *value = Json::String(masked);
    }
    changed
}

/// Masks secrets in the `extdata` of a process at any depth, except under the top-level member `rpd`.
///
/// Masked are values of names that indicate a secret, environments as by [`redacted_environment`], and secrets
/// inside other texts. Returns whether anything changed.
pub fn redact_extdata(extdata: &mut Map<String, Json>, keep: Keep<'_>) -> bool {
    let own = extdata.iter_mut().filter(|(name, _)| *name != "rpd");
    own.fold(false, |changed, (name, value)| redact_member(name, value, keep) | changed)
}

fn redact_member(name: &str, value: &mut Json, keep: Keep<'_>) -> bool {
    match value {
        Json::Object(variables) if is_environment(name) => {
            let before = variables.len();
            if let Keep::Listed(names) = keep {
                variables.retain(|name, _| names.contains(name) || is_rank_variable(name));
            }
            let is_shorter = variables.len() != before;
            variables.iter_mut().fold(is_shorter, |changed, (name, value)| mask(name, value) | changed)
        }
        Json::String(text) if is_environment(name) => {
            let redacted = redacted_environment(text, keep);
            let changed = redacted != *text;
            *text = redacted;
            changed
        }
        Json::Array(variables) if is_environment(name) => redact_variables(variables, keep),
        _ if is_secret_variable(name) => mask(name, value),
        Json::Object(members) => members
            .iter_mut()
            .fold(false, |changed, (name, value)| redact_member(name, value, keep) | changed),
        Json::Array(values) => redact_list(name, values, keep),
        Json::String(text) => {
            let masked = masked_line(text);
            let changed = masked != *text;
            *text = masked;
            changed
        }
        _ => false,
    }
}

/// Masks a list. It may contain the arguments of a command: an option in one element, its value in the next.
fn redact_list(name: &str, values: &mut [Json], keep: Keep<'_>) -> bool {
    let mut changed = false;
    let mut is_value = false;
    let mut option = String::new();
    for value in values {
        let is_secret = std::mem::take(&mut is_value);
        let before = std::mem::take(&mut option);
        let login = value.as_str().and_then(|text| masked_value(&before, text));
        match value {
            Json::String(text) if login.as_ref().is_some_and(|masked| masked != text) => {
                changed = true;
                *text = login.unwrap_or_default();
            }
            Json::String(text) if is_secret && !text.starts_with('-') => {
                changed |= text != MASK;
                *text = MASK.to_owned();
            }
            Json::String(text) => {
                // Tests whether a word after this option would be masked.
                let probe = format!("{text} {PROBE}");
                is_value =
                    text.starts_with('-') && !text.contains([' ', '=']) && masked_line(&probe) != probe;
                option.clone_from(text);
                changed |= redact_member(name, value, keep);
            }
            _ => changed |= redact_member(name, value, keep),
        }
    }
    changed
}

/// Masks a list of variables, each of them `NAME=X` or an object with name and value.
fn redact_variables(variables: &mut Vec<Json>, keep: Keep<'_>) -> bool {
    let before = variables.len();
    if let Keep::Listed(names) = keep {
        variables.retain(|variable| {
            let name = match variable {
                Json::Object(members) => name_of(members),
                other => other.as_str().and_then(|text| text.split_once('=')).map(|(name, _)| name),
            };
            name.is_some_and(|name| names.iter().any(|one| one == name) || is_rank_variable(name))
        });
    }
    let is_shorter = variables.len() != before;
    variables.iter_mut().fold(is_shorter, |changed, variable| mask_variable(variable) | changed)
}

/// Returns the name in `{"name": NAME, "value": X}`.
fn name_of(members: &Map<String, Json>) -> Option<&str> {
    let of = |wanted: &str| members.iter().find(|(member, _)| member.eq_ignore_ascii_case(wanted));
    ["name", "key", "variable"].into_iter().find_map(|wanted| of(wanted)?.1.as_str())
}

/// Masks a variable in the form `NAME=X` or `{"name": NAME, "value": X}`.
fn mask_variable(variable: &mut Json) -> bool {
    if let Json::Object(members) = variable
        && let Some(name) = name_of(members).map(str::to_owned)
    {
        // The name itself is not a secret, whatever its member is called.
        let others = members.iter_mut().filter(|(_, value)| value.as_str() != Some(&name));
        return others.fold(false, |changed, (member, value)| {
            let is_secret = is_secret_variable(member);
            mask(if is_secret { member } else { &name }, value) | changed
        });
    }
    let Some((name, value)) = variable.as_str().and_then(|text| text.split_once('=')) else {
        return mask("", variable);
    };
    let name = name.to_owned();
    let mut value = Json::String(value.to_owned());
    let changed = mask(&name, &mut value);
    if changed {
        *variable = Json::String(format!("{name}={}", value.as_str().unwrap_or(MASK)));
    }
    changed
}

fn is_environment(name: &str) -> bool {
    ["environment", "environ", "env"].iter().any(|environment| name.eq_ignore_ascii_case(environment))
}

/// Masks the secrets of a recorded command line.
pub fn redacted_command(command: &str) -> String {
    masked_line(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{"PATH": "/bin:/usr/bin", "SLURM_PROCID": "3", "AWS_SECRET_ACCESS_KEY": "abc",
        "DB_PASS": "p", "https_proxy": "http://me:pw@proxy:3128", "A": "hf_abcdefghijklmnop", "PWD": "/a",
        "TOKENIZERS_PARALLELISM": "false", "EMPTY_TOKEN": "", "N": 5}"#;

    #[test]
    fn secrets_of_an_environment_are_masked_and_nothing_else() {
        let redacted = redacted_environment(RECORDED, Keep::All);
        let read = |text: &str| serde_json::from_str::<Map<String, Json>>(text).unwrap();
        let mut wanted = read(RECORDED);
        for (name, value) in [
            ("AWS_SECRET_ACCESS_KEY", "***"),
            ("DB_PASS", "***"),
            ("https_proxy", "http://me:***@proxy:3128"),
            ("A", "***"),
        ] {
            wanted.insert(name.to_owned(), value.into());
        }
        assert_eq!(read(&redacted), wanted);
        assert_eq!(redacted_environment(&redacted, Keep::All), redacted, "masking again changes nothing");
    }

    #[test]
    fn what_has_no_secret_stays_as_it_is() {
        for text in ["{}", "{ \"B\":\"1\",\"A\":\"2\" }", "no json", ""] {
            assert_eq!(redacted_environment(text, Keep::All), text);
        }
    }

    #[test]
    fn a_list_keeps_its_variables_and_those_of_the_rank() {
        let names = ["PWD".to_owned(), "DB_PASS".to_owned()];
        let redacted = redacted_environment(RECORDED, Keep::Listed(&names));
        assert_eq!(redacted, r#"{"DB_PASS":"***","PWD":"/a","SLURM_PROCID":"3"}"#);
        assert_eq!(redacted_environment("TOKEN=abc", Keep::Listed(&names)), "{}");
    }

    #[test]
    fn nested_and_broken_texts_do_not_pass_secrets_on() {
        for text in [
            r#"{"A_TOKEN": ["hush", {"x": "hush"}], "B": {"password": "hush", "c": ["token=hush"]}}"#,
            r#"{"A_TOKEN": "hush", "#,
            r#"["PASSWORD=hush"]"#,
            r#"{"A_KEY": "hush"#,
        ] {
            assert!(!redacted_environment(text, Keep::All).contains("hush"), "{text}");
        }
    }

    #[test]
    fn a_list_of_variables_is_masked_and_chosen_from_like_an_object() {
        let list = r#"[{"name":"HF_TOKEN","value":"hush"},{"name":"HOME","value":"/u"},"A_KEY=hush",{"key":"N_KEY","value":5}]"#;
        let masked = r#"[{"name":"HF_TOKEN","value":"***"},{"name":"HOME","value":"/u"},"A_KEY=***",{"key":"N_KEY","value":"***"}]"#;
        assert_eq!(redacted_environment(list, Keep::All), masked);
        assert_eq!(redacted_environment(masked, Keep::All), masked);
        let names = ["HOME".to_owned()];
        assert_eq!(redacted_environment(list, Keep::Listed(&names)), r#"[{"name":"HOME","value":"/u"}]"#);
        assert_eq!(
            redacted_environment(r#"{"CURL_OPTS":"-u me:hush"}"#, Keep::All),
            r#"{"CURL_OPTS":"-u ***"}"#
        );
    }

    #[test]
    fn secrets_of_a_command_are_masked() {
        assert_eq!(redacted_command("a.out --token x  -n 3 --key=y"), "a.out --token ***  -n 3 --key=***");
    }

    #[test]
    fn secrets_of_extdata_are_masked_at_any_depth() {
        let text = r#"{"a":{"password":"hush","n":1,"command":"x --token hush"},"argv":["x","--api-key","hush","-n","2"],
            "environment":{"MY_TOKEN":"hush","HOME":"/users/u"},"env":["DB_PASS=hush","HOME=/users/u"],
            "rpd":{"token":"kept"}}"#;
        let read = |text: &str| serde_json::from_str::<Map<String, Json>>(text).unwrap();
        let mut extdata = read(text);
        assert!(redact_extdata(&mut extdata, Keep::All));
        assert_eq!(extdata, read(&text.replace("hush", "***")));
        assert!(!redact_extdata(&mut extdata, Keep::All), "masking again changes nothing");
        assert!(redact_extdata(&mut extdata, Keep::Listed(&[])));
        assert_eq!(
            (&extdata["environment"], &extdata["env"]),
            (&serde_json::json!({}), &serde_json::json!([]))
        );
        let short = r#"{"argv":["x","-u","me:hush hush","-phush hush","-p","8080","-u","0:0"],"env":{"RCCL_PIN":"hush"}}"#;
        let mut extdata = read(short);
        assert!(redact_extdata(&mut extdata, Keep::All));
        assert_eq!(extdata, read(&short.replace("hush hush", "***").replace("hush", "***")));
        assert!(!redact_extdata(&mut extdata, Keep::All), "masking again changes nothing");
        let harmless = r#"{"a":{"n":[1,"-p",8080,null]},"command":"serve -p 8080","pid":5}"#;
        assert!(!redact_extdata(&mut read(harmless), Keep::All));
    }
}
