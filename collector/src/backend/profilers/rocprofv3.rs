//! `rocprofv3` of rocprofiler-sdk, according to its guide "Using rocprofv3". It becomes the command by exec.

use crate::backend::request::{BackendPlan, BackendRequest, UnavailableBackend};
use crate::backend::rocm_tools;
use crate::host::bounded_read::read_at_most;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = "rocprofv3";
/// Options that rpd-collect sets itself.
const OUR_OPTIONS: [&str; 6] = ["-d", "--output-directory", "-o", "--output-file", "-f", "--output-format"];
/// Options that select what is traced. If the user sets one, rpd-collect selects nothing.
const SELECTING_OPTIONS: [&str; 9] = [
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
/// Traces host calls of the GPU's libraries, roctx and RCCL, and GPU work.
const ALL_OPTION: &str = "--runtime-trace";
/// The options that `--runtime-trace` combines, without RCCL. A release may lack some of them.
const OPTIONS_WITHOUT_RCCL: [&str; 9] = [
    "--hip-runtime-trace",
    "--marker-trace",
    "--kernel-trace",
    "--kfd-trace",
    "--memory-copy-trace",
    "--memory-allocation-trace",
    "--scratch-memory-trace",
    "--rocdecode-trace",
    "--rocjpeg-trace",
];
/// Words of [`rpd_ring::message::TRACED`] that an option records, as written on a command line.
const RECORDED_BY_OPTION: [(&str, &[&str]); 7] = [
    ("-r", &["roctx", "rccl"]),
    (ALL_OPTION, &["roctx", "rccl"]),
    ("-s", &["roctx", "rccl"]),
    ("--sys-trace", &["roctx", "rccl"]),
    ("--marker-trace", &["roctx"]),
    ("--kokkos-trace", &["roctx"]),
    ("--rccl-trace", &["rccl"]),
];
/// Values that disable an option.
const OFF_WORDS: [&str; 5] = ["false", "off", "no", "n", "0"];
/// Maximum number of bytes of a configuration to read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Bounds for the time in which rocprofv3 must print its options. Within them it has as long as it has to
/// start the command.
const TIME_TO_ANSWER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

/// Adds the words before the command to the plan. Without `-o`, rocprofv3 names each file by its process, so
/// that the files of a program that forks do not collide.
pub(crate) fn prepare(
    request: &BackendRequest<'_>,
    folder: &Path,
    plan: &mut BackendPlan,
) -> Result<(), UnavailableBackend> {
    let program = rocm_tools::find(PROGRAM).ok_or_else(|| {
        UnavailableBackend::missing(PROGRAM, &format!("no {PROGRAM} in {}", rocm_tools::PLACES))
    })?;
    let config = request.readable_config()?;
    if let Some(ours) = request.arguments.iter().find(|argument| is_ours(argument)) {
        return Err(UnavailableBackend(format!(
            "--backend-arg {}: where and in which format {PROGRAM} writes is up to rpd-collect",
            ours.display()
        )));
    }
    let [min, max] = TIME_TO_ANSWER;
    let query = |option: &str| {
        rocm_tools::query_within(&program, &[option.as_ref()], folder, request.wait.clamp(min, max))
    };
    let Some(help) = query("--help").filter(|text| text.contains("--output-format")) else {
        return Err(UnavailableBackend(format!(
            "{} --help fails or does not respond; check that it runs on this node (python3, ROCm's libraries), or use \
             --backend native",
            program.display()
        )));
    };
    let version = query("--version").and_then(|text| version_in(&text));
    // ROCm 6 has csv, json and pftrace.
    let format = if help.contains("rocpd") { "rocpd" } else { "json" };
    plan.note(format!(
        "backend rocprofv3: {}{}, output as {format}",
        program.display(),
        version.map_or(String::new(), |version| format!(" {version}"))
    ));
    let mut profiler_command: Vec<OsString> = vec![program.into()];
    if let Some(config) = config {
        profiler_command.extend(["-i".into(), config.into()]);
    }
    let is_chosen = config.is_some() || request.arguments.iter().any(|argument| is_selecting(argument));
    let records = if is_chosen {
        recorded_by(request.arguments, config)
    } else {
        let options = options_beside(if plan.native { request.words } else { &[] }, &help);
        profiler_command.extend(options.iter().map(OsString::from));
        recorded_by(&profiler_command, None)
    };
    // Calls that both would record are recorded once.
    plan.left_to_profiler
        .extend(records.into_iter().filter(|word| plan.native && request.words.contains(word)));
    if plan.gpu.is_none() && !plan.left_to_profiler.is_empty() {
        plan.note(format!(
            "native leaves {} to rocprofv3, which records it, too",
            plan.left_to_profiler.join(" and ")
        ));
    }
    profiler_command.extend(request.arguments.iter().cloned());
    profiler_command.extend(["-f".into(), format.into(), "-d".into(), folder.into(), "--".into()]);
    plan.profiler_command = profiler_command;
    Ok(())
}

/// Returns the options that trace everything except RCCL, if native records that. If the help of a release
/// does not list them, returns the option that combines all.
fn options_beside(native: &[&str], help: &str) -> Vec<&'static str> {
    let names: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let each: Vec<_> = OPTIONS_WITHOUT_RCCL.into_iter().filter(|option| names.contains(option)).collect();
    if native.contains(&"rccl") && each.contains(&"--kernel-trace") { each } else { vec![ALL_OPTION] }
}

