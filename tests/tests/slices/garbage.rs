//! What no clock shows and what is no number is told, and the rest is drawn.

use super::{rpd_merge, synthetic};
use rpd_tests::databases::change;
use rpd_tests::harness::{Database, TraceProcessor};

const SLICES: &str = "SELECT count(*) FROM slice WHERE dur >= 0 AND category IS NOT 'rpd_file'";

#[test]
fn times_of_no_clock_and_values_that_are_no_numbers_are_told() {
    let subject = synthetic(200);
    change(
        &subject.database,
        &[
            "UPDATE rocpd_region<uuid> SET start = -9223372036854775808 WHERE id = 5",
            "UPDATE rocpd_region<uuid> SET end = 9223372036854775807 WHERE id = 6",
            "UPDATE rocpd_kernel_dispatch<uuid> SET start = 'soon' WHERE id = 3",
            "UPDATE rocpd_pmc_event<uuid> SET value = 'abc' WHERE id % 2 = 0",
        ],
    );
    let count = |sql: &str| Database::open(&subject.database).number(sql);
    let garbled = count("SELECT count(*) FROM rocpd_pmc_event WHERE typeof(value) = 'text'");
    assert!(garbled > 10, "{garbled}");
    let slices = ["region", "kernel_dispatch", "memory_copy", "memory_allocate"]
        .map(|table| count(&format!("SELECT count(*) FROM rocpd_{table}")));
    for (name, format) in [("perfetto", "perfetto"), ("chrome", "chrome-json")] {
        let whole = subject.sliced(rpd_merge(), name, &["--format", format, "--split-by-time", "1"], true);
        let told = &whole.index["not_drawn"];
        let rows = |what: &str| {
            told[format!("{what} without a time, or with one that no clock shows: not drawn")].as_i64()
        };
        assert_eq!((rows("regions"), rows("kernel")), (Some(2), Some(1)), "{told}");
        assert_eq!(
            told["values of counters that are no numbers: drawn as gaps"].as_i64(),
            Some(garbled),
            "{told}"
        );
        let path = &whole.files[0].0;
        if format == "perfetto" {
            for tp in TraceProcessor::all("slices of odd times") {
                let [shown] = tp.each(std::slice::from_ref(path), [SLICES]).remove(0);
                let expected = slices.iter().sum::<i64>() - 3;
                let instants = whole.index["files"][0]["events"]["instants"].as_i64().unwrap();
                assert_eq!(shown[0][0].as_i64(), Some(expected + instants), "{}", tp.version());
            }
        }
    }
}
