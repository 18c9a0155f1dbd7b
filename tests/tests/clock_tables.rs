//! One time for all nodes: what a merge says of the clocks is true, and it moves no more than it has to.

use rpd_shard::record::ClockDomain;
use rpd_tests::databases::DatabaseJob;
use rpd_tests::harness::{Database, JobOutcome, RunFolder, rpd_merge};
use rpd_tests::synthetic::{RUN_START, Run, SyntheticRun, write_rocpd, write_shard};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Three nodes for some seconds, with a collective every 20 ms.
pub(crate) fn three_nodes() -> SyntheticRun {
    SyntheticRun {
        events_per_rank: 9_000,
        nodes: 3,
        ranks_per_node: 1,
        max_drift_ppb: 20_000,
        max_anchor_error: 3_000_000,
        ..SyntheticRun::default()
    }
}

fn merge(out: &Path, arguments: &[&str], inputs: &[PathBuf]) -> JobOutcome {
    rpd_merge().args(["--force", "--json", "-o"]).arg(out).args(arguments).args(inputs).run().success()
}

fn report(outcome: &JobOutcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// The row of a host.
fn clock<'a>(report: &'a Value, host: &str) -> &'a Value {
    let rows = report["clocks"].as_array().unwrap();
    rows.iter().find(|row| row["hosts"][0] == host).unwrap()
}

/// What has to be added to times of node 1 in the middle of the run.
fn true_offset(run: &Run) -> i64 {
    let middle = RUN_START + run.length() / 2;
    run.nodes[0].clock.local(middle) - run.nodes[1].clock.local(middle)
}

/// Writes the shards of a run, in which all clocks of node 1 are ahead by so much.
fn shards(run: &Run, folder: &Path, ahead: i64) -> Vec<PathBuf> {
    fs::create_dir_all(folder).unwrap();
    let mut run = run.clone();
    run.nodes[1].clock.offset += ahead;
    let write = |rank: &rpd_tests::synthetic::ModelRank| {
        let path = folder.join(format!("rank-{:05}.rpdshard", rank.rank));
        write_shard(&run, rank, File::create(&path).unwrap()).unwrap();
        path
    };
    run.ranks.iter().map(write).collect()
}

#[test]
fn collectives_find_the_offset_that_anchors_miss() {
    let run = three_nodes().plan();
    let folder = RunFolder::new(&three_nodes());
    let out = folder.beside("out.db");
    let told = |by: &str| {
        let report = report(&merge(&out, &["--align", by], std::slice::from_ref(&folder.path)));
        let row = clock(&report, "gpu001").clone();
        let off = (row["offset_ns"].as_i64().unwrap() - true_offset(&run)).abs();
        (off, row["bar_ns"].as_i64(), row["method"].as_str().unwrap().to_owned(), report)
    };
    let (off, bar, method, report) = told("auto");
    assert_eq!(method, "collectives");
    assert!(off < 100_000 && off <= bar.unwrap(), "{off} {bar:?}");
    let row = clock(&report, "gpu001");
    assert!(row["collectives"].as_u64().unwrap() > 10, "{row}");
    assert!(row["hard_ns"].as_i64().unwrap() >= off, "{row}");
    let (_, bar, method, _) = told("anchors");
    assert_eq!(method, "realtime_anchors");
    assert!(bar.unwrap() >= 1_000_000);
    for nothing in ["none", "probes"] {
        let (_, bar, method, report) = told(nothing);
        assert_eq!(
            (bar, method.as_str(), clock(&report, "gpu001")["offset_ns"].as_i64()),
            (None, "none", Some(0))
        );
    }

    // What the summary says is in the database, too.
    let outcome = merge(&out, &[], std::slice::from_ref(&folder.path));
    assert!(outcome.stderr.contains("clock      gpu000 (rank 0) "), "{}", outcome.stderr);
    let database = Database::open(&out);
    let domains: Value = serde_json::from_str(&database.metadata()["rpd.clock.domains"][0]).unwrap();
    assert_eq!(domains, self::report(&outcome)["clocks"]);
    let methods =
        "SELECT DISTINCT json_extract(extdata, '$.rpd.clock.method') FROM rocpd_info_process ORDER BY 1";
    assert_eq!(database.rows(methods), [["'collectives'"], ["'reference'"]]);
    // Ranks leave a collective within a few microseconds, and so they do in the database.
    let apart = "SELECT max(end) - min(end) FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id
                  JOIN rocpd_arg a ON a.event_id = r.event_id AND a.name = 'seq'
                 WHERE s.string IN ('MPI_Allreduce', 'MPI_Barrier') AND a.value > 2 GROUP BY a.value";
    let apart: Vec<i64> = database.rows(apart).iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(apart.len() > 10 && apart.iter().all(|ns| *ns < 100_000), "{apart:?}");
}

