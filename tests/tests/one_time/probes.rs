//! Shards with probes become one time.

use super::*;

#[test]
fn probes_and_collectives_bring_all_nodes_to_the_clock_of_the_first_within_the_bar() {
    let run = probed(5, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    for (by, method) in [("auto", "fusion"), ("probes", "probes"), ("collectives", "collectives")] {
        let merged = merge(&folder.path().join("out.db"), &["--align", by], &inputs);
        assert_eq!(merged.method("gpu000"), "reference");
        assert_eq!(worst(&errors(&run, &run.ranks[0], 0, &merged.database)), 0);
        for rank in &run.ranks[1..] {
            let host = &run.nodes[rank.node].node.hostname;
            assert_eq!(merged.method(host), method, "{}", merged.stderr);
            let errors = errors(&run, rank, 0, &merged.database);
            let [bar, hard] = ["bar_ns", "hard_ns"].map(|what| merged.number(host, what));
            let inside = errors.iter().filter(|error| error.abs() <= bar).count();
            let clock = merged.clock(host);
            assert!(inside * 10 >= errors.len() * 9, "{inside} of {} by {by}: {clock}", errors.len());
            assert!(
                worst(&errors) <= hard && bar <= hard && bar < 20_000,
                "{} by {by}: {clock}",
                worst(&errors)
            );
            let bursts = if by == "collectives" { 0 } else { 3 };
            let used = [merged.number(host, "probes") >= bursts, merged.number(host, "collectives") > 50];
            assert_eq!(used, [true, by != "probes"], "{clock}");
        }
    }
}

#[test]
fn drift_is_found_to_a_part_per_million() {
    let run = probed(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    merged.database.assert_sound();
    for node in 1..3 {
        let [own, first] = [node, 0].map(|node: usize| run.nodes[node].clock.drift_ppb as f64 / 1e3);
        let told = merged.clock(&run.nodes[node].node.hostname)["drift_ppm"].as_f64().unwrap();
        assert!((told - (own - first)).abs() < 1.0, "{told} ppm, {own} against {first}");
    }
}

#[test]
fn what_is_told_of_the_clocks_is_the_same_everywhere() {
    let run = probed(3, 2).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let merged = merge(&folder.path().join("out.db"), &[], &inputs);
    assert_eq!(merged.tag("rpd.clock.domains"), merged.report["clocks"]);
    assert_eq!(merged.tag("rpd.late_ranks"), merged.report["late_ranks"]);
    let sql = "SELECT json_extract(extdata, '$.rpd.host'), json_extract(extdata, '$.rpd.clock') FROM rocpd_info_process";
    let rows = merged.database.rows(sql);
    assert_eq!(rows.len(), 6);
    for row in rows {
        let noted: Value = serde_json::from_str(row[1].trim_matches('\'')).unwrap();
        let clock = merged.clock(row[0].trim_matches('\''));
        for what in ["method", "offset_ns", "drift_ppm", "bar_ns"] {
            assert_eq!(noted[what], clock[what], "{noted} {clock}");
        }
    }
    // What turns job times into wall time.
    let anchor = merged.tag("rpd.clock.realtime_minus_boottime_ns").as_i64().unwrap();
    let first = &run.nodes[0].clock;
    let at = rpd_tests::synthetic::RUN_START;
    assert!((anchor - (first.wall(at) - first.local(at))).abs() < 200_000, "{anchor}");
}
