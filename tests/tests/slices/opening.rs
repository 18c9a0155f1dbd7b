//! Opening a trace: instructions, and serving it to the browser of its user alone.

use super::{Subject, rpd_merge};
use rpd_tests::harness::{OpenedBy, PerfettoUi, RunFolder, mpi_missing, repository, rpd_merge_mpi, skip};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

fn subject() -> Subject {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 40, ..SyntheticRun::default() });
    Subject::of(std::slice::from_ref(&run.path))
}

#[test]
fn instructions_for_opening_a_trace_are_printed() {
    let subject = subject();
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "3"], true);
    let before = fs::read_dir(&slices.folder).unwrap().count();
    // The folder, one file, and a trace that the same call writes.
    let single = subject.beside("one.pftrace.gz");
    for job in [
        rpd_merge().arg("--open").arg(&slices.folder),
        rpd_merge().arg("--open").arg(&slices.files[1].0),
        rpd_merge().args(["--open", "--format", "perfetto", "-o"]).arg(&single).arg(&subject.database),
    ] {
        let outcome = job.run().success();
        assert_eq!(outcome.stdout, "");
        for wanted in [
            "https://ui.perfetto.dev",
            "https://ui.perfetto.dev/#!/?startupCommands=%5B",
            "ssh -L 9001:127.0.0.1:9001 ",
            "rpd-merge --serve ",
        ] {
            assert!(outcome.stderr.contains(wanted), "{wanted:?} is not in\n{outcome}");
        }
    }
    assert!(single.is_file());
    assert_eq!(fs::read_dir(&slices.folder).unwrap().count(), before, "nothing is written");
}

/// Ends what serves, also if a test fails.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that serves a trace.
struct ServedTrace {
    serving: Serving,
    /// Its messages. It cannot write them if nobody reads.
    _messages: Box<dyn Iterator<Item = String>>,
    port: u16,
    /// Path of the first short address.
    path: String,
}

