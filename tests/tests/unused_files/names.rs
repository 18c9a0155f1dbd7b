//! How the ledger and `--json` name files: below the folder of the inputs, and each by a text of its own.

use super::{KINETO, Place, assert_accounted, database, files, not_used, report};
use rpd_tests::harness::{Database, JobOutcome, assert_refused, rpd_merge, skip};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The files of the ledger in `--json`, and in the database.
fn ledger(outcome: &JobOutcome, output: &Path) -> Vec<String> {
    let of = |losses: &Json| -> Vec<String> {
        losses.as_array().unwrap().iter().map(|row| row["file"].as_str().unwrap().to_owned()).collect()
    };
    let names = of(&report(outcome)["losses"]);
    let stored = Database::open(output).metadata()["rpd.losses"][0].clone();
    assert_eq!(of(&serde_json::from_str(&stored).unwrap()), names, "{outcome}");
    assert!(!stored.contains(output.parent().unwrap().to_str().unwrap()), "an absolute path: {stored}");
    names
}

#[test]
fn files_of_equal_names_are_losses_of_their_own() {
    let place = Place::new();
    place.write("node0/trace.json", KINETO);
    for node in ["node1", "node2"] {
        place.write(&format!("{node}/trace.json"), "");
    }
    place.write("node2/deep/trace.json", KINETO);
    place.write("node1/config.json", "{}");
    let outcome = place.merge(&["--json"]).success();
    assert_accounted(&report(&outcome), &files(&place.input()));
    let names = ["node1/trace.json", "node2/deep", "node2/trace.json"];
    assert_eq!(ledger(&outcome, &place.output()), names);
    let deep = "deep holds 1 file that looks like a profile and is not looked into, since it lies 2 levels below the input";
    assert!(outcome.stderr.contains(deep), "{outcome}");
    assert_refused(&place.merge(&["--strict"]), 3, &["trace.json"]);
    // The folders themselves as inputs: as much of their paths as differs.
    let outcome = rpd_merge()
        .args(["--force", "--json", "-o"])
        .arg(place.output())
        .args(["node0", "node1", "node2"].map(|node| place.input().join(node)))
        .run()
        .success();
    assert_eq!(ledger(&outcome, &place.output()), ["node1/trace.json", "node2/trace.json"]);
}

#[test]
fn names_that_are_no_utf_8_are_escaped_each_in_its_own_way() {
    let place = Place::new();
    place.write("good.json", KINETO);
    let odd: [&[u8]; 3] = [b"a\xff.json", b"a\xfe.json", b"a\\xff.json"];
    for name in odd {
        fs::write(place.input().join(OsStr::from_bytes(name)), if name[1] == b'\\' { "" } else { KINETO })
            .unwrap();
    }
    let below = place.input().join(OsStr::from_bytes(b"n\xc3"));
    fs::create_dir(&below).unwrap();
    fs::write(below.join("x.json"), KINETO).unwrap();
    fs::write(place.input().join(OsStr::from_bytes(b"notes\xff.txt")), "").unwrap();
    let outcome = place.merge(&["--json"]).success();
    assert_eq!(ledger(&outcome, &place.output()), ["a\\x5cxff.json", "a\\xfe.json", "a\\xff.json", "n\\xc3"]);
    let report = report(&outcome);
    let input = place.input();
    let named: BTreeSet<String> = not_used(&report)
        .iter()
        .map(|(path, _)| path.strip_prefix(&input).unwrap().to_str().unwrap().to_owned())
        .collect();
    let wanted = ["a\\x5cxff.json", "a\\xfe.json", "a\\xff.json", "n\\xc3/x.json", "notes\\xff.txt"];
    assert_eq!(named, wanted.map(str::to_owned).into());
    assert_eq!(files(&input).len(), named.len() + 1);
    assert!(outcome.stderr.contains("a\\xff.json has a name that is not UTF-8"), "{outcome}");
    assert_refused(&place.merge(&["--strict"]), 3, &["a\\"]);
}

#[test]
fn what_cannot_be_read_is_named_with_its_cause() {
    let place = Place::new();
    place.write("good.json", KINETO);
    place.write("closed/trace.json", KINETO);
    database(&place.input().join("trace.db"), super::SONGS);
    let close = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o0)).unwrap();
    close(&place.input().join("closed"));
    close(&place.input().join("trace.db"));
    let Some(job) = place.job_of_other_user() else {
        return skip("unreadable folders", "setpriv cannot make another user here");
    };
    let job = || job.clone().args(["--json", "--force", "-o"]);
    let outcome = job().arg(place.output_of_other_user()).arg(place.input()).run().success();
    let output = place.output_of_other_user();
    assert_eq!(ledger(&outcome, &output), ["closed", "trace.db"]);
    let report = report(&outcome);
    let reasons = not_used(&report);
    let of = |name: &str| &reasons.iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
    assert!(
        of("closed").contains("cannot be listed") && of("closed").contains("Permission denied"),
        "{report}"
    );
    assert!(of("trace.db").contains("cannot be read"), "{report}");
    // As an output, too.
    let over = job().arg(place.input().join("trace.db")).arg(place.input().join("good.json")).run();
    assert_refused(&over, 5, &["trace.db cannot be read (Permission denied"]);
}
