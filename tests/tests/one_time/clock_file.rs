//! Offsets that a site measured.

use super::*;
use rpd_shard::record::ClockDomain;
use rpd_tests::synthetic::RUN_START;

const NAMESPACE: u64 = 77;

/// Node 1 is a time namespace of node 0, which has a space in its name.
fn two_clocks_of_a_host() -> Run {
    let mut run = SyntheticRun { probes: false, ..short(3, 1) }.plan();
    run.nodes[0].node.hostname = "gpu 000".to_owned();
    let boot_id = run.nodes[0].clock.domain.boot_id.clone();
    run.nodes[1].clock.domain = ClockDomain { boot_id, time_namespace: NAMESPACE };
    run.nodes[1].node = run.nodes[0].node.clone();
    run
}

/// What a site would write of a node: measured 100 s before the job, with a clock that goes as it does.
fn line(run: &Run, node: usize, name: &str, more: &str) -> String {
    let before = RUN_START - 100_000_000_000;
    let [at, reference] = [node, 0].map(|node| run.nodes[node].clock.local(before));
    let ppm = (run.nodes[node].clock.drift_ppb - run.nodes[0].clock.drift_ppb) as f64 / 1e3;
    format!("{name} offset={} at={at} error=500 drift_ppm={ppm} {more}\n", reference - at)
}

fn merged(run: &Run, text: &str) -> Merged {
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(run, &folder.path().join("in"), &everything(run));
    let file = folder.path().join("site.clocks");
    fs::write(&file, text).unwrap();
    merge(
        &folder.path().join("out.db"),
        &["--align", "none", "--clock-file", file.to_str().unwrap()],
        &inputs,
    )
}

#[test]
fn a_name_of_two_clocks_moves_none_and_the_names_that_are_told_instead_do() {
    let run = two_clocks_of_a_host();
    let boot = &run.nodes[0].clock.domain.boot_id;
    let merged_by = |reference: &str, name: &str| {
        let lines = line(&run, 1, name, "drift_error_ppm=0.1") + &line(&run, 2, "gpu002", "");
        merged(&run, &format!("reference {reference}\n{lines}"))
    };
    // Whose the name is cannot be known: once as the reference, once as a node.
    let own = format!("{boot}/{}", run.nodes[0].clock.domain.time_namespace);
    let other = format!("{boot}/{NAMESPACE}");
    let nothing = merged_by("\"gpu 000\"", &other);
    assert!(
        nothing.stderr.contains("\"gpu 000\" fits 2 clocks of this job: nothing of the file was used"),
        "{}",
        nothing.stderr
    );
    let some = merged_by(&own, "\"gpu 000\"");
    for (merged, moved) in [(&nothing, 0), (&some, 1)] {
        assert!(merged.stderr.contains(&own) && merged.stderr.contains(&other), "{}", merged.stderr);
        let rows = merged.report["clocks"].as_array().unwrap();
        let by_file = rows.iter().filter(|row| row["method"] == "clock_file");
        assert_eq!(by_file.count(), moved, "{}", merged.stderr);
        assert!(rows.iter().all(|row| row["bar_ns"] != 0 || row["method"] == "reference"), "{rows:?}");
    }

    let all = merged_by(&own, &other);
    let rows = all.report["clocks"].as_array().unwrap();
    // 100 s and half of the run after the measurement.
    for (rank, namespace, ppm) in
        [(&run.ranks[1], NAMESPACE, 0.1), (&run.ranks[2], run.nodes[2].clock.domain.time_namespace, 20.0)]
    {
        let boot_id = &run.nodes[rank.node].clock.domain.boot_id;
        let row =
            rows.iter().find(|row| row["boot_id"] == *boot_id && row["time_namespace"] == namespace).unwrap();
        assert_eq!(row["method"], "clock_file");
        let bar = row["bar_ns"].as_i64().unwrap();
        let grown = (bar - 500) as f64 / (ppm * 1e3);
        assert!((100.0..110.0).contains(&grown), "{row}");
        let off = worst(&errors(&run, rank, 0, &all.database));
        assert!(off <= 500 + (ppm * 1e3 * 110.0) as i64 && off < 3_000, "{off} {row}");
    }
}

#[test]
fn the_reference_is_not_moved_and_what_is_not_of_the_job_is_told_in_one_line() {
    let run = SyntheticRun { probes: false, ..short(2, 1) }.plan();
    let text = "reference gpu000\ngpu000 offset=5\nlogin offset=1\n\"an other\" offset=2\n";
    let merged = merged(&run, &format!("{text}{}", line(&run, 1, "gpu001", "")));
    assert_eq!((merged.method("gpu000"), merged.method("gpu001")), ("reference", "clock_file"));
    assert!(
        merged.stderr.contains("clock file, line 2: gpu000 is the reference, which is not moved"),
        "{}",
        merged.stderr
    );
    let line = "the clock file names 2 nodes that are not in this job: \"an other\", login\n";
    assert!(merged.stderr.contains(line), "{}", merged.stderr);
    assert_eq!(worst(&errors(&run, &run.ranks[0], 0, &merged.database)), 0);
}

#[test]
fn a_file_that_is_wrong_shows_in_collectives_that_were_left_too_early() {
    let run = SyntheticRun { probes: false, ..short(3, 1) }.plan();
    let of = |ahead: i64| {
        let before = RUN_START - 100_000_000_000;
        let [at, reference] = [1, 0].map(|node| run.nodes[node].clock.local(before));
        let text = format!("reference gpu000\ngpu001 offset={} at={at} error=500\n", reference - at + ahead);
        merged(&run, &(text + &line(&run, 2, "gpu002", "")))
    };
    let violations = |merged: &Merged, host: &str| merged.number(host, "violations");
    let (right, wrong) = (of(0), of(1_000_000_000));
    assert_eq!(violations(&right, "gpu000"), 0, "{}", right.stderr);
    assert!(violations(&wrong, "gpu000") > 20, "{}", wrong.stderr);
    assert!(violations(&wrong, "gpu002") > 20, "{}", wrong.stderr);
    let cells: Vec<&str> = right.line("gpu001").split("  ").filter(|cell| !cell.is_empty()).collect();
    assert!(cells.iter().any(|cell| cell.trim() == "not known"), "the drift is not told: {cells:?}");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = short(2, 1).plan();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let file = folder.path().join("site.clocks");
    let out = folder.path().join("out.db");
    for (text, words) in [
        ("reference gpu000\ngpu001 offset=1 offset=2\n", "line 2: offset is there twice"),
        ("reference gpu000\ngpu001 offset=0 at=5\ngpu001 offset=-9 at=10\n", "line 3: with line 2 the time"),
        ("reference gpu000\ngpu001 offset=1 at=1 drift_ppm=inf\n", "line 2: "),
        ("gpu001 offset=1\n", "add `reference NODE`"),
    ] {
        fs::write(&file, text).unwrap();
        let outcome = merging(&out, &["--clock-file", file.to_str().unwrap()]).args(&inputs).run();
        rpd_tests::harness::assert_refused(&outcome, 2, &["site.clocks", words]);
        assert!(!out.exists());
    }
    // Probes know better, and it is said that the file was not needed.
    fs::write(&file, format!("reference gpu000\n{}", line(&run, 1, "gpu001", ""))).unwrap();
    let merged = merge(&out, &["--clock-file", file.to_str().unwrap()], &inputs);
    assert_eq!(merged.method("gpu001"), "fusion");
    assert!(
        merged.stderr.contains("the clock file was not used for 1 clock that probes or collectives align"),
        "{}",
        merged.stderr
    );
}
