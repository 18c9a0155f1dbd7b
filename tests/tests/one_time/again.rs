//! What was merged is not aligned again, and what was measured stays known.

use super::*;
use rpd_tests::synthetic::write_rocpd;
use std::collections::BTreeMap;

const ROWS: &str =
    "SELECT id, start, end FROM rocpd_region UNION ALL SELECT id, start, end FROM rocpd_kernel_dispatch";

fn tags(database: &Database) -> BTreeMap<String, Vec<String>> {
    let mut tags = database.metadata();
    tags.retain(|tag, _| tag.starts_with("rpd."));
    tags
}

#[test]
fn merged_alone_nothing_changes_and_all_words_stay() {
    let run = short(3, 2).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let out = |name: &str| folder.path().join(name);
    let first = merge(&out("1.db"), &["--align", "anchors", "--repair-causality"], &inputs);
    assert!(!first.report["late_ranks"].as_array().unwrap().is_empty());
    for (from, to, by) in
        [("1.db", "2.db", "auto"), ("2.db", "3.db", "collectives"), ("1.db", "4.db", "none")]
    {
        let again = merge(&out(to), &["--align", by, "--repair-causality"], &[out(from)]);
        assert_eq!(first.database.rows(ROWS), again.database.rows(ROWS));
        let processes = "SELECT extdata FROM rocpd_info_process ORDER BY id";
        assert_eq!(first.database.rows(processes), again.database.rows(processes));
        assert_eq!(tags(&first.database), tags(&again.database));
        for what in ["clocks", "late_ranks", "lateness", "collectives", "repaired"] {
            assert_eq!(first.report[what], again.report[what]);
        }
        let line = |merged: &Merged| {
            let mut lines: Vec<String> = merged.stderr.lines().map(str::to_owned).collect();
            lines.retain(|line| {
                ["clock ", "late ", "waiting ", "matched "].iter().any(|label| line.starts_with(label))
            });
            lines
        };
        assert_eq!(line(&first), line(&again));
        assert!(!again.stderr.contains("previous merges are not compared again"), "{}", again.stderr);
    }
}

