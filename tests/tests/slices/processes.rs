//! Processes are called by rank and node, and say which number the system gave them, where.

use super::read::typed;
use super::{rpd_merge, synthetic};
use rpd_tests::harness::{Database, TraceProcessor};

const LABELS: &str = "SELECT extract_arg(arg_set_id, 'chrome.process_label[0]') FROM process
    WHERE name LIKE 'rank %' ORDER BY 1";

/// Ranks and their workers have equal numbers there.
#[test]
fn processes_keep_the_numbers_that_they_had() {
    let subject = synthetic(200);
    let expected = Database::open(&subject.database).rows(
        "SELECT 'process ' || p.pid || ' on ' || n.hostname FROM rocpd_info_process p
        JOIN rocpd_info_node n ON n.id = p.nid WHERE p.id IN (SELECT pid FROM rocpd_region) ORDER BY 1",
    );
    let expected: Vec<String> =
        expected.iter().flatten().map(|label| label.trim_matches('\'').to_owned()).collect();
    assert!(expected.len() > 3, "{expected:?}");
    let whole = subject.sliced(rpd_merge(), "whole", &["--split-by-time", "1"], true);
    let plain = whole.unpacked().0;
    for tp in TraceProcessor::all("labels of processes") {
        let [labels] = tp.each(&plain, [LABELS]).remove(0);
        let labels: Vec<String> = typed::<(String,)>(labels).into_iter().map(|(label,)| label).collect();
        assert_eq!(labels, expected, "{}", tp.version());
    }
}
