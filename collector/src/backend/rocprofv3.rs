//! `rocprofv3` of rocprofiler-sdk, as its guide "Using rocprofv3" describes it. It becomes the command by exec.

use super::plan::{Asked, Plan, Unavailable};
use super::tool;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const PROGRAM: &str = "rocprofv3";
/// What is ours to say.
const OURS: [&str; 6] = ["-d", "--output-directory", "-o", "--output-file", "-f", "--output-format"];
/// Options that choose what is traced: where one is given, we choose nothing.
const SELECTING: [&str; 9] = [
    "-r",
    "-s",
    "--pmc",
    "-i",
    "--input",
    "--runtime-trace",
    "--sys-trace",
    "--kernel-trace",
    "--pc-sampling-beta-enabled",
];

/// What to put in front of the command. Without `-o`, a file is named by its process: those of a program that forks
/// do not collide.
pub(super) fn prepare(asked: &Asked<'_>, folder: &Path, plan: &mut Plan) -> Result<(), Unavailable> {
    let program = tool::find(PROGRAM)
        .ok_or_else(|| Unavailable::missing(PROGRAM, &format!("no {PROGRAM} in {}", tool::PLACES)))?;
    let config = asked.readable_config()?;
    if let Some(ours) = asked.arguments.iter().find(|argument| is_ours(argument)) {
        return Err(Unavailable(format!(
            "--backend-arg {}: where and in which format {PROGRAM} writes is up to rpd-collect",
            ours.display()
        )));
    }
    let help = tool::ask(&program, &["--help".as_ref()], folder);
    let version = tool::ask(&program, &["--version".as_ref()], folder).and_then(|text| version_in(&text));
    let Some(help) = help.filter(|text| text.contains("--output-format")) else {
        return Err(Unavailable(format!(
            "{} --help fails or does not answer: check that it runs on this node (python3, ROCm's libraries), or use \
             --backend native",
            program.display()
        )));
    };
    // ROCm 6 has csv, json and pftrace.
    let format = if help.contains("rocpd") { "rocpd" } else { "json" };
    plan.say(format!(
        "backend rocprofv3: {}{}, output as {format}",
        program.display(),
        version.map_or(String::new(), |version| format!(" {version}"))
    ));
    let mut front: Vec<OsString> = vec![program.into()];
    if let Some(config) = config {
        front.extend(["-i".into(), config.into()]);
    }
    if asked.config.is_none() && !asked.arguments.iter().any(|argument| is_selecting(argument)) {
        front.push("--runtime-trace".into());
    }
    front.extend(asked.arguments.iter().cloned());
    front.extend(["-f".into(), format.into(), "-d".into(), folder.into(), "--".into()]);
    plan.front = front;
    Ok(())
}

fn is_ours(argument: &OsStr) -> bool {
    let text = argument.to_string_lossy();
    OURS.iter().any(|ours| text == *ours || text.strip_prefix(ours).is_some_and(|rest| rest.starts_with('=')))
}

fn is_selecting(argument: &OsStr) -> bool {
    let text = argument.to_string_lossy();
    let name = text.split('=').next().unwrap_or_default();
    SELECTING.contains(&name) || name.starts_with("--") && name.ends_with("-trace")
}

/// The first word that looks like a version: `1.0.0`, `version: 0.5.0`.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.split([' ', '\n', '\t', ',', 'v']).find(is_version).map(|word| word.chars().take(40).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_either_form() {
        assert_eq!(
            version_in("           version: 1.0.0\n      git_revision: abc").as_deref(),
            Some("1.0.0")
        );
        assert_eq!(version_in("rocprofv3 v0.6.0").as_deref(), Some("0.6.0"));
        assert_eq!(version_in("no version here."), None);
    }

    #[test]
    fn options_are_told_apart() {
        assert!(is_ours(OsStr::new("-d")) && is_ours(OsStr::new("--output-format=csv")));
        assert!(!is_ours(OsStr::new("--demangle")));
        assert!(is_selecting(OsStr::new("--hip-trace")) && is_selecting(OsStr::new("--pmc")));
        assert!(!is_selecting(OsStr::new("--minimum-output-data")));
    }
}
