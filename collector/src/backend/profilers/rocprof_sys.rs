//! `rocprof-sys-sample` of ROCm Systems Profiler (formerly Omnitrace). It becomes the command by exec. Its
//! settings are variables with the prefix `ROCPROFSYS_`.

use crate::backend::request::{BackendPlan, BackendRequest, UnavailableBackend};
use crate::backend::rocm_tools;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const PROGRAM: &str = "rocprof-sys-sample";
/// Program that writes a file with all settings.
const SETTINGS: &str = "rocprof-sys-avail";
/// Name before ROCm 6.3, with other variables.
const PREDECESSOR: &str = "omnitrace-sample";
/// Values of `-I` and `-E` before ROCm 6.4, and since.
const RENAMED_VALUES: [(&[&str], &str); 2] =
    [(&["rocm-smi"], "amd-smi"), (&["roctracer", "rocprofiler", "roctx"], "rocm")];
/// Options with such values.
const RENAMING_OPTIONS: [&str; 4] = ["-I", "--include", "-E", "--exclude"];

/// Adds the words before the command and the variables to the plan.
pub(crate) fn prepare(
    request: &BackendRequest<'_>,
    folder: &Path,
    plan: &mut BackendPlan,
) -> Result<(), UnavailableBackend> {
    let Some(program) = rocm_tools::find(PROGRAM) else {
        let old = rocm_tools::find(PREDECESSOR).map_or(String::new(), |path| {
            format!("; {} is Omnitrace of ROCm 6.2, which is not driven", path.display())
        });
        return Err(UnavailableBackend::missing(
            "rocprof-sys",
            &format!("no {PROGRAM} in {}{old}", rocm_tools::PLACES),
        ));
    };
    let config = request.readable_config()?;
    let Some(help) = rocm_tools::query(&program, &["--help".as_ref()], folder) else {
        return Err(UnavailableBackend(format!(
            "{} --help does not respond; check that it runs on this node, or use --backend native",
            program.display()
        )));
    };
    let is_old = help.contains("roctracer");
    let settings = settings(folder);
    let has = |name: &str| settings.as_ref().is_none_or(|known| known.contains(name));
    let mut set = |name: &str, value: OsString| {
        // With a strict configuration an unknown setting is an error.
        if has(name) {
            plan.variables.push((name.to_owned(), value));
        }
    };
    set("ROCPROFSYS_OUTPUT_PATH", folder.into());
    set("ROCPROFSYS_TIME_OUTPUT", "OFF".into());
    set("ROCPROFSYS_USE_PID", "ON".into());
    set("ROCPROFSYS_USE_ROCPD", "ON".into());
    set("ROCPROFSYS_PERFETTO_BACKEND", "inprocess".into());
    plan.note(format!(
        "backend rocprof-sys: {}, {}",
        program.display(),
        if has("ROCPROFSYS_USE_ROCPD") { "output as rocpd and Perfetto" } else { "output as Perfetto" }
    ));
    let mut profiler_command: Vec<OsString> = vec![program.into()];
    if let Some(config) = config {
        profiler_command.extend(["-c".into(), config.into()]);
    }
    profiler_command.extend(renamed(request.arguments, is_old));
    profiler_command.push("--".into());
    plan.profiler_command = profiler_command;
    Ok(())
}

/// Returns the settings of this release from its default configuration. `None` if it does not write one.
fn settings(folder: &Path) -> Option<String> {
    let program = rocm_tools::find(SETTINGS)?;
    let file = folder.join("defaults.cfg");
    rocm_tools::query(&program, &["-G".as_ref(), file.as_os_str(), "-d".as_ref()], folder)?;
    let text = std::fs::read_to_string(&file).ok();
    let _ = std::fs::remove_file(&file);
    text.filter(|text| text.contains("ROCPROFSYS_"))
}

/// Converts the arguments to the names of the installed release.
fn renamed(arguments: &[OsString], is_old: bool) -> Vec<OsString> {
    let mut takes = false;
    let mut new: Vec<OsString> = Vec::new();
    for argument in arguments {
        let text = argument.to_string_lossy();
        if text.starts_with('-') {
            takes = RENAMING_OPTIONS.contains(&text.as_ref());
            new.push(argument.clone());
            continue;
        }
        let before = new.len();
        for (old, now) in RENAMED_VALUES.iter().filter(|_| takes) {
            match is_old {
                true if text == *now => new.extend(old.iter().map(OsString::from)),
                false if old.contains(&text.as_ref()) => new.push(OsStr::new(now).to_owned()),
                _ => {}
            }
        }
        if new.len() == before {
            new.push(argument.clone());
        } else if new[..before].last() == new.last() {
            // Two old words have become one.
            new.pop();
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_is_included_is_named_as_the_release_names_it() {
        let request = words("-I mpip roctracer rocprofiler rocm-smi -f 100 roctx");
        assert_eq!(renamed(&request, true), request);
        assert_eq!(renamed(&request, false), words("-I mpip rocm amd-smi -f 100 roctx"));
        let request = words("-I rocm amd-smi kokkosp");
        assert_eq!(renamed(&request, false), request);
        assert_eq!(renamed(&request, true), words("-I roctracer rocprofiler roctx rocm-smi kokkosp"));
    }
}
