//! A trace is opened as it is told, and by nobody else.

use super::{Subject, rpd_merge};
use rpd_tests::harness::{RunFolder, mpi_missing, rpd_merge_mpi, skip};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

fn subject() -> Subject {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 40, ..SyntheticRun::default() });
    Subject::of(std::slice::from_ref(&run.path))
}

#[test]
fn it_is_told_how_a_trace_is_opened() {
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
        let told = job.run().success();
        assert_eq!(told.stdout, "");
        for wanted in ["https://ui.perfetto.dev", "ssh -L 9001:127.0.0.1:9001 ", "rpd-merge --serve "] {
            assert!(told.stderr.contains(wanted), "{wanted:?} is not in\n{told}");
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

#[test]
fn a_trace_is_served_until_it_is_enough() {
    let subject = subject();
    let slices = subject.sliced(rpd_merge(), "slices", &["--split-by-time", "3"], true);
    let mut serving = Serving(rpd_merge().arg("--serve=0").arg(&slices.folder).start());
    let mut lines = BufReader::new(serving.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let (_, rest) = first.split_once("127.0.0.1:").unwrap();
    let port: u16 = rest.split(' ').next().unwrap().parse().unwrap();
    let address = lines.next().unwrap();
    let path =
        address.split_once("/#!/?url=http://127.0.0.1:9001").unwrap().1.split(' ').next().unwrap().to_owned();

    let get = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    assert!(get(&path).ends_with(&fs::read(&slices.files[0].0).unwrap()));
    let (folder, _) = path.rsplit_once('/').unwrap();
    assert!(get(&format!("{folder}/index.json")).starts_with(b"HTTP/1.1 200 "));
    for refused in ["/".to_owned(), format!("{folder}/../merged.db"), path.replace(&folder[1..5], "0000")] {
        assert!(get(&refused).starts_with(b"HTTP/1.1 404 "), "{refused}");
    }
    let interrupt = Command::new("kill").args(["-INT", &serving.0.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
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
