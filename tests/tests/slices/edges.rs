//! Rows at the edges of what a trace can hold are drawn right, or it is said what became of them.

use super::{Subject, chrome, read::read, rpd_merge};
use rpd_tests::databases::{DatabaseJob, change};
use rpd_tests::harness::{Database, TraceProcessor, assert_refused};
use rpd_tests::synthetic::SyntheticRun;
use std::collections::BTreeSet;

/// Longest text that is written.
const LONGEST: usize = 64 << 10;

/// Databases of a run as rocprofv3 writes them, each changed by the first statements, and the last by the others, too.
fn changed(each: &[&str], last: &[&str]) -> Subject {
    let job = DatabaseJob::new(&SyntheticRun { nodes: 1, ..SyntheticRun::default() });
    job.inputs.iter().for_each(|input| change(input, each));
    change(job.inputs.last().unwrap(), last);
    Subject::of(&job.inputs)
}

/// Compares some slices with the database: of the merged one, of what it was merged from, and in Chrome's format.
fn check(subject: &Subject, options: &[&str]) {
    let whole = subject.sliced(rpd_merge(), "whole", &["--split-by-time", "1"], true);
    let slices = subject.sliced(rpd_merge(), "slices", options, false);
    subject.check(&whole, &[&slices]);
    let chrome = [&["--format", "chrome-json"], options].concat();
    chrome::check(subject, &subject.sliced(rpd_merge(), "chrome", &chrome, false));
}

#[test]
fn slices_of_no_length_and_of_equal_times_are_drawn_one_by_one() {
    let each = [
        "UPDATE rocpd_region<uuid> SET end = start WHERE id % 3 = 0",
        "UPDATE rocpd_region<uuid> SET start = start / 1000000 * 1000000, end = end / 1000000 * 1000000 WHERE id % 4 < 2",
        "UPDATE rocpd_kernel_dispatch<uuid> SET start = start / 1000000 * 1000000, end = end / 1000000 * 1000000",
        "UPDATE rocpd_memory_copy<uuid> SET end = start",
    ];
    let subject = changed(&each, &[]);
    check(&subject, &["--split-by-time", "7"]);
}

#[test]
fn what_is_all_at_one_time_is_one_file() {
    let at = "SET start = 5000000000000, end = 5000000000000";
    let tables = ["region", "kernel_dispatch", "memory_copy", "memory_allocate"];
    let mut each: Vec<String> = tables.map(|table| format!("UPDATE rocpd_{table}<uuid> {at}")).into();
    each.push("UPDATE rocpd_sample<uuid> SET timestamp = 5000000000000".to_owned());
    let subject = changed(&each.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let first = subject.drawing.spans.iter().map(|span| span.start).collect::<BTreeSet<_>>();
    assert_eq!(first.len(), 1, "their node has one clock");
    check(&subject, &["--split-by-events", "100"]);
    // Nothing can be cut, and it is said what can be done.
    let refused = subject.drawn(&["--split-by-size", "10K"]);
    assert_refused(&refused, 2, &["files of 10K cannot be made", "at one time", "use --split-by-size "]);
    let size =
        refused.stderr.split("use --split-by-size ").nth(1).unwrap().split_whitespace().next().unwrap();
    let _ = subject.drawn(&["--split-by-size", size]).success();
}

#[test]
fn a_slice_over_all_windows_is_in_each_of_them() {
    let over_all = "SET start = (SELECT min(start) FROM rocpd_region<uuid>) - 5000,
        end = (SELECT max(end) FROM rocpd_region<uuid>) + 5000";
    let first = |table: &str, condition: &str| {
        format!(
            "UPDATE rocpd_{table}<uuid> {over_all} WHERE id IN (SELECT id FROM rocpd_{table}<uuid> {condition} ORDER BY start LIMIT 2)"
        )
    };
    // Ranges: of calls inside of one another only the outermost one takes part in messages.
    let ranges = "WHERE event_id IN (SELECT e.id FROM rocpd_event<uuid> e JOIN rocpd_string<uuid> c ON c.id = e.category_id
        WHERE c.string = 'MARKER_CORE_RANGE_API')";
    let subject = changed(&[&first("kernel_dispatch", ""), &first("region", ranges)], &[]);
    for format in ["perfetto", "chrome-json"] {
        let slices = subject.sliced(rpd_merge(), format, &["--format", format, "--split-by-time", "9"], true);
        for file in slices.index["files"].as_array().unwrap().iter().skip(1) {
            assert!(file["events"]["continued"].as_u64().unwrap() >= 8, "{file}");
        }
    }
    check(&subject, &["--split-by-time", "9"]);
}

