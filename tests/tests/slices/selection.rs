//! Traces of parts of a job fit together, and ranks and times outside the job are reported.

use super::{Subject, rpd_merge, synthetic};
use rpd_tests::harness::Database;

/// How many rows of a table are left out, as the index has it.
fn left_out(subject: &Subject, name: &str, options: &[&str], what: &str) -> u64 {
    let slices = subject.sliced(rpd_merge(), name, options, true);
    slices.index["not_drawn"][format!("{what} left out, as chosen")].as_u64().unwrap_or(0)
}

#[test]
fn parts_of_a_job_have_the_times_of_the_whole() {
    let subject = synthetic(200);
    let whole = subject.sliced(rpd_merge(), "whole", &["--split-by-time", "3"], true);
    for (name, options) in [
        ("rank", &["--ranks", "1"][..]),
        ("no-regions", &["--exclude", "regions,samples"]),
        ("copies", &["--ranks", "2", "--exclude", "regions,kernels,allocations"]),
    ] {
        let part = subject.sliced(rpd_merge(), name, &[&["--split-by-time", "3"], options].concat(), true);
        assert_eq!(part.index["t0_ns"], whole.index["t0_ns"], "{name}");
        assert_eq!(part.windows(), whole.windows(), "{name}");
    }
}

#[test]
fn rows_of_ranks_that_are_not_asked_for_are_counted() {
    let subject = synthetic(200);
    let others = Database::open(&subject.database).number(
        "SELECT count(*) FROM rocpd_region r JOIN rocpd_info_process p ON p.id = r.pid
        WHERE json_extract(p.extdata, '$.rpd.rank') <> 1",
    );
    assert!(others > 100, "{others}");
    let options = ["--split-by-time", "2", "--ranks", "1"];
    assert_eq!(left_out(&subject, "rank", &options, "regions"), others as u64);
    let all = ["--split-by-time", "2"];
    assert_eq!(left_out(&subject, "all", &all, "regions"), 0);
}

#[test]
fn a_selection_that_matches_nothing_is_named() {
    let subject = synthetic(200);
    let warnings = subject.drawn(&["--split-by-time", "2", "--ranks", "1,77,90-99"]).success().stderr;
    assert!(warnings.contains("--ranks 77,90-99: the job does not have them; it has ranks"), "{warnings}");
    let warnings = subject.drawn(&["--split-by-time", "2", "--ranks", "0-99"]).success().stderr;
    assert!(!warnings.contains("--ranks"), "{warnings}");
    let excluded = ["--exclude", "category=HIP_RUNTIME_API_EXT,category=hip_runtime_api_ext"];
    let warnings = subject.drawn(&[&["--split-by-time", "2"], &excluded[..]].concat()).success().stderr;
    assert!(warnings.contains("--exclude category=hip_runtime_api_ext leaves out nothing"), "{warnings}");
    assert!(!warnings.contains("category=HIP_RUNTIME_API_EXT leaves"), "{warnings}");

    let folder = subject.beside("late");
    for (options, words) in [
        (["--window", "99999.."], "begins after the last event of the job"),
        (["--ranks", "77,90-99"], "--ranks 77,90-99: the job does not have them"),
    ] {
        let outcome = rpd_merge()
            .args(["--format", "perfetto"])
            .args(options)
            .arg("-o")
            .arg(&folder)
            .arg(&subject.database)
            .run();
        assert_eq!(outcome.code(), Some(2), "{outcome}");
        assert!(outcome.stderr.contains(words), "{outcome}");
        assert!(!folder.exists());
    }
}
