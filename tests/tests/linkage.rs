//! Nothing but `rpd-merge-mpi` and `rpd-report-mpi` needs an MPI library to start.

use rpd_tests::harness::{Job, JobOutcome, binary, mpi_missing, skip};

/// Libraries that a program or library needs; `None` where ldd is not here.
fn needed(name: &str) -> Option<JobOutcome> {
    let path = binary(name);
    let there = Job::new("sh").args(["-c", "command -v ldd"]).run().code() == Some(0);
    there.then(|| Job::new("ldd").arg(path).run().success())
}

#[test]
fn programs_for_login_nodes_and_the_interceptor_do_not_need_mpi() {
    for name in ["rpd-merge", "rpd-collect", "librpd_intercept.so"] {
        let Some(outcome) = needed(name) else { return skip("linkage", "ldd is not here") };
        for library in ["libmpi", "libmpich", "libpmi", "libopen-rte", "not found"] {
            assert!(!outcome.stdout.contains(library), "{name} needs {library}:\n{outcome}");
        }
    }
}

#[test]
fn the_interceptor_has_no_undefined_mpi_or_roctx_symbols() {
    let path = binary("librpd_intercept.so");
    if Job::new("sh").args(["-c", "command -v nm"]).run().code() != Some(0) {
        return skip("symbols of the interceptor", "nm is not here");
    }
    let outcome = Job::new("nm").args(["-D", "--undefined-only"]).arg(path).run().success();
    let foreign: Vec<_> =
        outcome.stdout.lines().filter(|l| l.contains("MPI_") || l.contains("roctx")).collect();
    assert_eq!(foreign, Vec::<&str>::new());
}

#[test]
fn the_mpi_twins_are_there_and_need_mpi() {
    if let Some(why) = mpi_missing() {
        return skip("linkage of rpd-merge-mpi", why);
    }
    for twin in ["rpd-merge-mpi", "rpd-report-mpi"] {
        let Some(outcome) = needed(twin) else { return skip("linkage", "ldd is not here") };
        assert!(outcome.stdout.contains("libmpi"), "{outcome}");
    }
}