#[test]
fn a_run_on_one_node_keeps_every_time() {
    let config = SyntheticRun { nodes: 1, ranks_per_node: 2, ..three_nodes() };
    let (run, folder) = (config.plan(), RunFolder::new(&config));
    let plain = folder.beside("plain.db");
    for by in ["auto", "none"] {
        let out = folder.beside(&format!("{by}.db"));
        let outcome = merge(&out, &["--align", by, "--repair-causality"], std::slice::from_ref(&folder.path));
        assert!(
            outcome.stderr.contains("one clock, of gpu000 (ranks 0-1): times unchanged"),
            "{}",
            outcome.stderr
        );
    }
    let times =
        "SELECT id, start, end FROM rocpd_region UNION ALL SELECT id, start, end FROM rocpd_kernel_dispatch";
    let [auto, none] =
        ["auto", "none"].map(|by| Database::open(&folder.beside(&format!("{by}.db"))).rows(times));
    assert_eq!(auto, none);
    let _ = merge(&plain, &[], std::slice::from_ref(&folder.path));
    let began = Database::open(&plain).rows("SELECT DISTINCT start FROM rocpd_info_process");
    assert_eq!(began, [[run.nodes[0].clock.local(RUN_START).to_string()]]);
}

#[test]
fn a_shift_of_one_node_moves_its_estimate_by_as_much_and_no_other() {
    let config = three_nodes();
    let run = config.plan();
    let folder = tempfile::tempdir().unwrap();
    let ahead = 86_400_000_000_123;
    let told = |ahead: i64| {
        let inputs = shards(&run, &folder.path().join(ahead.to_string()), ahead);
        report(&merge(&folder.path().join("out.db"), &[], &inputs))
    };
    let (before, after) = (told(0), told(ahead));
    let offset = |report: &Value, host: &str| clock(report, host)["offset_ns"].as_i64().unwrap();
    assert_eq!(offset(&after, "gpu001"), offset(&before, "gpu001") - ahead);
    for host in ["gpu000", "gpu002"] {
        assert_eq!(clock(&before, host), clock(&after, host));
    }
    assert_eq!(clock(&before, "gpu001")["bar_ns"], clock(&after, "gpu001")["bar_ns"]);
    assert_eq!(before["late_ranks"], after["late_ranks"]);
}

#[test]
fn the_order_of_inputs_changes_nothing_and_a_merge_is_not_aligned_again() {
    let run = three_nodes().plan();
    let folder = tempfile::tempdir().unwrap();
    let mut inputs = shards(&run, &folder.path().join("in"), 0);
    let out = |name: &str| folder.path().join(name);
    let _ = merge(&out("a.db"), &[], &inputs);
    inputs.reverse();
    let _ = merge(&out("b.db"), &["--threads", "1"], &inputs);
    assert!(fs::read(out("a.db")).unwrap() == fs::read(out("b.db")).unwrap(), "the databases differ");
    let outcome = merge(&out("again.db"), &["--align", "collectives"], &[out("a.db")]);
    let (first, again) = (merge(&out("a.db"), &[], &inputs), report(&outcome));
    assert_eq!(report(&first)["clocks"], again["clocks"], "what was measured stays known");
    let times = "SELECT id, start, end FROM rocpd_region ORDER BY id";
    assert_eq!(Database::open(&out("a.db")).rows(times), Database::open(&out("again.db")).rows(times));
}

#[test]
fn bare_databases_are_aligned_by_their_regions_or_by_a_file() {
    let run = three_nodes().plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = write_rocpd(&run, &folder.path().join("in")).unwrap();
    let out = folder.path().join("out.db");
    let outcome = merge(&out, &[], &inputs);
    let aligned = report(&outcome);
    let row = clock(&aligned, "gpu001");
    let off = (row["offset_ns"].as_i64().unwrap() - true_offset(&run)).abs();
    assert_eq!(row["method"], "collectives", "{}", outcome.stderr);
    assert!(off < 100_000 && off <= row["bar_ns"].as_i64().unwrap(), "{off} {row}");

    // Without them, by what the site knows; the file's reference may be any node.
    let file = folder.path().join("clocks");
    let measured = run.nodes[0].clock.local(RUN_START) - run.nodes[1].clock.local(RUN_START);
    let at = run.nodes[1].clock.local(RUN_START);
    let drift = (run.nodes[1].clock.drift_ppb - run.nodes[0].clock.drift_ppb) as f64 / 1e3;
    let text = format!(
        "# measured\nreference gpu000\ngpu001 offset={measured} at={at} drift_ppm={drift} drift_error_ppm=0 error=500\ngpu009 offset=1\n"
    );
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let outcome = merge(&out, &["--align", "none", "--clock-file", file], &inputs);
    let by_file = report(&outcome);
    let row = clock(&by_file, "gpu001");
    assert_eq!((row["method"].as_str(), row["bar_ns"].as_i64()), (Some("clock_file"), Some(500)));
    assert!((row["offset_ns"].as_i64().unwrap() - measured).abs() < 5_000, "{row}");
    assert!(outcome.stderr.contains("names 1 node that is not in this job: gpu009"), "{}", outcome.stderr);
    // What is better is kept.
    let outcome = merge(&out, &["--clock-file", file], &inputs);
    assert_eq!(clock(&report(&outcome), "gpu001"), clock(&aligned, "gpu001"));

    fs::write(file, "reference gpu000\ngpu001 ofset=3\n").unwrap();
    let failed = rpd_merge().args(["--force", "--clock-file", file, "-o"]).arg(&out).args(&inputs).run();
    assert_eq!(failed.code(), Some(2), "{failed}");
    assert!(failed.stderr.contains("line 2"), "{failed}");
}