#[test]
fn a_partitioned_merge_is_not_aligned_again_either() {
    let run = short(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let out = |name: &str| folder.path().join(name);
    let open = |outcome: JobOutcome| {
        (outcome.stderr.clone(), serde_json::from_str::<Value>(&outcome.stdout).unwrap())
    };
    let arguments = ["--layout", "partitioned", "--align", "anchors"];
    let (_, first) = open(merging(&out("1.db"), &arguments).args(&inputs).run().success());
    let starts = "SELECT start, end FROM rocpd_region ORDER BY 1, 2";
    let database = Database::open(&out("1.db"));
    for layout in ["partitioned", "merged"] {
        let arguments = ["--layout", layout, "--align", "collectives"];
        let (stderr, again) = open(merging(&out("2.db"), &arguments).arg(out("1.db")).run().success());
        assert_eq!(first["clocks"], again["clocks"], "{stderr}");
        assert_eq!(database.rows(starts), Database::open(&out("2.db")).rows(starts), "{layout}");
    }
}

#[test]
fn beside_others_a_merge_keeps_its_times_and_its_words_and_whose_clock_it_is_in_is_told() {
    let run = short(4, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let first = merge(&out("1.db"), &[], &inputs[..3]);
    // Another node: of one input nothing is known of its clock, of the other all.
    let database = write_rocpd(&run, &folder.path().join("late")).unwrap().pop().unwrap();
    let notes =
        ["its times stay in the clock of gpu000", "all others are in that of gpu003, and it is unknown"];
    for (late, note) in [database, inputs[3].clone()].iter().zip(notes) {
        merged_beside(&run, &out, &first, late, note);
    }
}

/// Merges `1.db` and another input, and what comes of it again.
fn merged_beside(run: &Run, out: &dyn Fn(&str) -> PathBuf, first: &Merged, late: &Path, note: &str) {
    let second = merge(&out("2.db"), &[], &[out("1.db"), late.to_owned()]);
    let third = merge(&out("3.db"), &[], &[out("2.db")]);
    assert_eq!(second.database.rows(ROWS), third.database.rows(ROWS));
    assert_eq!(tags(&second.database), tags(&third.database));
    let guid = &first.database.metadata()["guid"][0];
    for merged in [&second, &third] {
        for rank in 0..3 {
            let [before, after] =
                [first, merged].map(|merged| errors(run, &run.ranks[rank], 0, &merged.database));
            assert_eq!(before, after, "rank {rank}");
        }
        assert_eq!(worst(&errors(run, &run.ranks[3], 3, &merged.database)), 0, "its times stay, too");
        for host in ["gpu000", "gpu001", "gpu002"] {
            let mut row = merged.clock(host).clone();
            assert_eq!(row["former_merge"], *guid);
            row.as_object_mut().unwrap().remove("former_merge");
            assert_eq!(row, *first.clock(host));
        }
        let former = &merged.tag("rpd.former_merges")[0];
        assert_eq!((&former["guid"], &former["reference"]), (&Value::from(guid.as_str()), &"gpu000".into()));
        assert_eq!(former["late_ranks"], first.report["late_ranks"]);
        assert_eq!(former["realtime_minus_boottime_ns"], first.tag("rpd.clock.realtime_minus_boottime_ns"));
    }
    assert!(second.line("gpu001").ends_with(" in a previous merge"), "{}", second.stderr);
    assert!(second.stderr.contains(note), "{}", second.stderr);
}

#[test]
fn merges_of_two_clocks_are_told_apart_however_often_they_are_merged() {
    let run = short(4, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let _ = merge(&out("1.db"), &[], &inputs[..2]);
    let _ = merge(&out("2.db"), &[], &inputs[2..]);
    let both = merge(&out("3.db"), &[], &[out("1.db"), out("2.db")]);
    for (name, host) in [("1.db", "gpu000 (rank 0)"), ("2.db", "gpu002 (rank 2)")] {
        let path = out(name);
        let words = format!(
            "{} was merged before: its times stay in the clock of {host}, and it is unknown how far",
            path.display()
        );
        assert!(both.stderr.contains(&words), "{}", both.stderr);
    }
    assert!(!both.stderr.contains("no collectives were recorded"), "{}", both.stderr);
    let words =
        "in the clocks of gpu000 (rank 0) and gpu002 (rank 2), and it is unknown how far they are apart";
    let again = merge(&out("4.db"), &[], &[out("3.db")]);
    let beside = merge(
        &out("5.db"),
        &[],
        &[out("3.db"), write_rocpd(&run, &folder.path().join("bare")).unwrap().remove(0)],
    );
    for merged in [again, beside] {
        assert_eq!(merged.stderr.matches(words).count(), 1, "{}", merged.stderr);
    }
}

#[test]
fn shards_of_the_reference_of_a_merge_fit_to_it() {
    // Of node 0 one rank was merged, and the other one and all of node 2 come later.
    let run = short(3, 2).plan();
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let _ = merge(&out("1.db"), &[], &[inputs[0].clone(), inputs[2].clone()]);
    let later = [out("1.db"), inputs[5].clone(), inputs[1].clone(), inputs[4].clone()];
    let second = merge(&out("2.db"), &[], &later);
    assert_eq!(second.database.metadata()["rpd.clock.reference"], ["gpu000"]);
    assert!(second.stderr.contains("in the clock of gpu000 too"), "{}", second.stderr);
    for rank in [0, 1, 2, 4, 5] {
        let off = worst(&errors(&run, &run.ranks[rank], 0, &second.database));
        assert!(off < if run.ranks[rank].node == 0 { 1 } else { 50_000 }, "rank {rank}: {off}");
    }
}

#[test]
fn nodes_of_a_merged_rpd_have_one_clock_if_they_were_aligned_and_else_that_is_said() {
    let run = short(3, 1).plan();
    let folder = tempfile::tempdir().unwrap();
    let inputs = shards(&run, &folder.path().join("in"), &everything(&run));
    let told = |align: &str| {
        let rpd = folder.path().join(format!("{align}.rpd"));
        let arguments = ["--format", "rpd", "--align", align];
        let _ = merging(&rpd, &arguments).args(&inputs).run().success();
        merge(&folder.path().join("out.db"), &[], &[rpd])
    };
    let aligned = told("auto");
    assert_eq!(
        aligned.stderr.matches("\nclock      one clock, of unknown-").count(),
        1,
        "{}",
        aligned.stderr
    );
    let not_aligned = told("none");
    let words = "): of a merged .rpd that does not say that its nodes have one time: times unchanged, and maybe not comparable";
    assert_eq!(not_aligned.stderr.matches(words).count(), 1, "{}", not_aligned.stderr);
    assert!(!not_aligned.stderr.contains("record with rpd-collect"), "{}", not_aligned.stderr);
}
