//! Merged times against the true ones.

use super::rig::{Cluster, Merged, Run};
use rpd_tests::harness::Database;
use std::collections::BTreeMap;

/// One region of one rank, in job time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) rank: usize,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// What the merge says of a node, compared with what is so.
#[derive(Debug)]
pub(crate) struct Offset {
    pub(crate) node: usize,
    pub(crate) method: String,
    /// Estimated minus true offset in the middle of the run, ns.
    pub(crate) error: i64,
    pub(crate) bar: i64,
    /// `None` where nothing is certain.
    pub(crate) hard: Option<i64>,
    /// ppm; the truth is what the test made it.
    pub(crate) drift: f64,
}

/// All nodes but the reference.
pub(crate) fn offsets(cluster: &Cluster, merged: &Merged, reference: usize) -> Vec<Offset> {
    let nodes = (0..cluster.ahead.len()).filter(|node| *node != reference);
    let offset = |node: usize| {
        let row = merged.clock(node);
        let offset = Offset {
            node,
            method: merged.method(node).to_owned(),
            error: row["offset_ns"].as_i64().unwrap() - (cluster.truth(reference) - cluster.truth(node)),
            bar: row["bar_ns"].as_i64().unwrap(),
            hard: row["hard_ns"].as_i64(),
            drift: row["drift_ppm"].as_f64().unwrap(),
        };
        eprintln!("{offset:?}");
        offset
    };
    nodes.map(offset).collect()
}

/// Regions by their ids, as they are in a database.
fn regions(database: &Database) -> BTreeMap<i64, Region> {
    let rows = database.rows(
        "SELECT r.id, json_extract(p.extdata, '$.rpd.rank'), r.start, r.\"end\"
           FROM rocpd_region r JOIN rocpd_info_process p ON p.id = r.pid",
    );
    let region = |row: &Vec<String>| {
        let number = |at: usize| row[at].parse::<i64>().unwrap();
        (number(0), Region { rank: number(1) as usize, start: number(2), end: number(3) })
    };
    rows.iter().map(region).collect()
}

/// The largest distance of any merged time from the truth, ns, by node. A merge without alignment has the times as the
/// nodes' clocks showed them, and rows in the same order.
pub(crate) fn worst_errors(cluster: &Cluster, run: &Run, merged: &Merged, reference: usize) -> Vec<i64> {
    let nodes = cluster.ahead.len();
    let shown = run.merge("as-shown", &["--align", "none"]);
    let (shown, merged) = (Database::open(shown.path()), Database::open(merged.path()));
    let (shown, merged) = (regions(&shown), regions(&merged));
    assert!(!merged.is_empty());
    assert!(merged.keys().eq(shown.keys()));
    let ahead: Vec<i64> = (0..nodes).map(|node| cluster.truth(node) - cluster.truth(reference)).collect();
    let mut worst = vec![0; nodes];
    for (shown, merged) in shown.values().zip(merged.values()) {
        let node = shown.rank % nodes;
        assert_eq!(shown.rank, merged.rank);
        for (shown, merged) in [(shown.start, merged.start), (shown.end, merged.end)] {
            worst[node] = worst[node].max((merged - (shown - ahead[node])).abs());
        }
    }
    eprintln!("largest error of any time, ns, by node: {worst:?}");
    worst
}

/// The calls of an MPI function, each with what its ranks did.
pub(crate) fn calls(merged: &Merged, function: &str) -> Vec<Vec<Region>> {
    let database = Database::open(merged.path());
    let rows = database.rows(&format!(
        "SELECT a.value, r.id FROM rocpd_arg a JOIN regions r ON r.event_id = a.event_id
          WHERE a.name = 'seq' AND r.name = '{function}'"
    ));
    let regions = regions(&database);
    let mut calls: BTreeMap<String, Vec<Region>> = BTreeMap::new();
    for row in rows {
        calls.entry(row[0].clone()).or_default().push(regions[&row[1].parse().unwrap()]);
    }
    calls.into_values().collect()
}
