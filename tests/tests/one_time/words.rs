//! What a user reads.

use super::plain::PlainJob;
use super::*;
use std::collections::BTreeSet;

fn merged(job: &PlainJob, arguments: &[&str]) -> Merged {
    let folder = tempfile::tempdir().unwrap();
    let inputs = job.shards(&folder.path().join("in"), &|rank| Some(job.seen(rank)));
    merge(&folder.path().join("out.db"), arguments, &inputs)
}

#[test]
fn of_several_communicators_each_has_its_late_rank() {
    // A pipeline of two stages, each of three ranks on three of the nodes; nobody calls anything with all.
    let stages = |rank| if rank % 2 == 0 { "stage 0" } else { "stage 1" };
    let job = PlainJob { comm: stages, late: Some(4), ..PlainJob::new(6, 30, 100_000_000) };
    let merged = merged(&job, &[]);
    assert_eq!(merged.report["collectives"]["matched"], 2 * 299, "{}", merged.stderr);
    let late = &merged.report["late_ranks"][0];
    // Start-up goes to the first collective of all ranks, and there is none; before the first one own time is not known.
    assert_eq!((&late["rank"], &late["collectives"]), (&4.into(), &299.into()));
    // Those that make 95 % of it.
    assert!(late["last"].as_u64().unwrap() > 200, "{late}");
    let share = late["waited_share"].as_f64().unwrap();
    assert!((0.3..0.8).contains(&share), "{share}");
    // They wait for 0.4 ms in 100.
    assert!(merged.stderr.contains("waiting    ranks waited "), "{}", merged.stderr);
    // In the other stage, no rank is late more often than by chance.
    let others = merged.report["late_ranks"].as_array().unwrap();
    assert!(others[1..].iter().all(|late| late["rank"].as_u64().unwrap() % 2 == 1), "{}", merged.stderr);
}

#[test]
fn without_collectives_clocks_go_by_probes_and_nobody_is_called_late() {
    let job = PlainJob::new(3, 20, 0);
    let merged = merged(&job, &[]);
    assert_eq!(merged.method("gpu002"), "probes");
    assert!(
        merged
            .stderr
            .contains("waiting    cannot tell which rank entered last: no collectives were recorded\n")
    );
    assert_eq!(merged.report["late_ranks"], Value::Array(Vec::new()));
    assert_eq!(
        merged.stderr.matches("\nbound      times are off by no more than").count(),
        1,
        "{}",
        merged.stderr
    );
    let (bar, drift) =
        (merged.number("gpu001", "bar_ns"), merged.clock("gpu001")["drift_ppm"].as_f64().unwrap());
    assert!((1_000..10_000).contains(&bar));
    let line = merged.line("gpu001");
    assert!(line.contains(&format!("  {drift:+.3} +- ")), "{line}");
    assert!(line.contains(&format!("  {:.1} us  ", bar as f64 / 1e3)), "{line}");
    assert!(line.contains("  probes (") && line.ends_with(" bursts)"), "{line}");
    assert!(merged.line("gpu000").ends_with("  reference, times unchanged"), "{}", merged.stderr);
}

#[test]
fn what_was_asked_for_is_said_to_be_the_reason() {
    let job = PlainJob::new(2, 10, 500_000_000);
    let lines = [
        ("none", "gpu001 (rank 1): not aligned, as --align none says; times unchanged"),
        ("anchors", "  not known        10 ms  wall clocks, as exact as NTP"),
    ];
    for (by, line) in lines {
        let merged = merged(&job, &["--align", by]);
        assert!(merged.stderr.contains(line), "{}", merged.stderr);
        assert_eq!(
            (&merged.report["align"], &merged.database.metadata()["rpd.clock.align"][0]),
            (&by.into(), &by.to_owned())
        );
    }
    let job = PlainJob::new(2, 10, 0);
    let merged = merged(&job, &["--align", "collectives"]);
    let line = "gpu001 (rank 1): no collectives reach it, or too few: not aligned, times unchanged and not comparable with others";
    assert!(merged.stderr.contains(line), "{}", merged.stderr);
}

#[test]
fn a_drawing_names_those_that_need_a_look_and_counts_the_others() {
    let job = PlainJob::new(70, 12, 1_000_000_000);
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("clocks.svg");
    let _ = merged(&job, &["--clock-plot", svg.to_str().unwrap()]);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(
        drawn.contains("Clocks against that of gpu000 (rank 0): offset beside its straight line"),
        "{drawn}"
    );
    assert!(drawn.contains("and 45 more"), "24 of 69 have a color");
    assert_eq!(drawn.matches(" (rank ").count(), 2 + 24);
}