impl ServedTrace {
    fn start(folder: &Path) -> ServedTrace {
        let mut serving = Serving(rpd_merge().arg("--serve=0").arg(folder).start());
        let mut lines = BufReader::new(serving.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        let (_, rest) = first.split_once("127.0.0.1:").unwrap();
        let port = rest.split(' ').next().unwrap().parse().unwrap();
        let address = lines.next().unwrap();
        let path =
            address.split_once("http://127.0.0.1:9001").unwrap().1.split(' ').next().unwrap().to_owned();
        ServedTrace { serving, _messages: Box::new(lines), port, path }
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    /// The address to which the short address leads.
    fn page(&self) -> String {
        let head = String::from_utf8(self.get(&self.path)).unwrap();
        assert!(head.starts_with("HTTP/1.1 302 "), "{head}");
        head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap().to_owned()
    }
}

#[test]
fn a_trace_is_served_until_it_is_enough() {
    let subject = subject();
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "3"], true);
    let mut served = ServedTrace::start(&slices.folder);
    let page = served.page();
    let path = page.strip_prefix("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001").unwrap();
    let path = path.split('&').next().unwrap();
    assert!(served.get(path).ends_with(&fs::read(&slices.files[0].0).unwrap()));
    let (folder, _) = path.rsplit_once('/').unwrap();
    assert!(served.get(&format!("{folder}/index.json")).starts_with(b"HTTP/1.1 200 "));
    for refused in ["/".to_owned(), format!("{folder}/../merged.db"), path.replace(&folder[1..5], "0000")] {
        assert!(served.get(&refused).starts_with(b"HTTP/1.1 404 "), "{refused}");
    }
    let interrupt = Command::new("kill").args(["-INT", &served.serving.0.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    assert_eq!(served.serving.0.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", served.port)).is_err());
}

/// Opens a trace at an address with commands, and checks that its 12 ranks are shown in order.
fn assert_in_order(ui: &PerfettoUi, trace: &Path, address: &str, way: OpenedBy) {
    let (_, commands) = address.split_once("startupCommands=").unwrap();
    let picture = repository().join("target/ci/perfetto-ranks.png");
    fs::create_dir_all(picture.parent().unwrap()).unwrap();
    let opened = ui.open_with_commands(trace, &picture, commands, way);
    assert_eq!(opened.errors, Vec::<String>::new());
    let (note, ranks) = opened.tracks.split_first().unwrap();
    assert_eq!(note["name"], "this file");
    assert!(ranks.iter().all(|rank| !rank["children"].as_array().unwrap().is_empty()), "{ranks:?}");
    let ranks: Vec<&str> = ranks.iter().map(|track| track["name"].as_str().unwrap()).collect();
    let wanted: Vec<String> = (0..12).map(|rank| format!("rank {rank} ")).collect();
    assert_eq!(ranks.len(), wanted.len(), "{ranks:?}");
    assert!(ranks.iter().zip(&wanted).all(|(rank, wanted)| rank.starts_with(wanted)), "{ranks:?}");
}

/// UIs before v57 sort processes by their number of slices.
#[test]
fn the_ui_shows_the_ranks_of_a_trace_in_order() {
    let Some(ui) = PerfettoUi::newest("ranks in order in the UI of Perfetto") else { return };
    let run = SyntheticRun { nodes: 3, ranks_per_node: 4, events_per_rank: 40, ..SyntheticRun::default() };
    let subject = Subject::of(std::slice::from_ref(&RunFolder::new(&run).path));
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "2"], true);
    let (first, _) = &slices.files[0];
    assert_in_order(&ui, first, &ServedTrace::start(&slices.folder).page(), OpenedBy::Address);
    // A single file has no index, and its note names the ranks.
    let alone = subject.beside("alone.pftrace.gz");
    fs::copy(first, &alone).unwrap();
    assert!(ServedTrace::start(&alone).page().contains("&startupCommands="));
    let printed = rpd_merge().arg("--open").arg(&alone).run().success().stderr;
    let page = printed.lines().find(|line| line.contains("startupCommands=")).unwrap();
    assert_in_order(&ui, &alone, page, OpenedBy::User);
    assert_eq!(slices.index["page_with_ranks_in_order"].as_str(), Some(page.trim()));
}

/// Plain tracks need no commands, and have no numbers behind their names.
#[test]
fn the_ui_shows_plain_tracks_in_the_order_of_the_ranks() {
    let Some(ui) = PerfettoUi::newest("plain tracks in the UI of Perfetto") else { return };
    let run = SyntheticRun { nodes: 3, ranks_per_node: 4, events_per_rank: 40, ..SyntheticRun::default() };
    let subject = Subject::of(std::slice::from_ref(&RunFolder::new(&run).path));
    let whole = ["--split-by-time", "1"];
    let processes = subject.sliced(rpd_merge(), "processes", &whole, true);
    let plain = subject.sliced(rpd_merge(), "plain", &[whole, ["--tracks", "plain"]].concat(), true);
    for what in ["slices", "instants", "counters", "samples", "flows"] {
        let [one, other] = [&processes, &plain].map(|slices| &slices.index["files"][0]["events"][what]);
        assert_eq!(one, other, "{what}");
    }
    let picture = repository().join("target/ci/perfetto-plain.png");
    fs::create_dir_all(picture.parent().unwrap()).unwrap();
    let opened = ui.open(&plain.files[0].0, &picture);
    assert_eq!(opened.errors, Vec::<String>::new());
    let tree = opened.tree();
    let ranks = tree.split_once("ranks\n").map_or("", |(_, ranks)| ranks);
    let of_ranks = |line: &&str| line.trim_start().starts_with("rank ");
    let shown: Vec<&str> = ranks.lines().filter(of_ranks).map(str::trim).collect();
    let wanted: Vec<String> = (0..12).map(|rank| format!("rank {rank} (gpu{:03})", rank / 4)).collect();
    assert_eq!(shown, wanted, "{tree}");
    for track in ["this file\n", " main\n", " thread 400001\n", " GPU 0\n", " GPU 0 copies\n"] {
        assert!(tree.contains(track), "{track:?} is not in\n{tree}");
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    let subject = subject();
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "2"], true);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--serve={}", taken.local_addr().unwrap().port());
    let outcome = rpd_merge().arg(&port).arg(&slices.folder).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    assert!(outcome.stderr.contains("choose another one"), "{outcome}");

    let first = slices.files[0].0.file_name().unwrap().to_str().unwrap().to_owned();
    let index = fs::read_to_string(slices.folder.join("index.json")).unwrap();
    fs::write(slices.folder.join("index.json"), index.replace(&first, "../merged.db")).unwrap();
    let outcome = rpd_merge().arg("--serve=0").arg(&slices.folder).run();
    assert_eq!(outcome.code(), Some(4), "{outcome}");
    assert!(outcome.stderr.contains("no file of a trace"), "{outcome}");
}

#[test]
fn several_mpi_ranks_serve_nothing() {
    if let Some(why) = mpi_missing() {
        return skip("serving by several ranks", why);
    }
    let subject = subject();
    let outcome = rpd_merge_mpi(2).arg("--serve=0").arg(&subject.database).run();
    assert_eq!(outcome.code(), Some(2), "{outcome}");
    assert_eq!(outcome.stderr.matches("--serve is for one process").count(), 1, "{outcome}");
}
