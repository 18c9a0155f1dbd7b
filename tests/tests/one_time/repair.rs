//! `--repair-causality` where clocks are known to be off.

use super::*;

/// Wall clocks that are up to 3 ms off, of which the merge knows that they may be 10 ms off.
fn merged(arguments: &[&str], run: &Run, folder: &Path) -> Merged {
    let inputs = shards(run, &folder.join("in"), &everything(run));
    merge(&folder.join("out.db"), &[&["--align", "anchors"], arguments].concat(), &inputs)
}

fn violations(merged: &Merged) -> i64 {
    merged.report["clocks"].as_array().unwrap().iter().map(|row| row["violations"].as_i64().unwrap()).sum()
}

/// When the dispatches of a rank begin, in the order in which they truly do.
fn in_true_order(run: &Run, rank: &ModelRank, merged: &Merged) -> Vec<i64> {
    let reference = &run.nodes[0].clock;
    let errors = errors(run, rank, 0, &merged.database);
    let rows = run.rows(&rank.processes[0]);
    let mut truth: Vec<i64> = rows.of(rocpd::KERNEL_DISPATCH).iter().filter_map(|row| began(row)).collect();
    truth.sort_unstable();
    truth.iter().zip(errors).map(|(at, error)| reference.local(*at) + error).collect()
}

#[test]
fn effects_follow_causes_as_far_as_the_bar_allows() {
    let run = probed(4, 2).plan();
    let folder = tempfile::tempdir().unwrap();
    let before = merged(&[], &run, folder.path());
    let (found, off) =
        (violations(&before), run.ranks.iter().map(|r| worst(&errors(&run, r, 0, &before.database))));
    let off = off.max().unwrap();
    assert!(found > 100 && off > 500_000, "{found} {off}: {}", before.stderr);
    assert!(
        before.report["repaired"].is_null() && !before.database.metadata().contains_key("rpd.clock.repair")
    );

    let after = merged(&["--repair-causality"], &run, folder.path());
    let repair = &after.report["repaired"];
    assert_eq!(repair["before"], found, "{}", after.stderr);
    assert_eq!(repair["after"], violations(&after));
    assert!(violations(&after) * 4 <= found, "{repair}");
    assert_eq!(after.tag("rpd.clock.repair"), *repair);
    let [first, left] = [found, violations(&after)].map(|n| rpd_console::wording::counted(n as u64, "time"));
    let left = if violations(&after) == 0 { "never".to_owned() } else { left };
    let told =
        format!("at most: ranks left a collective before others came {first} before that, and {left} now");
    assert!(after.stderr.contains(&told), "{}", after.stderr);

    let moved = repair["moved_ns"].as_i64().unwrap();
    for rank in &run.ranks {
        let host = &run.nodes[rank.node].node.hostname;
        let [old, new] = [&before, &after].map(|merged| in_true_order(&run, rank, merged));
        let bar = after.number(host, "bar_ns");
        let most = old.iter().zip(&new).map(|(old, new)| (old - new).abs()).max().unwrap();
        assert!(
            most <= moved && (rank.node == 0 || moved <= bar + 1),
            "{host}: {most} of {moved}, bar {bar}"
        );
        assert!(new.is_sorted(), "{host}");
        assert_eq!(before.clock(host)["method"], after.clock(host)["method"]);
        if rank.node == 0 {
            assert!(old == new, "the reference does not move");
        }
    }
    // It does not become worse than it was: collectives know better than NTP.
    let off_after =
        run.ranks.iter().map(|rank| worst(&errors(&run, rank, 0, &after.database))).max().unwrap();
    assert!(off_after <= off, "{off_after} {off}");
}

#[test]
fn a_bar_that_is_too_small_is_kept_to_and_what_is_left_is_told() {
    // Measured by hand, 2 ms off, and said to be right to 0.3 ms.
    let run = probed(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let clocks = folder.path().join("clocks");
    let line = |node: usize, off: i64| {
        let at = run.nodes[node].clock.local(rpd_tests::synthetic::RUN_START);
        let offset = run.nodes[0].clock.local(rpd_tests::synthetic::RUN_START) - at + off;
        format!("gpu{node:03} offset={offset} at={at} error=300000 drift_ppm=0 drift_error_ppm=0\n")
    };
    fs::write(&clocks, format!("reference gpu000\n{}{}", line(1, 2_000_000), line(2, 100_000))).unwrap();
    let file = clocks.to_str().unwrap();
    // With `none` there are no collectives either: anchors, which a measurement replaces.
    let arguments = ["--align", "anchors", "--clock-file", file, "--repair-causality"];
    let merged = merge(&folder.path().join("out.db"), &arguments, &inputs);
    assert_eq!(merged.method("gpu001"), "clock_file");
    let repair = &merged.report["repaired"];
    assert!(repair["before"].as_i64().unwrap() > 20, "{}", merged.stderr);
    assert!(repair["after"].as_i64().unwrap() > 20, "{}", merged.stderr);
    assert!(repair["moved_ns"].as_i64().unwrap() <= 300_000, "{repair}");
    let left = merged.number("gpu000", "violations") + merged.number("gpu002", "violations");
    assert!(left + merged.number("gpu001", "violations") == repair["after"].as_i64().unwrap());
    assert!(
        merged.stderr.contains("times its ranks left a collective before others came"),
        "{}",
        merged.stderr
    );
}

#[test]
fn where_all_is_in_order_nothing_moves() {
    let run = probed(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let out = |name: &str| folder.path().join(name);
    let plain = merge(&out("a.db"), &[], &inputs);
    let repaired = merge(&out("b.db"), &["--repair-causality"], &inputs);
    assert_eq!(violations(&plain), 0, "{}", plain.stderr);
    assert_eq!(
        repaired.report["repaired"],
        serde_json::json!({ "before": 0, "after": 0, "out_of_reach": 0, "moved_ns": 0 })
    );
    assert!(repaired.stderr.contains("no rank left a collective before others came: no time was moved"));
    let starts = "SELECT id, start, end FROM rocpd_region ORDER BY id";
    assert_eq!(plain.database.rows(starts), repaired.database.rows(starts));
}