#[test]
fn rows_of_the_table_stand_below_their_heads() {
    for nodes in [2, 16, 24] {
        let merged = merged(&PlainJob::new(nodes, 12, 500_000_000), &[]);
        let lines: Vec<&str> = merged.stderr.lines().filter(|line| line.starts_with("clock ")).collect();
        assert_eq!(lines.len() as u32, 1 + nodes, "{}", merged.stderr);
        let words = lines[0].find("aligned by").unwrap();
        let after_offset = lines[0].find("offset (ns)").unwrap() + "offset (ns)".len();
        for line in &lines[1..] {
            assert_eq!(&line[words - 2..words], "  ", "{}", merged.stderr);
            assert!(line[words..].starts_with(['r', 'p']), "{}", merged.stderr);
        }
        for line in &lines[2..] {
            assert!(line[..after_offset].ends_with(|c: char| c.is_ascii_digit()), "{}", merged.stderr);
        }
    }
}

#[test]
fn the_drift_is_as_exact_as_it_says() {
    let job = PlainJob::new(24, 60, 500_000_000);
    let merged = merged(&job, &[]);
    let drift = |node: usize| job.run.nodes[node].clock.drift_ppb as f64 / 1e3;
    let mut inside = 0;
    for node in 1..24 {
        let row = merged.clock(&job.run.nodes[node].node.hostname);
        let [told, bar] = ["drift_ppm", "drift_bar_ppm"].map(|what| row[what].as_f64().unwrap());
        inside += usize::from((told - (drift(node) - drift(0))).abs() <= bar);
        assert!(bar < 1.0, "{row}");
    }
    assert!(inside >= 20, "{inside} of 23: {}", merged.report["clocks"]);
    assert!(merged.clock("gpu000")["drift_bar_ppm"].is_null());
}

/// Of a report, the names of what it tells of clocks and of ranks.
fn names_in(report: &Value, names: &mut BTreeSet<String>) {
    for part in ["clocks", "late_ranks", "lateness", "collectives", "repaired"] {
        let (rows, list) = match &report[part] {
            Value::Array(rows) => (rows.as_slice(), "[]"),
            one => (std::slice::from_ref(one), ""),
        };
        let of = |row: &Value| -> Vec<String> {
            let columns = row.as_object().into_iter().flat_map(|object| object.keys());
            // What only one verdict has is documented with the verdict.
            let columns = columns.filter(|column| part != "lateness" || *column != "reason");
            columns.map(|column| format!("{part}{list}.{column}")).collect()
        };
        names.extend(rows.iter().flat_map(of));
    }
    names.extend(
        ["align", "collective_faults", "collectives_not_used"]
            .iter()
            .filter(|n| !report[**n].is_null())
            .map(|n| n.to_string()),
    );
}

#[test]
fn what_the_json_says_of_clocks_is_documented_name_by_name() {
    let job = PlainJob { late: Some(1), ..PlainJob::new(3, 12, 500_000_000) };
    let folder = tempfile::tempdir().unwrap();
    let inputs = job.shards(&folder.path().join("in"), &|rank| Some(job.seen(rank)));
    let out = |name: &str| folder.path().join(name);
    let mut printed = BTreeSet::new();
    names_in(&merge(&out("1.db"), &["--repair-causality"], &inputs[..2]).report, &mut printed);
    names_in(&merge(&out("2.db"), &[], &[out("1.db"), inputs[2].clone()]).report, &mut printed);
    let docs =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/REFERENCE.md")).unwrap();
    let (_, table) = docs.split_once("### Clocks and late ranks in `--json`").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let names = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<String> = names.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(printed, documented);
}

#[test]
fn options_that_former_merges_do_not_heed_are_named() {
    let job = PlainJob::new(3, 12, 500_000_000);
    let folder = tempfile::tempdir().unwrap();
    let inputs = job.shards(&folder.path().join("in"), &|rank| Some(job.seen(rank)));
    let out = |name: &str| folder.path().join(name);
    let clocks = out("clocks");
    fs::write(&clocks, "reference gpu000\ngpu001 offset=5\n").unwrap();
    let _ = merge(&out("1.db"), &["--align", "probes"], &inputs);
    let svg = out("clocks.svg");
    let options = ["--align", "anchors", "--repair-causality", "--clock-file", clocks.to_str().unwrap()];
    let plot = ["--clock-plot", svg.to_str().unwrap()];
    let again = merge(&out("2.db"), &[&options[..], &plot].concat(), &[out("1.db")]);
    let note = "note       --align, --repair-causality and --clock-file have no effect on times of ";
    assert_eq!(again.stderr.matches(note).count(), 1, "{}", again.stderr);
    assert_eq!(again.report["align"], "probes", "what was done stays told");
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("Merged before: its clocks are not measured again"), "{drawn}");
    assert!(drawn.contains("gpu001 (rank 1)"), "{drawn}");
    let plain = merge(&out("2.db"), &[], &[out("1.db")]);
    assert!(!plain.stderr.contains("no effect"), "{}", plain.stderr);
    let one = merge(&out("2.db"), &["--repair-causality"], &[out("1.db")]);
    assert!(
        one.stderr.contains("note       --repair-causality has no effect on times of "),
        "{}",
        one.stderr
    );
}
