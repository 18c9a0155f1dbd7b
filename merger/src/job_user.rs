//! The user under which a merge at the end of a job runs.

use nix::unistd::{Gid, Uid, User, initgroups, setgid, setgroups, setuid};
use rpd_console::Failure;
use rpd_files::{HeldFolder, effective_uid, user_name};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Variables in which Slurm passes user and group of the job to an epilog of the site.
const JOB_UID: &str = "SLURM_JOB_UID";
const JOB_GID: &str = "SLURM_JOB_GID";
/// Environment variable with the folder that contains runs.
const OUTPUT_ROOT: &str = "RPD_OUTPUT";
const DEFAULT_ROOT: &str = "rpd-out";

/// Returns the folder that contains runs, if no input is named: `$RPD_OUTPUT` or `./rpd-out`.
pub(crate) fn output_root() -> PathBuf {
    std::env::var_os(OUTPUT_ROOT).filter(|root| !root.is_empty()).map_or(DEFAULT_ROOT.into(), PathBuf::from)
}

/// Changes from root to the user of the job. Links and files that a user left in a run folder must not make root read
/// or write elsewhere.
///
/// The user is that of `SLURM_JOB_UID`, or else the owner of the first input. Does nothing if the process does not
/// run as root. Must be called before any file of the user is accessed, and cannot be undone.
pub(crate) fn become_job_user(inputs: &[PathBuf]) -> Result<(), Failure> {
    if effective_uid() != 0 {
        return Ok(());
    }
    let Some(uid) = job_user(inputs)?.filter(|uid| *uid != 0) else { return Ok(()) };
    let failed = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "cannot become {}, the user of the job ({error}); run rpd-merge --epilog as that user",
            user_name(uid)
        ))
    };
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let group = known.as_ref().map(|user| user.gid).or_else(|| number(JOB_GID).map(Gid::from_raw));
    let group = group.unwrap_or(Gid::from_raw(uid));
    let name = known.and_then(|user| CString::new(user.name).ok());
    let grouped = match name {
        Some(name) => initgroups(&name, group),
        None => setgroups(&[]),
    };
    grouped.and_then(|()| setgid(group)).and_then(|()| setuid(Uid::from_raw(uid))).map_err(|e| failed(&e))?;
    match setuid(Uid::from_raw(0)) {
        Err(_) => Ok(()),
        Ok(()) => Err(failed(&"the rights of root could not be given up")),
    }
}

/// Rejects a run of another user: with `--epilog`, no person reads the warnings of the merge.
pub(crate) fn check_owner(folder: &Path) -> Result<(), Failure> {
    let opened = HeldFolder::open_to_read(folder).map_err(|error| {
        Failure::input(format!("cannot open the folder {}: {error}; check its permissions", folder.display()))
    })?;
    if opened.is_own() {
        return Ok(());
    }
    Err(Failure::input(format!(
        "{} belongs to {}, and this merge runs as {}; with --epilog only the owner merges a run; run rpd-merge as \
         the owner, or without --epilog and with -o FILE",
        folder.display(),
        user_name(opened.owner()),
        user_name(effective_uid()),
    )))
}

/// The user of the job; `None` if neither Slurm nor a folder identifies one.
fn job_user(inputs: &[PathBuf]) -> Result<Option<u32>, Failure> {
    if let Some(uid) = std::env::var_os(JOB_UID).filter(|uid| !uid.is_empty()) {
        let uid = number(JOB_UID).ok_or_else(|| {
            Failure::usage(format!(
                "{JOB_UID} is {uid:?}, which is not a user id; unset it, or name the job's user"
            ))
        });
        return uid.map(Some);
    }
    let first = inputs.first().cloned().unwrap_or_else(output_root);
    let folder = match first.is_dir() {
        true => first.as_path(),
        false => first.parent().unwrap_or(Path::new("")),
    };
    Ok(HeldFolder::open(folder).ok().map(|folder| folder.owner()))
}

/// Reads a number from the environment. Only the canonical form is accepted: `00` is not a number.
fn number(variable: &str) -> Option<u32> {
    let text = std::env::var(variable).ok()?;
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
