//! A name for the run on which all its ranks agree without communication.

use super::LauncherEnvironment;
use crate::host::utc::utc_date_time;
use std::time::SystemTime;
use twox_hash::XxHash3_64;

/// The name of a run, valid as the name of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunId {
    /// The name.
    pub id: String,
    /// Origin: `--run-id`, a variable, `hydra`, or `self` for a process without a launcher.
    pub from: String,
}

impl RunId {
    fn new(id: &str, from: &str) -> RunId {
        RunId { id: folder_name(id), from: from.to_owned() }
    }
}

/// Returns the run id that the user or the launcher gives; `None` for a process without a launcher.
///
/// The launcher closest to the processes comes first, since several `mpirun` in one Slurm job are several
/// runs:
/// 1. `--run-id`.
/// 2. The PMIx namespace of an MPI launcher. Open MPI 4 makes it from 16 bits of the process id, so its
///    random transport key is added if it is set. Slurm's own namespace is left to 4.
/// 3. Hydra: the address that its proxies call back (`hydra` is called only if `PMI_RANK` is set).
/// 4. `SLURM_JOB_ID.SLURM_STEP_ID`, which only `srun` sets, with `-r1` and so on in a requeued job.
/// 5. Job ids of other launchers, then torchrun's run id unless it is `none`.
pub(crate) fn detect_run_id(
    chosen: Option<&str>,
    environment: &LauncherEnvironment,
    hydra: impl FnOnce() -> Option<String>,
) -> Option<RunId> {
    if let Some(id) = chosen.filter(|id| !id.is_empty()) {
        return Some(RunId::new(id, "--run-id"));
    }
    open_mpi(environment)
        .or_else(|| {
            environment.get("PMI_RANK")?;
            Some(RunId::new(&hydra()?, "hydra"))
        })
        .or_else(|| {
            let job = environment.get("SLURM_JOB_ID")?;
            let step = environment.number("SLURM_STEP_ID")?;
            // A requeued job keeps its number.
            let again = environment.number("SLURM_RESTART_COUNT").filter(|times| *times > 0);
            let again = again.map_or(String::new(), |times| format!("-r{times}"));
            Some(RunId::new(&format!("{job}.{step}{again}"), "SLURM_JOB_ID"))
        })
        .or_else(|| {
            let job_ids = ["PMIX_NAMESPACE", "PMI_JOBID", "PALS_APID", "FLUX_JOB_ID"];
            job_ids.iter().find_map(|name| Some(RunId::new(environment.get(name)?, name)))
        })
        .or_else(|| {
            let id = environment.get("TORCHELASTIC_RUN_ID").filter(|id| *id != "none")?;
            Some(RunId::new(id, "TORCHELASTIC_RUN_ID"))
        })
}

/// Returns names of empty files in the run folder by which a script at the end of a Slurm job finds it:
/// `slurm-job.12` if the name of the run does not begin with the number of the job, and `slurm-array.11_3` in
/// a task of an array.
pub(crate) fn slurm_marks(environment: &LauncherEnvironment, run: &RunId) -> Vec<String> {
    let number = |name: &str| environment.number(name);
    let job = number("SLURM_JOB_ID").filter(|job| !run.id.starts_with(&format!("{job}.")));
    let task = number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID"));
    let job = job.map(|job| format!("slurm-job.{job}"));
    job.into_iter().chain(task.map(|(array, task)| format!("slurm-array.{array}_{task}"))).collect()
}

fn open_mpi(environment: &LauncherEnvironment) -> Option<RunId> {
    let from = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]
        .into_iter()
        .find(|name| environment.get(name).is_some_and(|value| !value.starts_with("slurm.")))?;
    let namespace = environment.get(from)?;
    let id = match environment.get("OMPI_MCA_orte_precondition_transports") {
        Some(key) => format!("{namespace}-{}", key.chars().take(8).collect::<String>()),
        None => namespace.to_owned(),
    };
    Some(RunId::new(&id, from))
}

/// Returns a unique run id for a process without a launcher. Such ids sort by time.
pub(crate) fn lone_run_id(now: SystemTime, pid: u32, random: u32) -> RunId {
    let time = utc_date_time(now).strftime("%Y%m%dT%H%M%SZ");
    let id = format!("{time}-{pid}-{:04x}", random & 0xffff);
    RunId { id, from: "self".to_owned() }
}

