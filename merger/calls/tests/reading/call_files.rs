//! Files of calls: the same calls as in the rows, or a reason why they are not used.

use crate::damaged_runs::run;
use crate::small_run::SmallRun;
use rpd_calls::{CallFile, CallFileError, ReadOptions, RunCalls};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// A run with its file of calls.
fn stored() -> (SmallRun, PathBuf, RunCalls) {
    let mut run = run();
    run.finish();
    let opened = run.open();
    let place = CallFile::place(&run.path());
    CallFile::write(&place, &opened, 1).unwrap();
    let calls = RunCalls::read(&opened, &ReadOptions::default()).unwrap();
    assert!(calls.job.timelines.iter().all(|timeline| timeline.calls.len() > 100));
    (run, place, calls)
}

fn read(run: &SmallRun) -> Result<Option<RunCalls>, CallFileError> {
    let opened = run.open();
    let file = CallFile::open(&CallFile::place(&run.path()), &opened)?;
    file.map(|file| RunCalls::from_file(&opened, &file)).transpose()
}

#[test]
fn a_file_is_private_complete_and_the_same_for_any_number_of_units_at_once() {
    let (run, place, calls) = stored();
    assert_eq!(read(&run).unwrap().unwrap(), calls);
    assert!(CallFile::is_one(&place) && !CallFile::is_one(&run.path()));
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
    let other = place.with_extension("other");
    CallFile::write(&other, &run.open(), 64).unwrap();
    assert_eq!(fs::read(&place).unwrap(), fs::read(&other).unwrap());
    assert!(CallFile::write(&other, &run.open(), 1).is_err(), "a file that is there was overwritten");
}

#[test]
fn no_file_is_no_error() {
    let (run, place, _) = stored();
    fs::remove_file(place).unwrap();
    assert!(read(&run).unwrap().is_none());
    for (database, calls) in [("a/run.db", "a/run.calls"), ("run", "run.calls"), ("job.12", "job.12.calls")] {
        assert_eq!(CallFile::place(database.as_ref()), Path::new(calls));
    }
}

#[test]
fn a_flipped_byte_anywhere_is_found() {
    let (run, place, _) = stored();
    let whole = fs::read(&place).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(&place, damaged).unwrap();
        assert!(read(&run).is_err(), "byte {at}");
    }
}

#[test]
fn a_cut_or_extended_file_is_found() {
    let (run, place, _) = stored();
    let whole = fs::read(&place).unwrap();
    for end in 0..whole.len() {
        fs::write(&place, &whole[..end]).unwrap();
        assert!(read(&run).is_err(), "{end} bytes");
    }
    fs::write(&place, [&whole[..], &[0]].concat()).unwrap();
    assert!(matches!(read(&run), Err(CallFileError::Damaged { offset, .. }) if offset == whole.len() as u64));
}

#[test]
fn lengths_beyond_the_database_are_refused_before_memory_is_reserved() {
    let (run, place, _) = stored();
    let whole = fs::read(&place).unwrap();
    for (at, length) in [(36, u64::MAX), (36, 1 << 40), (44, u64::MAX), (44, 1 << 40), (44, 1 << 32)] {
        let mut odd = whole.clone();
        odd[at..at + 8].copy_from_slice(&length.to_le_bytes());
        fs::write(&place, odd).unwrap();
        assert!(matches!(read(&run), Err(CallFileError::Damaged { offset: 36, .. })), "{at}: {length}");
    }
}

#[test]
fn calls_of_an_earlier_state_of_the_database_are_not_used() {
    for change in ["DELETE FROM rocpd_arg%", "INSERT INTO rocpd_metadata% (tag, value) VALUES ('a', 'b')"] {
        let (run, _, _) = stored();
        run.sql(change);
        assert!(matches!(read(&run), Err(CallFileError::OtherDatabase)), "{change}");
    }
    let (one, place, _) = stored();
    let mut other = SmallRun::new();
    let thread = other.rank(0, 1);
    other.call(thread, (0, 5), "MPI_Barrier", &[]);
    other.finish();
    fs::copy(place, CallFile::place(&other.path())).unwrap();
    assert!(matches!(read(&other), Err(CallFileError::OtherDatabase)));
    drop(one);
}

#[test]
fn links_folders_and_files_of_other_users_are_not_used() {
    let (run, place, _) = stored();
    let kept = place.with_extension("kept");
    fs::rename(&place, &kept).unwrap();
    fs::create_dir(&place).unwrap();
    assert!(matches!(read(&run), Err(CallFileError::Io(_))));
    fs::remove_dir(&place).unwrap();
    symlink("/dev/zero", &place).unwrap();
    assert!(matches!(read(&run), Err(CallFileError::Io(_))));
    fs::remove_file(&place).unwrap();
    fs::rename(&kept, &place).unwrap();
    // Only root may give a file to another user.
    if fs::metadata(&place).unwrap().uid() == 0 {
        chown(&place, Some(65_534), None).unwrap();
        assert!(matches!(read(&run), Err(CallFileError::OtherOwner)));
    }
}
