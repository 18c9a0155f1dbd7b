//! The page that `rpd-report html` writes: what a browser shows of it, what it must not do, and its file.

use crate::report_verdict::{json, printed};
use rpd_tests::harness::{Job, PageBrowser, binary, repository, rpd_merge};
use rpd_tests::truth::{Scenario, ScenarioKind, ScenarioSize, write_scenario, write_scenario_with_counters};
use rusqlite::Connection;
use serde_json::{Value as Json, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Maximum size of a page of 16 ranks, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum time until a page of 16 ranks is complete, ms: 2 s, on a machine that runs other tests meanwhile 3 times that.
const MAX_MS: f64 = 6_000.0;
/// A name that would run a script and load a picture if it were markup.
const HOSTILE: &str =
    "</script><img src=x onerror=\"window.hacked = 1\"><script>window.hacked = 2</script><!-- {{script}}";

/// A stencil on two nodes in which this rank of 16 is slow.
const SLOW_RANK: u32 = 13;

fn slow_scenario() -> Scenario {
    let drawn = ScenarioSize::drawn(ScenarioKind::Stencil, 3);
    let size = ScenarioSize { ranks: 16, ranks_per_node: 8, subject: SLOW_RANK, steps: 60, ..drawn };
    Scenario::sized(ScenarioKind::Stencil, size)
}

/// Shards of that run.
fn slow_run(folder: &Path) -> PathBuf {
    write_scenario(&slow_scenario(), &[], folder).unwrap()
}

fn write_page(input: &Path, page: &Path, options: &[&str]) {
    let job = Job::new(binary("rpd-report")).args(["html", "-o"]).arg(page).args(options).arg(input);
    let _ = job.run().success();
}

fn texts(list: &Json) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_browser_shows_the_page_without_network_and_by_keyboard() {
    let Some(browser) = PageBrowser::find("the page of a report") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (run, page) = (slow_run(folder.path()), folder.path().join("report.html"));
    write_page(&run, &page, &[]);
    let size = page.metadata().unwrap().len();
    assert!(size < MAX_BYTES, "{size}");
    let pictures = repository().join("target/ci");
    fs::create_dir_all(&pictures).unwrap();
    let found = browser.uses(&page, &pictures.join("report-page"));
    assert_eq!(
        (&found["errors"], &found["problem"]),
        (&json!([]), &Json::Null),
        "a violation or an exception"
    );
    assert!(found["ms"].as_f64().unwrap() < MAX_MS, "{}", found["ms"]);

    // The verdict is that of the first screen, with links to what exists.
    let screen = printed(&[], &run);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let screen = squeezed(&screen);
    assert!(screen.contains(&squeezed(found["head"].as_str().unwrap())), "{}", found["head"]);
    let lines = found["lines"].as_array().unwrap();
    assert_eq!(lines[0][0], "SLOW");
    for line in lines {
        let text = format!("{} {}", line[0].as_str().unwrap(), line[1].as_str().unwrap());
        assert!(screen.contains(&squeezed(&text)), "{text} is not in {screen}");
    }
    assert_eq!(found["links"], true);
    assert!(texts(&found["labels"])[0].starts_with("range \""), "{}", found["labels"]);

    // The row of the slow rank has nearly all of the waiting.
    let matrix = found["matrix"].as_array().unwrap();
    let filled = |row: usize| texts(&matrix[row]).iter().filter(|text| !text.is_empty()).count();
    assert_eq!((matrix.len(), filled(13) > 10), (16, true), "{matrix:?}");

    // Every tab stop is visible.
    let tabs = found["tabs"].as_array().unwrap();
    assert_eq!(tabs[0][0], "Skip to the verdict");
    assert_eq!(tabs[11][0], "theme", "{tabs:?}");
    assert!(tabs.iter().all(|tab| tab[1] != "none"), "{tabs:?}");

    // Enter and Space sort.
    let ranks: Vec<String> = (0..16).map(|rank: u32| rank.to_string()).collect();
    assert_eq!(
        (texts(&found["ascending"]["cells"]), &found["ascending"]["sort"]),
        (ranks.clone(), &json!("ascending"))
    );
    let descending: Vec<String> = ranks.iter().rev().cloned().collect();
    assert_eq!(texts(&found["descending"]["cells"]), descending);
    assert_eq!(found["descending"]["sort"], "descending");
    let table = printed(&["blame"], &run);
    let row = table.lines().find(|line| line.trim_start().starts_with("13 ")).unwrap();
    let first = texts(&found["largest"]["cells"])[0].clone();
    assert!(row.contains(&format!(" {first} ")), "{first} is not in {row}");
    let filtered = texts(&found["filtered"]["cells"]);
    assert_eq!((filtered.len(), &found["filtered"]["count"]), (1, &json!("1 of 16 rows")));
    assert!(filtered[0].contains("rank 13"), "{filtered:?}");

    // The map is read by arrow keys, and has the same as a table.
    let readouts = texts(&found["readouts"]);
    assert!(readouts[0].starts_with("rank 0 on ") && readouts[0].contains(", 0 ns to "), "{readouts:?}");
    assert!(readouts[1].starts_with("rank 0 on ") && readouts[1] != readouts[0], "{readouts:?}");
    assert!(readouts[2].starts_with("rank 1 on ") && readouts[2].contains("waits "), "{readouts:?}");
    assert_eq!(
        (&json!(found["waitingLegend"].as_str().unwrap().starts_with("0 %")), &found["table"]),
        (&json!(true), &json!(16))
    );

    // Both themes, by the system and by the button, and print.
    let (white, dark) = (&json!("rgb(255, 255, 255)"), &json!("rgb(20, 23, 27)"));
    assert_eq!([&found["light"], &found["dark"]], [white, dark]);
    assert_eq!([&found["chosenLight"], &found["chosenDark"]], [white, dark]);
    let paper = json!(["rgb(255, 255, 255)", "none"]);
    assert_eq!((&found["print"], &found["pdf"]), (&json!([paper, paper]), &json!("%PDF-")));
}

#[test]
fn counters_of_the_named_node_are_beside_those_of_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario_with_counters(&slow_scenario(), SLOW_RANK, folder.path()).unwrap();
    let pages =
        ["report", "threads", "merged", "alone"].map(|name| folder.path().join(name).with_extension("html"));
    write_page(&run, &pages[0], &[]);
    write_page(&run, &pages[1], &["--threads", "1"]);
    let bytes = |page: &Path| fs::read(page).unwrap();
    assert!(bytes(&pages[0]) == bytes(&pages[1]), "the bytes depend on threads");
    let _ = rpd_merge().arg(&run).run().success();
    write_page(&run.join("trace.db"), &pages[2], &[]);
    let Some(browser) = PageBrowser::find("counters in a page") else { return };
    let found = browser.uses(&pages[0], &folder.path().join("counters"));
    assert_eq!(found["errors"], json!([]));
    let counters = &found["counters"];
    assert_eq!(browser.uses(&pages[2], &folder.path().join("merged"))["counters"], *counters);

    // The one that differs most is first, and the one that no other node has is last.
    let titles = ["cpu.user (%)", "gpu.power (W)", "memory.used (B)", "only.<b>here</b>"];
    assert_eq!(texts(&found["counterTitles"]), titles);
    let explained = counters["explained"].as_str().unwrap();
    assert!(explained.starts_with("Rank 13 is named by the verdict. "), "{explained}");
    assert!(explained.contains("Which GPU the rank uses is not recorded"), "{explained}");
    let rows: Vec<Vec<String>> = counters["rows"].as_array().unwrap().iter().map(texts).collect();
    let numbers = |row: usize| [3, 4, 5, 6].map(|column| rows[row][column].as_str());
    assert_eq!(numbers(0), ["50", "25", "1", "50.0 %"], "{rows:?}");
    assert_eq!(numbers(1), ["400", "300", "1", "25.0 %"], "{rows:?}");
    assert_eq!(numbers(2)[3], "0.0 %", "{rows:?}");
    assert_eq!(numbers(3), ["-1.5", "-", "0", "-"], "{rows:?}");
    assert!(rows[1][1].starts_with("GPU 0 (0000:c1:00.0) on "), "{rows:?}");
    let legends: Vec<Vec<String>> = counters["legends"].as_array().unwrap().iter().map(texts).collect();
    assert_eq!((legends[0][0].as_str(), legends[3].len()), ("the other node", 1), "{legends:?}");
    assert_eq!(texts(&counters["notes"]), ["No other node has this counter, so that there is no median."]);
    // Samples of the nodes are not at the same time, and each cell between two has a value: a curve has no gap.
    assert_eq!(counters["paths"], json!([1, 1, 1, 1, 1, 1, 1]));
    let readouts = texts(&counters["readouts"]);
    assert!(readouts[0].starts_with("0 ns to "), "{readouts:?}");
    assert!(readouts[1].contains(" 50 %; the other node 25 %"), "{readouts:?}");
    assert_eq!(counters["table"], "2,048 rows");

    // A node alone has no median.
    let host = rows[0][1].strip_prefix("node ").unwrap();
    write_page(&run, &pages[3], &["--nodes", host]);
    let alone = browser.uses(&pages[3], &folder.path().join("alone"));
    assert_eq!(alone["errors"], json!([]));
    assert!(texts(&alone["notes"]).iter().any(|note| note.starts_with("No other node has this counter")));
}

