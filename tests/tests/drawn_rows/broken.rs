//! Databases that cannot be drawn are refused.

use super::{PLENTY, real, try_read};
use rpd_tests::fixtures::rocpd_databases;
use rpd_tests::harness::RunFolder;
use rpd_tests::synthetic::{RandomSource, SyntheticRun};
use rpd_trace::{JobRows, TraceSelection};

#[test]
fn a_database_that_is_damaged_anywhere_is_drawn_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun { events_per_rank: 60, ..SyntheticRun::default() };
    let synthetic = RunFolder::new(&run);
    let database = synthetic.merged();
    let bytes = std::fs::read(database.connection.path().unwrap()).unwrap();
    let path = folder.path().join("damaged.db");
    let mut random = RandomSource::new(&[11]);
    let (mut drawn, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut damaged = bytes.clone();
        for _ in 0..=random.index(3) {
            let at = random.index(damaged.len());
            damaged[at] = random.bits() as u8;
        }
        if random.chance(10) {
            damaged.truncate(random.index(damaged.len()));
        }
        std::fs::write(&path, &damaged).unwrap();
        match try_read(&path, &TraceSelection::default(), None, PLENTY) {
            Ok(_) => drawn += 1,
            Err(failure) => {
                assert!(failure.to_string().contains("damaged.db"), "{failure}");
                refused += 1;
            }
        }
    }
    assert!(drawn > 0 && refused > 0, "{drawn} {refused}");
}

#[test]
fn what_is_no_merge_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(real) = real(folder.path()) else { return };
    let input = rocpd_databases(folder.path()).remove(0);
    assert!(!rpd_run::RunDatabase::is_merged(&input));
    let failure = JobRows::open(&input, &TraceSelection::default()).unwrap_err();
    assert!(failure.to_string().contains("merge it first"), "{failure}");
    assert!(rpd_run::RunDatabase::is_merged(&real));
    assert!(!rpd_run::RunDatabase::is_merged(&folder.path().join("missing.db")));
}
