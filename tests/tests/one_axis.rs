//! Files of four kinds, of one node, stamped with three clocks: what happened at the same moment is at the same time.

use rpd_tests::harness::{Database, Job, binary, python, rpd_merge, skip};
use serde_json::Value as Json;
use std::path::Path;

/// Shows the same moments to four writers: our library by roctx, a RocPD database on BOOTTIME, a `.rpd` on MONOTONIC,
/// a trace of PyTorch on REALTIME. All clocks are read one after another, which takes a µs or so.
const WRITER: &str = r#"
import ctypes, json, os, sqlite3, sys, time
folder = sys.argv[1]
roctx = ctypes.CDLL(None)
clocks = [time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC, time.CLOCK_REALTIME]
spans = []
for i in range(20):
    starts = [time.clock_gettime_ns(clock) for clock in clocks]
    roctx.roctxRangePushA(b"native")
    time.sleep(0.002)
    roctx.roctxRangePop()
    spans.append((starts, [time.clock_gettime_ns(clock) for clock in clocks]))
host, machine, pid = os.uname().nodename, open("/etc/machine-id").read().strip(), os.getpid()

uuid = open(folder + "/uuid").read()
db = sqlite3.connect(folder + "/app_results.db")
db.executescript("PRAGMA foreign_keys = OFF;" + open(folder + "/schema.sql").read())
def insert(table, **values):
    names, places = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
    db.execute(f'INSERT INTO "rocpd_{table}{uuid}" ({names}) VALUES ({places})', list(values.values()))
insert("metadata", tag="schema_version", value="3.0.0")
insert("metadata", tag="uuid", value=uuid)
insert("metadata", tag="guid", value=uuid[1:].replace("_", "-"))
insert("string", id=1, string="HIP")
insert("string", id=2, string="rocpd")
insert("info_node", id=7, hash=7, machine_id=machine, hostname=host)
insert("info_process", id=1, nid=7, pid=pid, start=spans[0][0][0])
insert("info_thread", id=1, nid=7, pid=1, tid=pid)
for i, (starts, ends) in enumerate(spans, 1):
    insert("event", id=i, category_id=1, stack_id=i)
    insert("region", id=i, nid=7, pid=1, tid=1, start=starts[0], end=ends[0], name_id=2, event_id=i)
db.commit()

rpd = sqlite3.connect(folder + "/app.rpd")
rpd.executescript("""
    CREATE TABLE rocpd_metadata (id INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, value TEXT NOT NULL);
    CREATE TABLE rocpd_string (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, string TEXT NOT NULL);
    CREATE TABLE rocpd_api (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, pid INTEGER, tid INTEGER, start INTEGER,
        "end" INTEGER, apiName_id INTEGER, args_id INTEGER);
    CREATE TABLE rocpd_op (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER,
        completionSignal TEXT, start INTEGER, "end" INTEGER, description_id INTEGER, opType_id INTEGER);
    CREATE TABLE rocpd_api_ops (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, api_id INTEGER, op_id INTEGER);
    INSERT INTO rocpd_metadata (tag, value) VALUES ('schema_version', '2');
    INSERT INTO rocpd_string VALUES (1, ''), (2, 'legacy');""")
for starts, ends in spans:
    row = (pid, pid, starts[1], ends[1])
    rpd.execute("INSERT INTO rocpd_api (pid, tid, start, \"end\", apiName_id, args_id) VALUES (?, ?, ?, ?, 2, 1)", row)
rpd.commit()

base = spans[0][0][2] // 10**9 * 10**9
micros = lambda ns: "%d.%03d" % divmod(ns - base, 1000)
events = ", ".join(
    '{"ph": "X", "cat": "cpu_op", "name": "kineto", "pid": %d, "tid": %d, "ts": %s, "dur": %d.%03d}'
    % ((pid, pid, micros(starts[2])) + divmod(ends[2] - starts[2], 1000)) for starts, ends in spans)
with open(folder + "/app.pt.trace.json", "w") as trace:
    trace.write('{"schemaVersion": 1, "host_name": "%s", "baseTimeNanoseconds": %d, "traceEvents": [%s]}' % (host, base, events))
