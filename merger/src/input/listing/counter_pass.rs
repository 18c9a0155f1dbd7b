//! Counter pass of a database: rocprof-compute and rocprofv3 run a program again for each set of counters.
//!
//! The databases do not contain the pass, but their names do. rocprof-compute stores `pmc_perf_0.db`, or
//! `pmc_perf_0_PID.db`, in the folder of its workload, and files such as `SQ_LEVEL_WAVES.db`. Before that they are in
//! `pmc_1/HOST/PID_results.db`. rocprofv3 creates a folder `pass_1` for each line of counters. The pass is the only
//! fact that a merge reads from a path.

use std::path::Path;

/// Number of parent folders that can have the name of a pass.
const MAX_PARENTS: usize = 3;

/// Returns the name of the pass, if the file or one of its folders has such a name.
pub(crate) fn pass_of(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    if let Some(pass) = of_file(stem) {
        return Some(pass.to_owned());
    }
    let folders = path.ancestors().skip(1).take(MAX_PARENTS);
    let mut names = folders.filter_map(|folder| folder.file_name()?.to_str());
    names.find(|name| is_numbered(name, "pmc_") || is_numbered(name, "pass_")).map(str::to_owned)
}

/// Returns the pass from the name of a counter file of rocprof-compute, without the process id at its end.
fn of_file(stem: &str) -> Option<&str> {
    let numbers = stem.strip_prefix("pmc_perf").map(|rest| rest.trim_start_matches('_'));
    if let Some(numbers) = numbers {
        let is_list = numbers.split('_').all(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let pass = numbers.split('_').next().unwrap_or_default();
        let length = "pmc_perf_".len() + pass.len();
        return is_list.then(|| stem.get(..length).unwrap_or(stem));
    }
    let pass = match stem.rsplit_once('_') {
        Some((pass, pid)) if pid.bytes().all(|byte| byte.is_ascii_digit()) => pass,
        _ => stem,
    };
    let is_counter = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    (pass.starts_with("SQ_") && is_counter(pass)).then_some(pass)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_told_by_the_names_of_files_and_folders() {
        for (path, pass) in [
            ("w/MI300/pmc_perf_0.db", Some("pmc_perf_0")),
            ("w/pmc_perf_12_4711.db", Some("pmc_perf_12")),
            ("pmc_perf.db", Some("pmc_perf")),
            ("w/SQ_LEVEL_WAVES.db", Some("SQ_LEVEL_WAVES")),
            ("w/SQ_LEVEL_WAVES_4711.db", Some("SQ_LEVEL_WAVES")),
            ("w/out/pmc_1/node7/4711_results.db", Some("pmc_1")),
            ("out/pass_2/4711_results.db", Some("pass_2")),
            ("pmc_1/a/b/c/4711_results.db", None),
            ("w/node7/4711_results.db", None),
            ("w/pmc_performance.db", None),
            ("w/SQ_x.db", None),
            ("pmc_/x.db", None),
            ("trace.db", None),
        ] {
            assert_eq!(pass_of(Path::new(path)).as_deref(), pass, "{path}");
        }
    }
}
