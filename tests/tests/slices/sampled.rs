//! Samples: call stacks of threads, and the counters of a node.

use super::{Subject, chrome, rpd_merge};
use crate::system_metrics::collected_sleep;
use rpd_tests::databases::{DatabaseJob, change};
use rpd_tests::harness::Database;
use rpd_tests::synthetic::SyntheticRun;

/// Samples that are left out with `--exclude samples`, and with `--exclude counters`: none with a text or args of its own.
const LEFT_OUT: [(&str, &str); 2] = [
    ("samples", "e.call_stack <> '{}'"),
    ("counters", "e.call_stack = '{}' AND e.id IN (SELECT event_id FROM rocpd_pmc_event)"),
];
const SAYS_NOTHING: &str =
    "json_extract(e.extdata, '$.message') IS NULL AND e.id NOT IN (SELECT event_id FROM rocpd_arg)";

/// Compares slices in both formats, made with some options, with the database.
fn check(subject: &Subject, name: &str, options: &[&str]) {
    let sliced = |form: &str, more: &[&str]| {
        subject.sliced(rpd_merge(), &format!("{name}-{form}"), &[options, more].concat(), false)
    };
    let whole = sliced("whole", &["--split-by-time", "1"]);
    subject.check(&whole, &[&sliced("slices", &["--split-by-time", "7"])]);
    chrome::check(subject, &sliced("chrome", &["--format", "chrome-json", "--split-by-time", "3"]));
}

/// Databases with samples that have call stacks, of all forms that there are, counters, both, or neither.
fn sampled() -> Subject {
    let job = DatabaseJob::new(&SyntheticRun { nodes: 1, events_per_rank: 600, ..SyntheticRun::default() });
    // Most samples say nothing else: they are no marks.
    let plain = "UPDATE rocpd_event<uuid> SET extdata = '{}'
        WHERE id % 7 <> 0 AND id IN (SELECT event_id FROM rocpd_sample<uuid>)";
    let bare = "DELETE FROM rocpd_arg<uuid> WHERE event_id % 7 <> 0
        AND event_id IN (SELECT event_id FROM rocpd_sample<uuid>)";
    let deep: Vec<String> = (0..600).map(|depth| format!("\"level {depth}\"")).collect();
    let stacks = format!(
        r#"UPDATE rocpd_event<uuid> SET call_stack = CASE id % 5 WHEN 0 THEN '["kernel_launch", "step", "main"]'
            WHEN 1 THEN '{{"frames":[{{"depth":0,"name":"step"}},{{"depth":1,"name":"main"}}]}}'
            WHEN 2 THEN '[{{"function":"wait","file":"librun.so","pc":"0x7f0010"}},{{"name":"main","offset":7}}]'
            WHEN 3 THEN '[{}]' ELSE '{{}}' END
          WHERE id IN (SELECT event_id FROM rocpd_sample<uuid>)"#,
        deep.join(", ")
    );
    let values = "INSERT INTO rocpd_pmc_event<uuid> (event_id, pmc_id, value)
        SELECT event_id, (SELECT min(id) FROM rocpd_info_pmc<uuid>), event_id * 1.5 FROM rocpd_sample<uuid>
        WHERE event_id % 2 = 0";
    job.inputs.iter().for_each(|input| change(input, &[plain, bare, &stacks, values]));
    // And samples with a call stack that are of no thread.
    let of_nobody = "(SELECT max(track_id) FROM rocpd_sample<uuid>)";
    let statements = [
        format!(
            "UPDATE rocpd_event<uuid> SET call_stack = '[\"f\"]', extdata = '{{}}' WHERE id IN
                (SELECT event_id FROM rocpd_sample<uuid> WHERE track_id = {of_nobody})"
        ),
        format!(
            "DELETE FROM rocpd_arg<uuid> WHERE event_id IN
                (SELECT event_id FROM rocpd_sample<uuid> WHERE track_id = {of_nobody})"
        ),
        format!("UPDATE rocpd_track<uuid> SET tid = NULL WHERE id = {of_nobody}"),
    ];
    change(&job.inputs[0], &statements.each_ref().map(String::as_str));
    Subject::of(&job.inputs)
}

/// The track of samples of no thread.
const OF_NOBODY: &str = "roctxMark";

#[test]
fn recorded_call_stacks_are_drawn_where_their_thread_was() {
    let mut subject = sampled();
    let drawing = subject.drawing.clone();
    assert!(drawing.samples.len() > 20, "{} samples", drawing.samples.len());
    for stack in ["main;step;kernel_launch", "main;step", "main;wait", "level 511;level 510"] {
        assert!(drawing.samples.iter().any(|(.., found)| found.starts_with(stack)), "{stack}");
    }
    let of_nobody = drawing.spans.iter().filter(|span| span.key.1 == OF_NOBODY).count();
    assert!(of_nobody > 0);
    check(&subject, "all", &[]);

    let rows = LEFT_OUT.map(|(what, condition)| {
        let sql = format!(
            "SELECT count(*) FROM rocpd_sample s JOIN rocpd_event e ON e.id = s.event_id WHERE {condition} AND {SAYS_NOTHING}"
        );
        let rows = Database::open(&subject.database).number(&sql);
        assert!(rows > 5, "{rows} of {what}");
        let told = subject.drawn(&["--split-by-time", "3", "--exclude", what]).success().stderr;
        let line = format!("{rows} samples left out, as chosen");
        assert!(told.contains(&line), "{line:?} is not in\n{told}");
        rows
    });
    assert_eq!(rows[0], (drawing.samples.len() + of_nobody) as i64);
    let told = subject.drawn(&["--split-by-time", "3"]).success().stderr;
    assert!(!told.contains("left out") && told.contains("call stacks cut"), "{told}");

    subject.drawing.samples.clear();
    subject.drawing.spans.retain(|span| span.key.1 != OF_NOBODY);
    check(&subject, "samples", &["--exclude", "samples"]);
    subject.drawing = drawing;
    subject.drawing.values.clear();
    check(&subject, "counters", &["--exclude", "counters"]);
}

#[test]
fn counters_of_a_node_are_drawn_from_its_collector_to_its_slices() {
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::of(&[collected_sleep(folder.path())]);
    let names: Vec<&str> = subject.drawing.values.keys().map(|(_, name)| name.as_str()).collect();
    assert!(["cpu.user", "memory.used"].iter().all(|name| names.contains(name)), "{names:?}");
    let values: usize = subject.drawing.values.values().map(Vec::len).sum();
    assert_eq!(values as i64, Database::open(&subject.database).count("rocpd_pmc_event"));
    let whole = subject.sliced(rpd_merge(), "whole", &["--format", "perfetto"], false);
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "32"], false);
    assert_eq!(slices.files.len(), 32);
    subject.check(&whole, &[&slices]);
    let chrome = ["--format", "chrome-json", "--split-by-time", "5"];
    chrome::check(&subject, &subject.sliced(rpd_merge(), "chrome", &chrome, false));
    // Of the first one some counters cannot say anything yet, and perhaps none.
    let ticks = Database::open(&subject.database)
        .number("SELECT count(*) FROM rocpd_sample WHERE event_id IN (SELECT event_id FROM rocpd_pmc_event)");
    let told = subject.drawn(&["--format", "perfetto", "--exclude", "counters"]).success().stderr;
    assert!(told.contains(&format!("{ticks} samples left out, as chosen")), "{told}");
}