#[test]
fn hostile_names_stay_text() {
    let folder = tempfile::tempdir().unwrap();
    let (run, page) = (slow_run(folder.path()), folder.path().join("report.html"));
    let _ = rpd_merge().arg(&run).run().success();
    let database = run.join("trace.db");
    // Of few calls there is no such file.
    let _ = fs::remove_file(database.with_extension("calls"));
    let range = &json(&[], &database)["findings"][0]["label"]["name"];
    let connection = Connection::open(&database).unwrap();
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_string%'";
    let table: String = connection.query_row(sql, (), |row| row.get(0)).unwrap();
    let sql = format!("UPDATE \"{table}\" SET string = ?1 WHERE string = ?2");
    assert!(connection.execute(&sql, (HOSTILE, range.as_str().unwrap())).unwrap() > 0);
    drop(connection);
    write_page(&database, &page, &[]);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("onerror") && !text.contains("<img"), "the name is there, and no element");
    assert_eq!(text.matches("<script").count(), 3);
    let Some(browser) = PageBrowser::find("hostile names in a page") else { return };
    let found = browser.uses(&page, &folder.path().join("hostile"));
    assert_eq!((&found["errors"], &found["foreign"]), (&json!([]), &json!([0, 0, false])));
    assert!(texts(&found["labels"])[0].starts_with("range \"</script><img src=x"), "{}", found["labels"]);
}