"#;

/// A time namespace in which BOOTTIME and MONOTONIC are an hour apart, as after a suspend.
const SUSPENDED: [&str; 5] = ["unshare", "--time", "--monotonic=1000", "--boottime=4600", "--fork"];

fn collect(folder: &Path, wrapped: &[&str]) -> bool {
    let guid = rpd_rocpd::Guid::from_bits(0x77);
    std::fs::write(folder.join("schema.sql"), rpd_rocpd::schema::create_all(&guid)).unwrap();
    std::fs::write(folder.join("uuid"), guid.suffix()).unwrap();
    std::fs::write(folder.join("writer.py"), WRITER).unwrap();
    let collect = binary("rpd-collect");
    let words: Vec<_> = wrapped.iter().map(Into::into).chain([collect.into_os_string()]).collect();
    let outcome = Job::new(&words[0])
        .args(&words[1..])
        .args(["--backend", "native", "--run-id", "run", "-o"])
        .arg(folder.join("out"))
        .arg("--")
        .arg(python())
        .arg(folder.join("writer.py"))
        .arg(folder)
        .run();
    outcome.code() == Some(0)
}

#[test]
fn what_happened_at_one_moment_is_at_one_time() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let suspended = collect(folder, &SUSPENDED);
    if !suspended {
        skip("an hour between BOOTTIME and MONOTONIC", "no time namespace can be made here");
        let _ = ["app_results.db", "app.rpd"].map(|name| std::fs::remove_file(folder.join(name)));
        assert!(collect(folder, &[]));
    }
    let out = folder.join("all.db");
    let inputs = ["out/run", "app_results.db", "app.rpd", "app.pt.trace.json"].map(|name| folder.join(name));
    let outcome = rpd_merge().args(["--json", "-o"]).arg(&out).args(&inputs).run().success();
    let report: Json = serde_json::from_str(&outcome.stdout).unwrap();

    // One node, one domain of clocks, and a line for each clock that was converted.
    assert_eq!(report["nodes"], 1, "{}", outcome.stderr);
    let clocks = report["clocks"].as_array().unwrap();
    assert_eq!(clocks.len(), 1, "{clocks:?}");
    let converted = clocks[0]["converted"].as_array().unwrap();
    let offset = |clock: &str| {
        let found = converted.iter().find(|conversion| conversion["clock"] == clock);
        found
            .and_then(|conversion| conversion["offset_ns"].as_i64())
            .unwrap_or_else(|| panic!("{clock}: {converted:?}"))
    };
    assert!(offset("CLOCK_REALTIME") < -1_000_000_000_000_000_000);
    if suspended {
        assert!((offset("CLOCK_MONOTONIC") - 3_600_000_000_000).abs() < 1_000_000, "{converted:?}");
    }
    for clock in ["CLOCK_REALTIME", "CLOCK_MONOTONIC"] {
        let line = outcome.stderr.lines().find(|line| line.starts_with("converted") && line.contains(clock));
        assert!(line.is_some_and(|line| line.contains("= CLOCK_BOOTTIME")), "{}", outcome.stderr);
    }

    let database = Database::open(&out);
    database.assert_sound();
    let times = |name: &str| -> Vec<(i64, i64)> {
        let rows = database
            .rows(&format!("SELECT start, \"end\" FROM regions WHERE name = '{name}' ORDER BY start"));
        rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect()
    };
    let native = times("native");
    assert_eq!(native.len(), 20);
    for name in ["rocpd", "legacy", "kineto"] {
        let other = times(name);
        assert_eq!(other.len(), 20, "{name}");
        let mut off: Vec<i64> =
            native.iter().zip(&other).flat_map(|(a, b)| [(a.0 - b.0).abs(), (a.1 - b.1).abs()]).collect();
        off.sort_unstable();
        // A thread may lose its processor between two readings, but not mostly.
        assert!(off[off.len() / 2] < 50_000, "{name}: {off:?}");
    }
}
