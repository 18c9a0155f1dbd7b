//! The node's counters, from a collector through a merge to the query that docs/REFERENCE.md gives.

use rpd_tests::harness::{Database, Job, binary, repository, rpd_merge};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The first SQL block of a page.
fn documented_query() -> String {
    let page = std::fs::read_to_string(repository().join("docs/REFERENCE.md")).unwrap();
    let (_, behind) = page.split_once("```sql\n").unwrap();
    behind.split_once("```").unwrap().0.trim_end().trim_end_matches(';').to_owned()
}

/// Counters that every node has.
const EVERYWHERE: [&str; 6] =
    ["cpu.idle", "cpu.iowait", "cpu.system", "cpu.user", "memory.swap_used", "memory.used"];

/// Records `sleep` on this node; returns the run folder, which is below `folder`.
pub(crate) fn collected_sleep(folder: &Path) -> PathBuf {
    let runs = folder.join("runs");
    // No other collector of this run is on the node, or that one might sample.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run_id = format!("metrics-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let launchers =
        ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RPD_RUN_ID", "RPD_OUTPUT"];
    let collect = Job::new(binary("rpd-collect")).limit(Duration::from_secs(60)).arg("-o").arg(&runs);
    let collect = launchers.iter().fold(collect, |job, name| job.without_env(name));
    let _ = collect.args(["--run-id", &run_id, "--", "sleep", "2.5"]).run().success();
    runs.join(run_id)
}

#[test]
fn a_merged_run_has_a_time_series_for_each_counter() {
    let folder = tempfile::tempdir().unwrap();
    let run = collected_sleep(folder.path());
    let path = folder.path().join("trace.db");
    let _ = rpd_merge().args(["--strict", "-o"]).arg(&path).arg(run).run().success();

    let database = Database::open(&path);
    database.assert_sound();
    assert_eq!(database.rows("PRAGMA foreign_key_check"), Vec::<Vec<String>>::new());
    let query = documented_query();
    let values = database.number(&format!("SELECT count(*) FROM ({query})"));
    assert!(values > 0);
    assert_eq!(values, database.count("rocpd_pmc_event"), "the query has every value once");

    let ticks = database.count("rocpd_sample");
    assert!((15..=30).contains(&ticks), "{ticks} ticks");
    // Per counter: values, distinct times, time between the first and the last.
    let series = database.rows(&format!(
        "SELECT counter, count(*), count(DISTINCT timestamp), max(timestamp) - min(timestamp), min(value)
           FROM ({query}) GROUP BY agent, counter"
    ));
    let mut spans = BTreeMap::new();
    for row in &series {
        let [name, values, times, span, lowest] = row.as_slice() else { panic!("{row:?}") };
        let number = |text: &String| text.parse::<f64>().unwrap();
        assert_eq!(values, times, "{row:?}");
        assert!((2.0..=ticks as f64).contains(&number(values)), "once a second at least: {row:?}");
        assert!(number(lowest) >= 0.0 || name.contains("temperature"), "{row:?}");
        spans.insert(name.trim_matches('\'').to_owned(), number(span));
    }
    for name in EVERYWHERE {
        assert!((1e9..4e9).contains(&spans[name]), "{name}: {spans:?}");
    }
    let page = std::fs::read_to_string(repository().join("docs/REFERENCE.md")).unwrap();
    for name in EVERYWHERE {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table of counters");
    }
    let period = "SELECT json_extract(extdata, '$.rpd.period_ms') FROM rocpd_event ORDER BY id LIMIT 2";
    assert_eq!(database.rows(period), [["100"], ["NULL"]]);
}
