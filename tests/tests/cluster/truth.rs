//! Merged times against the true ones.

use rpd_tests::cluster::{MergedJob, Run, SlurmCluster};
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
    pub(crate) method: String,
    /// Estimated minus true offset in the middle of the run, ns.
    pub(crate) error: i64,
    /// `None` where nothing is certain.
    pub(crate) hard: Option<i64>,
    /// The error bar of the merge, ns: about 95 of 100 errors are smaller.
    pub(crate) bar: i64,
    /// ppm; the truth is what the test made it.
    pub(crate) drift: f64,
}

/// All nodes with a shard but the reference.
pub(crate) fn offsets(cluster: &SlurmCluster, merged: &MergedJob, reference: usize) -> Vec<Offset> {
    let others = (0..cluster.ahead.len()).filter(|node| *node != reference && merged.has(*node));
    let offset = |node: usize| {
        let row = merged.clock(node);
        let offset = Offset {
            method: merged.method(node).to_owned(),
            error: row["offset_ns"].as_i64().unwrap() - (cluster.truth(reference) - cluster.truth(node)),
            hard: row["hard_ns"].as_i64(),
            bar: row["bar_ns"].as_i64().unwrap(),
            drift: row["drift_ppm"].as_f64().unwrap(),
        };
        eprintln!("n{node}: {offset:?}");
        offset
    };
    others.map(offset).collect()
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

/// Job times of all regions as they were merged, and as they were.
pub(crate) struct Times {
    merged: BTreeMap<i64, Region>,
    true_ones: BTreeMap<i64, Region>,
}

impl Times {
    /// A merge without alignment has the times as the nodes' clocks showed them, and rows in the same order.
    pub(crate) fn new(cluster: &SlurmCluster, run: &Run, merged: &MergedJob, reference: usize) -> Times {
        let nodes = cluster.ahead.len();
        let shown = run.merge("as-shown", &["--align", "none"]);
        let mut true_ones = regions(&Database::open(shown.path()));
        let merged = regions(&Database::open(merged.path()));
        assert!(!merged.is_empty());
        let ranks = |regions: &BTreeMap<i64, Region>| -> Vec<(i64, usize)> {
            regions.iter().map(|(id, region)| (*id, region.rank)).collect()
        };
        assert_eq!(ranks(&merged), ranks(&true_ones));
        let ahead: Vec<i64> = (0..nodes).map(|node| cluster.truth(node) - cluster.truth(reference)).collect();
        for region in true_ones.values_mut() {
            region.start -= ahead[region.rank % nodes];
            region.end -= ahead[region.rank % nodes];
        }
        Times { merged, true_ones }
    }

    /// The largest distance of any time of a rank from the truth, ns.
    pub(crate) fn worst(&self, rank: usize) -> i64 {
        let of_rank =
            self.merged.values().zip(self.true_ones.values()).filter(|(merged, _)| merged.rank == rank);
        let errors = of_rank.flat_map(|(merged, real)| [merged.start - real.start, merged.end - real.end]);
        errors.map(i64::abs).max().unwrap()
    }

    /// The calls of an MPI function: what each rank did, as merged and in truth.
    pub(crate) fn calls(&self, merged: &MergedJob, function: &str) -> Vec<Vec<(Region, Region)>> {
        let rows = Database::open(merged.path()).rows(&format!(
            "SELECT a.value, r.id FROM rocpd_arg a JOIN regions r ON r.event_id = a.event_id
              WHERE a.name = 'seq' AND r.name = '{function}'"
        ));
        let mut calls: BTreeMap<String, Vec<(Region, Region)>> = BTreeMap::new();
        for row in rows {
            let id: i64 = row[1].parse().unwrap();
            calls.entry(row[0].clone()).or_default().push((self.merged[&id], self.true_ones[&id]));
        }
        calls.into_values().collect()
    }
}