#[test]
fn nothing_known_is_said_to_be_nothing() {
    // Too few collectives to align by.
    let job = DatabaseJob::small();
    let outcome = job.merge(&["--json"]).success();
    assert!(
        outcome.stderr.contains(": nothing is known of its clock; times unchanged"),
        "{}",
        outcome.stderr
    );
    assert_eq!(clock(&report(&outcome), "gpu001")["offset_ns"], 0);
}

#[test]
fn clocks_are_drawn_and_nobody_else_may_see_them() {
    let folder = RunFolder::new(&three_nodes());
    let svg = folder.beside("clocks.svg");
    let (out, path) = (folder.beside("out.db"), svg.to_str().unwrap());
    let _ = merge(&out, &["--clock-plot", path], std::slice::from_ref(&folder.path));
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("gpu001") && is_xml(&drawn), "{drawn}");
    assert_eq!(fs::metadata(&svg).unwrap().permissions().mode() & 0o777, 0o600);
    let failed = rpd_merge()
        .args(["--force", "--clock-plot", "/nowhere/a.svg", "-o"])
        .arg(&out)
        .arg(&folder.path)
        .run();
    assert_eq!(failed.code(), Some(5), "{failed}");
}

#[test]
fn a_drawing_takes_the_place_of_nothing_but_drawings() {
    let folder = RunFolder::new(&three_nodes());
    let shard = fs::read_dir(&folder.path).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let (out, svg) = (folder.beside("out.db"), folder.beside("clocks.svg"));
    let (victim, link) = (folder.beside("victim"), folder.beside("link.svg"));
    fs::write(&victim, "<svg a drawing").unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    let before = fs::read(&shard).unwrap();
    let try_it = |plot: &std::path::Path, more: &[&str]| {
        let merging = rpd_merge().args(more).arg("--clock-plot").arg(plot).arg("-o").arg(&out);
        merging.arg(&folder.path).run()
    };
    for more in [&[][..], &["--force"], &["--dry-run"]] {
        for place in [&shard, &out, &link, &folder.path] {
            let outcome = try_it(place, more);
            assert_eq!(outcome.code(), Some(5), "{place:?} {more:?} {outcome}");
        }
        assert!(!out.exists());
    }
    assert_eq!(fs::read(&shard).unwrap(), before);
    assert_eq!(fs::read(&victim).unwrap(), b"<svg a drawing");
    let _ = try_it(&svg, &["--dry-run"]).success();
    assert!(svg.exists() && !out.exists());
    assert_eq!(try_it(&svg, &[]).code(), Some(5), "without --force");
    let _ = try_it(&svg, &["--force"]).success();
    let beside = fs::read_dir(folder.beside(".")).unwrap().filter_map(Result::ok);
    assert_eq!(beside.filter(|entry| entry.file_name().to_string_lossy().contains("partial")).count(), 0);
}

/// Whether every element that begins ends, in order.
fn is_xml(text: &str) -> bool {
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else { return false };
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or("");
        match (tag.starts_with('/'), tag.ends_with('/') || tag.starts_with(['?', '!'])) {
            (true, _) if open.pop() != Some(name) => return false,
            (false, false) => open.push(name),
            _ => {}
        }
    }
    open.is_empty()
}

#[test]
fn processes_of_two_time_namespaces_of_a_node_are_two_domains() {
    // A node with its second rank in another time namespace: its collectives align it.
    let config = three_nodes();
    let mut run = config.plan();
    let boot = run.nodes[0].clock.domain.boot_id.clone();
    run.nodes[1].clock.domain = ClockDomain { boot_id: boot.clone(), time_namespace: 77 };
    run.nodes[1].node = run.nodes[0].node.clone();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, folder.path(), 0);
    let told = report(&merge(&folder.path().join("out.db"), &[], &inputs));
    let rows = told["clocks"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{told}");
    assert_eq!(
        (rows[0]["method"].as_str(), rows[1]["method"].as_str()),
        (Some("reference"), Some("collectives"))
    );
    let off = (rows[1]["offset_ns"].as_i64().unwrap() - true_offset(&run)).abs();
    assert!(off < 100_000, "{off}");
}