#[test]
fn windows_without_events_are_files_all_the_same() {
    let later = "UPDATE rocpd_region<uuid> SET start = start + 3600000000000, end = end + 3600000000000
        WHERE id = (SELECT max(id) FROM rocpd_region<uuid>)";
    let subject = changed(&[], &[later]);
    for format in ["perfetto", "chrome-json"] {
        let slices = subject.sliced(rpd_merge(), format, &["--format", format, "--split-by-time", "5"], true);
        let events = |file: usize| slices.index["files"][file]["events"]["slices"].as_u64().unwrap();
        assert_eq!((events(1), events(2), events(3), events(4)), (0, 0, 0, 1), "{format}");
    }
    check(&subject, &["--split-by-time", "5"]);
    // The counters have a value there.
    let slices =
        subject.sliced(rpd_merge(), "between", &["--window", "1000..2000", "--split-by-time", "2"], true);
    assert_eq!(slices.files.len(), 2);
    let events = &slices.index["files"][0]["events"];
    assert_eq!((events["slices"].as_u64(), events["continued"].as_u64()), (Some(0), Some(0)), "{events}");
    for tp in TraceProcessor::all("windows without events") {
        subject.check_set(tp.version(), &slices, &read(&tp, &slices.traces(&tp)));
    }
}

#[test]
fn long_names_are_cut_and_broken_ones_mended() {
    let each = [
        "UPDATE rocpd_string<uuid> SET string = replace(hex(zeroblob(32768)), '0', 'x') WHERE id =
            (SELECT name_id FROM rocpd_region<uuid> ORDER BY id LIMIT 1)",
        "UPDATE rocpd_info_kernel_symbol<uuid> SET display_name = replace(hex(zeroblob(32769)), '0', 'y') WHERE id =
            (SELECT kernel_id FROM rocpd_kernel_dispatch<uuid> ORDER BY id LIMIT 1)",
        "UPDATE rocpd_string<uuid> SET string = CAST(X'4DFF80C3' AS TEXT) WHERE id =
            (SELECT name_id FROM rocpd_memory_copy<uuid> ORDER BY id LIMIT 1)",
        "UPDATE rocpd_arg<uuid> SET value = CAST(X'41FF' AS TEXT) WHERE id % 5 = 0
            AND name NOT IN ('comm', 'seq', 'peer', 'tag', 'bytes')",
    ];
    let mut subject = changed(&each, &[]);
    let options = ["--format", "chrome-json", "--split-by-time", "3"];
    chrome::check(&subject, &subject.sliced(rpd_merge(), "uncut", &options, false));
    assert!(subject.drawn(&options).success().stderr.contains("UTF-8"));
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
    let whole = subject.sliced(rpd_merge(), "whole", &["--split-by-time", "1"], true);
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "3"], false);
    subject.check(&whole, &[&slices]);
    let told = subject.drawn(&["--split-by-time", "3"]).success().stderr;
    for what in ["UTF-8", "cut"] {
        assert!(told.contains(what), "{what:?} is not in\n{told}");
    }
}

#[test]
fn negative_durations_are_clamped_and_counted() {
    let each = [
        "UPDATE rocpd_region<uuid> SET end = start - 1000 WHERE id % 7 = 0",
        "UPDATE rocpd_kernel_dispatch<uuid> SET end = start - 1 WHERE id % 7 = 0",
        "UPDATE rocpd_memory_copy<uuid> SET end = start - 4000000000000000 WHERE id % 3 = 0",
    ];
    let subject = changed(&each, &[]);
    let database = Database::open(&subject.database);
    let negative = [("region", "regions"), ("kernel_dispatch", "kernels"), ("memory_copy", "copies")].map(
        |(table, what)| {
            let count = database.number(&format!("SELECT count(*) FROM rocpd_{table} WHERE end < start"));
            assert!(count > 5, "{count} {what}");
            format!("{count} {what} that end before they begin")
        },
    );
    check(&subject, &["--split-by-time", "7"]);
    for format in ["perfetto", "chrome-json"] {
        let told = subject.drawn(&["--format", format, "--split-by-time", "7"]).success().stderr;
        for what in &negative {
            assert!(told.contains(what), "{what:?} is not in\n{told}");
        }
    }
}

#[test]
fn thousands_of_tracks_are_drawn() {
    const THREADS: usize = 5000;
    let job = DatabaseJob::new(&SyntheticRun { nodes: 1, ranks_per_node: 1, ..SyntheticRun::default() });
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
    let tracks: BTreeSet<_> = subject.drawing.spans.iter().map(|span| &span.key).collect();
    assert!(tracks.len() > THREADS, "{} tracks", tracks.len());
    check(&subject, &["--split-by-time", "3"]);
}
