//! Rows at the edges of what a trace can hold are drawn right, or it is said what became of them.

use super::{Subject, rpd_merge};
use rpd_tests::databases::change;
use rpd_tests::harness::{Database, RunFolder};
use rpd_tests::synthetic::SyntheticRun;

/// Longest text that is written.
const LONGEST: usize = 64 << 10;

/// A run whose merged database is changed.
fn changed(statements: &[&str]) -> Subject {
    let run = RunFolder::new(&SyntheticRun { nodes: 1, ..SyntheticRun::default() });
    let mut subject = Subject::of(std::slice::from_ref(&run.path));
    change(&subject.database, statements);
    subject.read_again();
    subject
}

/// Compares some slices of the database with it.
fn check(subject: &Subject, options: &[&str]) {
    let whole = subject.sliced(rpd_merge(), "whole", &["--split-by-time", "1"], true);
    let slices = subject.sliced(rpd_merge(), "slices", options, true);
    subject.check(&whole, &[&slices]);
}

#[test]
fn slices_of_no_length_and_of_equal_times_are_drawn_one_by_one() {
    let subject = changed(&[
        "UPDATE rocpd_region<uuid> SET end = start WHERE id % 3 = 0",
        "UPDATE rocpd_region<uuid> SET start = start / 1000000 * 1000000, end = end / 1000000 * 1000000 WHERE id % 4 < 2",
        "UPDATE rocpd_kernel_dispatch<uuid> SET start = start / 1000000 * 1000000, end = end / 1000000 * 1000000",
        "UPDATE rocpd_memory_copy<uuid> SET end = start",
    ]);
    check(&subject, &["--split-by-time", "7"]);
}

#[test]
fn a_slice_over_all_windows_is_in_each_of_them() {
    let subject = changed(&[
        "UPDATE rocpd_region<uuid> SET start = (SELECT min(start) FROM rocpd_region<uuid>) - 5000,
            end = (SELECT max(end) FROM rocpd_region<uuid>) + 5000 WHERE id IN (1, 2)",
        "UPDATE rocpd_kernel_dispatch<uuid> SET start = (SELECT min(start) FROM rocpd_region<uuid>) - 5000,
            end = (SELECT max(end) FROM rocpd_region<uuid>) + 5000 WHERE id IN (1, 2)",
    ]);
    let slices = subject.sliced(rpd_merge(), "nine", &["--split-by-time", "9"], true);
    for file in slices.index["files"].as_array().unwrap().iter().skip(1) {
        assert!(file["events"]["continued"].as_u64().unwrap() >= 4, "{file}");
    }
    check(&subject, &["--split-by-time", "9"]);
}

#[test]
fn windows_without_events_are_files_all_the_same() {
    let subject =
        changed(&["UPDATE rocpd_region<uuid> SET start = start + 3600000000000, end = end + 3600000000000
            WHERE id = (SELECT max(id) FROM rocpd_region<uuid>)"]);
    let slices = subject.sliced(rpd_merge(), "hour", &["--split-by-time", "5"], true);
    let events = |file: usize| slices.index["files"][file]["events"]["slices"].as_u64().unwrap();
    assert_eq!((events(1), events(2), events(3), events(4)), (0, 0, 0, 1));
    check(&subject, &["--split-by-time", "5"]);
}

#[test]
fn long_names_are_cut_and_broken_ones_mended() {
    let mut subject = changed(&[
        "UPDATE rocpd_string<uuid> SET string = replace(hex(zeroblob(32768)), '0', 'x') WHERE id =
            (SELECT name_id FROM rocpd_region<uuid> ORDER BY id LIMIT 1)",
        "UPDATE rocpd_info_kernel_symbol<uuid> SET display_name = replace(hex(zeroblob(32769)), '0', 'y') WHERE id =
            (SELECT kernel_id FROM rocpd_kernel_dispatch<uuid> ORDER BY id LIMIT 1)",
        "UPDATE rocpd_string<uuid> SET string = CAST(X'4DFF80C3' AS TEXT) WHERE id =
            (SELECT name_id FROM rocpd_memory_copy<uuid> ORDER BY id LIMIT 1)",
    ]);
    let mut kinds = [0; 3];
    for span in &mut subject.drawing.spans {
        let name = &mut span.name;
        kinds[0] += usize::from(name.len() == LONGEST);
        if name.len() > LONGEST {
            kinds[1] += 1;
            *name = format!("{}\u{2026}", &name[..LONGEST - 3]);
        }
        kinds[2] += usize::from(name == "M\u{fffd}\u{fffd}\u{fffd}");
    }
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    for end in subject.drawing.arrows.iter_mut().flat_map(|(from, to)| [from, to]) {
        if end.2.len() > LONGEST {
            end.2 = format!("{}\u{2026}", &end.2[..LONGEST - 3]);
        }
    }
    check(&subject, &["--split-by-time", "3"]);
    let told = subject.told(&["--split-by-time", "3"]);
    for what in ["UTF-8", "cut"] {
        assert!(told.contains(what), "{what:?} is not in\n{told}");
    }
}

#[test]
fn negative_durations_are_clamped_and_counted() {
    let subject = changed(&[
        "UPDATE rocpd_region<uuid> SET end = start - 1000 WHERE id % 7 = 0",
        "UPDATE rocpd_kernel_dispatch<uuid> SET end = start - 1 WHERE id % 7 = 0",
    ]);
    let database = Database::open(&subject.database);
    let negative = [("region", "regions"), ("kernel_dispatch", "kernels")].map(|(table, what)| {
        let count = database.number(&format!("SELECT count(*) FROM rocpd_{table} WHERE end < start"));
        assert!(count > 10, "{count} {what}");
        format!("{count} {what} that end before they begin")
    });
    check(&subject, &["--split-by-time", "7"]);
    let told = subject.told(&["--split-by-time", "7"]);
    for what in negative {
        assert!(told.contains(&what), "{what:?} is not in\n{told}");
    }
}

#[test]
fn thousands_of_tracks_are_drawn() {
    const THREADS: usize = 5000;
    let job = rpd_tests::databases::DatabaseJob::new(&SyntheticRun {
        nodes: 1,
        ranks_per_node: 1,
        ..SyntheticRun::default()
    });
    let more = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)";
    change(
        &job.inputs[0],
        &[
            &format!(
                "INSERT INTO rocpd_info_thread<uuid> (id, nid, ppid, pid, tid, name)
                SELECT 5000000 + i, t.nid, t.ppid, t.pid, 5000000 + i, NULL
                FROM (SELECT * FROM rocpd_info_thread<uuid> LIMIT 1) t, ({more} SELECT i FROM n)"
            ),
            &format!(
                "INSERT INTO rocpd_region<uuid> (id, nid, pid, tid, start, end, name_id)
                SELECT (SELECT max(id) FROM rocpd_region<uuid>) + i, r.nid, r.pid, 5000000 + i, r.start + i, r.end + 2 * i, r.name_id
                FROM (SELECT * FROM rocpd_region<uuid> LIMIT 1) r, ({more} SELECT i FROM n)"
            ),
        ],
    );
    let subject = Subject::of(&job.inputs);
    let tracks: std::collections::BTreeSet<_> = subject.drawing.spans.iter().map(|span| &span.key).collect();
    assert!(tracks.len() > THREADS, "{} tracks", tracks.len());
    check(&subject, &["--split-by-time", "3"]);
}