#[test]
fn a_page_is_private_the_same_each_time_and_replaces_only_pages() {
    let folder = tempfile::tempdir().unwrap();
    let run = slow_run(folder.path());
    let pages = ["one.html", "two.html"].map(|name| folder.path().join(name));
    write_page(&run, &pages[0], &[]);
    write_page(&run, &pages[1], &["--threads", "1"]);
    let [one, two] = pages.each_ref().map(|page| fs::read(page).unwrap());
    assert!(one == two, "the bytes depend on threads or time");
    let place = folder.path().to_string_lossy().into_owned();
    assert!(!String::from_utf8(one.clone()).unwrap().contains(&place), "the page has a path of its input");
    assert_eq!(fs::metadata(&pages[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = |page: &Path, options: &[&str]| {
        let job = Job::new(binary("rpd-report")).args(["html", "-o"]).arg(page).args(options).arg(&run);
        let outcome = job.run();
        assert_eq!(outcome.code(), Some(5), "{outcome}");
        outcome.stderr
    };
    assert!(refused(&pages[0], &[]).contains("use --force to overwrite it"));
    write_page(&run, &pages[0], &["--force", "--top", "3"]);
    assert!(fs::read(&pages[0]).unwrap() != one);
    let (note, link) = (folder.path().join("note.html"), folder.path().join("link.html"));
    fs::write(&note, "<!DOCTYPE html>\n<p>mine</p>").unwrap();
    symlink(&note, &link).unwrap();
    for other in [&note, &link] {
        assert!(refused(other, &["--force"]).contains("no page of rpd-report"));
    }
    assert_eq!(fs::read_to_string(&note).unwrap(), "<!DOCTYPE html>\n<p>mine</p>");
    assert!(refused(&folder.path().join("none/page.html"), &[]).contains("cannot write"));
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| name.to_string_lossy().contains("html"));
    left.sort();
    assert_eq!(left, ["link.html", "note.html", "one.html", "two.html"], "no draft and no lock");
}

#[test]
fn a_part_without_records_says_how_to_record_it() {
    let Some(browser) = PageBrowser::find("a page with missing parts") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (run, page) = (slow_run(folder.path()), folder.path().join("report.html"));
    write_page(&run, &page, &["--window", "0..0.000001"]);
    let found = browser.uses(&page, &folder.path().join("empty"));
    assert_eq!(found["errors"], json!([]));
    let notes = texts(&found["notes"]);
    for part in [
        "No collectives are recorded. To record: ",
        "No kernels and copies are recorded. To record: ",
        "counters: no ",
    ] {
        assert!(notes.iter().any(|note| note.starts_with(part)), "{notes:?}");
    }
}