/// Maximum length of a folder name that is made from a run id.
const MAX_NAME_LENGTH: usize = 128;

/// Removes everything that is special in a path, for a shell or in hidden files. An id that had to change
/// gets a hash, so that `a b` and `a/b` have different folders.
fn folder_name(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-+=@".contains(c) { c } else { '-' };
    let name: String = id.chars().map(plain).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name == id && (1..=MAX_NAME_LENGTH).contains(&id.len()) {
        return id.to_owned();
    }
    let shortened: String = name.chars().take(MAX_NAME_LENGTH - 9).collect();
    let shortened = if shortened.is_empty() { "run" } else { &shortened };
    format!("{shortened}-{:08x}", XxHash3_64::oneshot(id.as_bytes()) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn launchers_name_their_runs() {
        let cases = [
            ("SLURM_JOB_ID=12 SLURM_STEP_ID=3", Some(("12.3", "SLURM_JOB_ID"))),
            ("SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_RESTART_COUNT=0", Some(("12.3", "SLURM_JOB_ID"))),
            ("SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_RESTART_COUNT=2", Some(("12.3-r2", "SLURM_JOB_ID"))),
            // A batch script has a job id, but no step id.
            ("SLURM_JOB_ID=12", None),
            (
                "SLURM_JOB_ID=12 SLURM_STEP_ID=0 PMIX_NAMESPACE=slurm.pmix.12.0",
                Some(("12.0", "SLURM_JOB_ID")),
            ),
            ("SLURM_JOB_ID=12 SLURM_STEP_ID=0 PMIX_NAMESPACE=99", Some(("99", "PMIX_NAMESPACE"))),
            (
                "PMIX_NAMESPACE=99 OMPI_MCA_orte_precondition_transports=6ed69fc0696002e9-1",
                Some(("99-6ed69fc0", "PMIX_NAMESPACE")),
            ),
            ("PMIX_NAMESPACE=prterun-n1-77@1", Some(("prterun-n1-77@1", "PMIX_NAMESPACE"))),
            ("PMI_RANK=0 PMI_JOBID=4", Some(("hydra-n1-5-0", "hydra"))),
            ("PALS_APID=ab", Some(("ab", "PALS_APID"))),
            ("TORCHELASTIC_RUN_ID=none", None),
            ("TORCHELASTIC_RUN_ID=mine", Some(("mine", "TORCHELASTIC_RUN_ID"))),
            ("", None),
        ];
        for (given, expected) in cases {
            let environment = given.split_whitespace().filter_map(|entry| entry.split_once('=')).collect();
            let found = detect_run_id(None, &environment, || Some("hydra-n1-5-0".to_owned()));
            let expected = expected.map(|(id, from)| RunId { id: id.to_owned(), from: from.to_owned() });
            assert_eq!(found, expected, "{given}");
        }
    }

    #[test]
    fn names_are_fit_for_folders() {
        for (given, wanted) in
            [("a/b", "a-b-"), ("../../x", "x-"), ("", "run-"), ("..", "run-"), ("ä b", "b-")]
        {
            let name = folder_name(given);
            assert_eq!(name.rsplit_once('-').unwrap().0.to_owned() + "-", wanted);
            assert_eq!(name.len(), wanted.len() + 8);
        }
        assert_eq!(folder_name("exp-a.1_b+c=d@e"), "exp-a.1_b+c=d@e");
        assert_ne!(folder_name("exp a"), folder_name("exp/a"));
        assert_ne!(folder_name(&"x".repeat(1000)), folder_name(&"x".repeat(1001)));
        assert!(folder_name(&"x".repeat(1000)).len() <= MAX_NAME_LENGTH);
    }

    #[test]
    fn a_lone_run_is_named_by_time() {
        let cases =
            [(0, "19700101T000000Z"), (951_827_696, "20000229T123456Z"), (1_792_540_799, "20261020T235959Z")];
        for (seconds, wanted) in cases {
            let run = lone_run_id(UNIX_EPOCH + Duration::from_secs(seconds), 7, 0xabcd);
            assert_eq!(run.id, format!("{wanted}-7-abcd"));
        }
    }
}