/// Returns what of roctx and RCCL these arguments and this configuration make rocprofv3 record.
fn recorded_by(arguments: &[OsString], config: Option<&Path>) -> Vec<&'static str> {
    let mut words: Vec<String> = Vec::new();
    for argument in arguments {
        words.extend(argument.to_string_lossy().split('=').map(str::to_owned));
    }
    if let Some(config) = config {
        // YAML or JSON. The keys are the names of the options.
        let text = String::from_utf8_lossy(&read_at_most(config, MAX_CONFIG_BYTES)).replace('_', "-");
        let keys = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|key| !key.is_empty());
        words.extend(keys.map(|key| format!("--{key}")));
    }
    let is_off =
        |word: &String| OFF_WORDS.iter().any(|off| word.trim_start_matches('-').eq_ignore_ascii_case(off));
    let is_on = |option: &str| {
        let mut found = words.iter().enumerate().filter(|(_, word)| *word == option);
        found.any(|(at, _)| !words.get(at + 1).is_some_and(is_off))
    };
    let given = RECORDED_BY_OPTION.iter().filter(|(option, _)| is_on(option));
    let mut recorded: Vec<_> = given.flat_map(|(_, recorded)| recorded.iter().copied()).collect();
    recorded.sort_unstable();
    recorded.dedup();
    recorded
}

fn is_ours(argument: &OsStr) -> bool {
    let text = argument.to_string_lossy();
    OUR_OPTIONS
        .iter()
        .any(|ours| text == *ours || text.strip_prefix(ours).is_some_and(|rest| rest.starts_with('=')))
}

fn is_selecting(argument: &OsStr) -> bool {
    let text = argument.to_string_lossy();
    let name = text.split('=').next().unwrap_or_default();
    SELECTING_OPTIONS.contains(&name) || name.starts_with("--") && name.ends_with("-trace")
}

/// Returns the first word that looks like a version: `1.0.0`, `version: 0.5.0`.
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
    fn options_are_distinguished() {
        assert!(is_ours(OsStr::new("-d")) && is_ours(OsStr::new("--output-format=csv")));
        assert!(!is_ours(OsStr::new("--demangle")));
        assert!(is_selecting(OsStr::new("--hip-trace")) && is_selecting(OsStr::new("--pmc")));
        assert!(!is_selecting(OsStr::new("--minimum-output-data")));
    }

    #[test]
    fn rccl_is_left_to_native_where_the_release_can_be_asked_for_the_rest() {
        let help = "  -r, --runtime-trace [BOOL]\n --hip-runtime-trace [BOOL] --kernel-trace\n--marker-trace, --rccl-trace";
        let each = ["--hip-runtime-trace", "--marker-trace", "--kernel-trace"];
        assert_eq!(options_beside(&["mpi", "rccl"], help), each);
        assert_eq!(options_beside(&["mpi"], help), [ALL_OPTION]);
        assert_eq!(options_beside(&["rccl"], "--output-format {csv}"), [ALL_OPTION]);
    }

    #[test]
    fn what_arguments_and_a_configuration_record_is_known() {
        let by = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            recorded_by(&words, None)
        };
        assert_eq!(by(&["--runtime-trace"]), ["rccl", "roctx"]);
        assert_eq!(by(&["--kernel-trace", "--marker-trace"]), ["roctx"]);
        assert_eq!(by(&["--pmc", "SQ_WAVES"]), [""; 0]);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("input.yml");
        std::fs::write(&config, "jobs:\n  - rccl_trace: true\n    kernel_trace: true\n").unwrap();
        assert_eq!(recorded_by(&[], Some(&config)), ["rccl"]);
        std::fs::write(&config, "{\"jobs\": [{\"hip_runtime_trace\": true, \"rccl_trace\": false}]}")
            .unwrap();
        assert_eq!(recorded_by(&[], Some(&config)), [""; 0]);
        assert_eq!(by(&["--marker-trace", "--rccl-trace=False"]), ["roctx"]);
    }
}
