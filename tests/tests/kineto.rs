//! Traces of the PyTorch profiler: what their ranks did is in one database and one trace, on one axis of time, and their
//! collectives are found in all ranks.

use flate2::Compression;
use flate2::write::GzEncoder;
use rpd_tests::fixtures;
use rpd_tests::harness::{Database, TraceProcessor, rpd_merge};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// How many spans there are of a process and category, how long they are together, and when the first begins, ns.
type Totals = BTreeMap<(i64, String), (i64, i64, i64)>;

/// Microseconds as ns, the plain way.
fn nanoseconds(text: &str) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<3}").parse().unwrap()
}

/// What a file says, read into a tree. All spans of a rank are of its process, whatever they are listed under.
fn totals_of_file(path: &Path, totals: &mut Totals) -> usize {
    #[derive(serde::Deserialize)]
    struct Event<'a> {
        ph: &'a str,
        cat: Option<&'a str>,
        name: Json,
        #[serde(borrow)]
        ts: Option<&'a RawValue>,
        #[serde(borrow)]
        dur: Option<&'a RawValue>,
        pid: Json,
    }
    #[derive(serde::Deserialize)]
    struct Trace<'a> {
        #[serde(rename = "baseTimeNanoseconds")]
        base: i64,
        #[serde(rename = "traceEvents", borrow)]
        events: Vec<Event<'a>>,
    }
    let text = fs::read_to_string(path).unwrap();
    let trace: Trace<'_> = serde_json::from_str(&text).unwrap();
    let rank = trace.events.iter().find(|event| event.cat == Some("cpu_op")).unwrap().pid.as_i64().unwrap();
    let mut collectives = 0;
    for event in trace.events.iter().filter(|event| event.ph == "X") {
        let start = nanoseconds(event.ts.unwrap().get()) + trace.base;
        let dur = nanoseconds(event.dur.unwrap().get());
        let total = totals.entry((rank, event.cat.unwrap().to_owned())).or_insert((0, 0, i64::MAX));
        *total = (total.0 + 1, total.1 + dur, total.2.min(start));
        collectives += usize::from(event.name.as_str().unwrap().starts_with("gloo:"));
    }
    collectives
}

fn totals_of_rows(rows: Vec<Vec<String>>) -> Totals {
    let number = |text: &String| text.parse::<i64>().unwrap();
    let total = |row: Vec<String>| {
        (
            (number(&row[0]), row[1].trim_matches('\'').to_owned()),
            (number(&row[2]), number(&row[3]), number(&row[4])),
        )
    };
    rows.into_iter().map(total).collect()
}

#[test]
fn two_ranks_of_a_real_job_are_in_one_database_and_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let files = fixtures::kineto_ddp(&folder.path().join("in"));
    if files.is_empty() {
        return;
    }
    let mut wanted = Totals::new();
    let collectives: Vec<usize> = files.iter().map(|file| totals_of_file(file, &mut wanted)).collect();
    assert_eq!((files.len(), collectives[0]), (2, collectives[1]));

    let output = folder.path().join("out.db");
    let merge =
        rpd_merge().arg("--strict").arg("-o").arg(&output).arg(folder.path().join("in")).run().success();
    let database = Database::open(&output);
    database.assert_sound();
    let found = database.rows(
        "SELECT p.pid, s.string, count(*), sum(r.\"end\" - r.start), min(r.start) FROM rocpd_region r
           JOIN rocpd_info_process p ON p.id = r.pid JOIN rocpd_event e ON e.id = r.event_id
           JOIN rocpd_string s ON s.id = e.category_id GROUP BY 1, 2",
    );
    assert_eq!(totals_of_rows(found), wanted);
    let line = |label: &str| {
        merge.stdout.lines().chain(merge.stderr.lines()).find(|l| l.starts_with(label)).map(str::to_owned)
    };
    let matched = line("matched").unwrap_or_default();
    assert_eq!(
        matched.split_whitespace().collect::<Vec<_>>()[1..],
        [&collectives[0].to_string(), "of", &collectives[0].to_string(), "collectives"]
    );
    assert!(line("spread").is_some_and(|line| line.contains(&format!("of {}", collectives[0]))), "{merge}");

    if let Some(processor) = TraceProcessor::all("traces of the PyTorch profiler").last() {
        let drawn = folder.path().join("trace");
        fs::create_dir(&drawn).unwrap();
        let _ = rpd_merge().args(["--format", "perfetto", "-o"]).arg(&drawn).arg(&output).run().success();
        let slices = "SELECT p.pid, s.category, count(*), sum(s.dur), min(s.ts) FROM slice s
            LEFT JOIN thread_track tt ON tt.id = s.track_id LEFT JOIN thread th ON th.utid = tt.utid
            LEFT JOIN process_track pt ON pt.id = s.track_id
            JOIN process p ON p.upid = coalesce(th.upid, pt.upid) WHERE s.category IN ('cpu_op', 'user_annotation', 'Trace') GROUP BY 1, 2";
        let [rows] = processor.queries(&drawn.join("trace.pftrace.gz"), [slices]);
        let rows = rows.into_iter().map(|row| {
            let cells: Vec<Json> = serde_json::from_value(row.into()).unwrap();
            cells.iter().map(|cell| cell.as_str().map_or(cell.to_string(), str::to_owned)).collect()
        });
        // Times of a trace count from the first event of the job.
        let first = wanted.values().map(|total| total.2).min().unwrap();
        let drawn = totals_of_rows(rows.collect());
        let least = drawn.values().map(|total| total.2).min().unwrap();
        let shifted = |totals: &Totals, by: i64| -> Vec<i64> { totals.values().map(|t| t.2 - by).collect() };
        assert_eq!(shifted(&drawn, least), shifted(&wanted, first));
        let sums = |totals: &Totals| totals.values().map(|t| (t.0, t.1)).collect::<Vec<_>>();
        assert_eq!(sums(&drawn), sums(&wanted));
    }
}

/// Number of arguments of the spans in a trace by name, and of flows that are not launches by category.
fn recorded_details(file: &Path) -> (BTreeMap<String, i64>, BTreeMap<String, i64>) {
    let trace: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let (mut args, mut flows) = (BTreeMap::new(), BTreeMap::new());
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let names = event["args"].as_object().into_iter().flat_map(|args| args.keys());
            // Perfetto replaces characters that it uses for lists and members.
            names.for_each(|name| *args.entry(name.replace(['.', '[', ']'], "_")).or_default() += 1);
        } else if event["ph"] == "s" && !matches!(event["cat"].as_str(), Some("ac2g" | "async_gpu")) {
            *flows.entry(event["cat"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    (args, flows)
}

/// Every argument of a span is an annotation of its slice, and every flow between operators an arrow.
#[test]
fn arguments_and_flows_of_real_traces_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (number, file) in fixtures::kineto_real(&folder.path().join("real")).iter().enumerate() {
        let (args, flows) = recorded_details(file);
        let drawn = folder.path().join(format!("trace-{number}"));
        fs::create_dir(&drawn).unwrap();
        let _ = rpd_merge().args(["--format", "perfetto", "-o"]).arg(&drawn).arg(file).run().success();
        let Some(processor) = TraceProcessor::all("arguments of real traces").pop() else { return };
        // A name is counted once for each slice, even if the slice has it twice.
        let count = "SELECT name, count(*) FROM (SELECT DISTINCT s.id, substr(a.key, 7) AS name FROM slice s
            JOIN args a USING (arg_set_id) WHERE a.key LIKE 'debug.%') GROUP BY 1";
        let arrows =
            "SELECT count(*) FROM flow JOIN slice t ON t.id = slice_in JOIN slice f ON f.id = slice_out
            WHERE t.category = 'cpu_op' AND f.category = 'cpu_op'";
        let [names, arrows] = processor.queries(&drawn.join("trace.pftrace.gz"), [count, arrows]);
        let found: BTreeMap<String, i64> = names
            .into_iter()
            .map(|row| (row[0].as_str().unwrap().to_owned(), row[1].as_i64().unwrap()))
            .collect();
        let missing: Vec<(&String, i64, i64)> = args
            .iter()
            .map(|(name, count)| (name, *count, found.get(name).copied().unwrap_or(0)))
            .filter(|(_, recorded, drawn)| drawn < recorded)
            .collect();
        assert_eq!(missing, [], "{}", file.display());
        let between = flows.get("fwdbwd").copied().unwrap_or(0);
        assert_eq!(arrows[0][0].as_i64(), Some(between), "{}: {flows:?}", file.display());
    }
}

/// A collective of a rank: name, elements, process group and number where torch tells them.
type Call = (&'static str, i64, Option<(&'static str, i64)>);

/// Writes what a process of a rank did, a millisecond for each call.
fn write(path: &Path, rank: i64, process: i64, calls: &[(i64, Call)]) -> PathBuf {
    let pid = 100 + rank + 1000 * process;
    let begin = calls.first().map_or(1, |(at, _)| *at) * 1000 - 1000;
    let mut events = vec![format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"step","pid":{},"tid":{},"ts":{begin}.500,"dur":900000}}"#,
        pid, pid
    )];
    for (at, (name, elements, group)) in calls {
        let ts = at * 1000 + rank;
        let args = match group {
            None if *elements == NO_SHAPES => String::new(),
            None => format!(r#""Input type": ["float"], "Input Dims": [[{elements}]]"#),
            Some((group, seq)) => format!(
                r#""External id": {at}, "Collective name": "{name}", "dtype": "Float", "In msg nelems": {elements}, "Process Group Name": "{group}", "Seq": {seq}"#
            ),
        };
        let shown = if group.is_some() { "record_param_comms" } else { name };
        let tid = 200 + rank;
        events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"{shown}","pid":{pid},"tid":{tid},"ts":{ts}.001,"dur":500.000,"args":{{{args}}}}}"#
        ));
        if group.is_some() {
            events.push(format!(
                r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_Generic(x)","pid":0,"tid":9,"ts":{}.001,"dur":400,"args":{{"External id": {at},"device":0,"stream":9,"correlation":{at}}}}}"#,
                ts + 50
            ));
        }
    }
    let text = format!(
        r#"{{"schemaVersion": 1, "distributedInfo": {{"rank": {rank}, "world_size": 2}}, "host_name": "n1", "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{}]}}"#,
        events.join(",\n")
    );
    let mut encoder = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap();
    path.to_owned()
}

#[test]
fn a_kernel_without_a_correlation_has_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank0.pt.trace.json");
    let call = |at: i64, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":70,"tid":71,"ts":{at},"dur":1,"args":{{{args}}}}}"#
        )
    };
    let kernel = |at: i64, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{at},"dur":1,"args":{{"device":0,"stream":7{args}}}}}"#
        )
    };
    let events = [
        call(10, ""),
        call(12, r#""correlation":0"#),
        call(14, r#""correlation":5"#),
        kernel(20, ""),
        kernel(22, r#","correlation":0"#),
        kernel(24, r#","correlation":5"#),
        kernel(26, r#","correlation":"none""#),
    ];
    let text = format!(
        r#"{{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{}]}}"#,
        events.join(",")
    );
    fs::write(&path, text).unwrap();
    let output = folder.path().join("out.db");
    let _ = rpd_merge().args(["--strict", "-o"]).arg(&output).arg(&path).run().success();
    let database = Database::open(&output);
    assert_eq!(database.count("rocpd_kernel_dispatch"), 4);
    let pairs = "SELECT r.start % 1000000, k.start % 1000000 FROM rocpd_kernel_dispatch k JOIN rocpd_event ke ON ke.id = k.event_id
        JOIN rocpd_event re ON re.stack_id = ke.stack_id AND re.guid = ke.guid JOIN rocpd_region r ON r.event_id = re.id
        WHERE ke.stack_id <> 0";
    assert_eq!(database.rows(pairs), [["14000", "24000"]]);
    // And there is one arrow.
    let trace = folder.path().join("trace.json.gz");
    let _ = rpd_merge().args(["--format", "chrome-json", "-o"]).arg(&trace).arg(&output).run().success();
    let mut text = String::new();
    let file = File::open(&trace).unwrap();
    let _ = flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    assert_eq!(text.matches(r#""ph":"s""#).count(), 1, "{text}");
}

/// The counts of the collectives of two ranks.
fn compared(calls: [&[(i64, Call)]; 2]) -> Json {
    compared_files(&[(0, 0, calls[0]), (1, 0, calls[1])])
}

/// A rank, the how-manieth process of it, and its calls with the millisecond of each.
type FileOf<'a> = (i64, i64, &'a [(i64, Call)]);

/// The same of files, each of a rank and of the how-manieth process of it.
fn compared_files(files: &[FileOf<'_>]) -> Json {
    let folder = tempfile::tempdir().unwrap();
    for (number, (rank, process, calls)) in files.iter().enumerate() {
        let path = folder.path().join(format!("rank{rank}.{number}.pt.trace.json.gz"));
        let _ = write(&path, *rank, *process, calls);
    }
    let output = folder.path().join("out.db");
    let _ = rpd_merge().arg("-o").arg(&output).arg(folder.path()).run().success();
    let metadata = Database::open(&output).metadata();
    // Each rank is late once, whatever it has been in.
    let late: Vec<Json> =
        metadata.get("rpd.late_ranks").map_or(Vec::new(), |found| serde_json::from_str(&found[0]).unwrap());
    let ranks: BTreeSet<i64> = late.iter().map(|row| row["rank"].as_i64().unwrap()).collect();
    assert_eq!(ranks.len(), late.len(), "{late:?}");
    serde_json::from_str(&metadata["rpd.collectives"][0]).unwrap()
}

fn numbers(counts: &Json) -> [i64; 4] {
    ["matched", "incomplete", "mismatched", "different"].map(|name| counts[name].as_i64().unwrap())
}

const BIG: Call = ("gloo:all_reduce", 26_122, None);
/// Elements of a call of which torch was not to record shapes.
const NO_SHAPES: i64 = -1;
const SMALL: Call = ("gloo:all_reduce", 1, None);
const BARRIER: Call = ("gloo:barrier", 1, None);
const GATHER: Call = ("gloo:all_gather", 4, None);

/// Twelve rounds of calls.
fn rounds() -> Vec<(i64, Call)> {
    let calls = [BIG, SMALL, GATHER, BARRIER, SMALL];
    (0..60).map(|n| (n + 1, calls[n as usize % calls.len()])).collect()
}

#[test]
fn calls_that_only_their_order_tells_are_found_again_behind_one_too_many() {
    let whole = rounds();
    assert_eq!(numbers(&compared([&whole, &whole])), [60, 0, 0, 0]);

    // One rank has a call that the other has not, and later one less.
    let mut other = whole.clone();
    other.remove(40);
    other.insert(11, (11, ("gloo:reduce", 3, None)));
    let counts = compared([&whole, &other]);
    assert_eq!(numbers(&counts), [59, 1, 0, 1]);
    assert_eq!(counts["spread"]["collectives"], 59);

    // Two threads took up neighbours in another order.
    let mut swapped = whole.clone();
    (swapped[20].1, swapped[21].1) = (swapped[21].1, swapped[20].1);
    let counts = compared([&whole, &swapped]);
    assert_eq!(numbers(&counts)[1..], [0, 0, 0]);
    assert_eq!(counts["matched"].as_i64().unwrap() + counts["contradicted"].as_i64().unwrap(), 60);
}

#[test]
fn several_files_of_a_rank_are_matched_in_turn() {
    let later = |calls: &[(i64, Call)]| -> Vec<(i64, Call)> {
        calls.iter().map(|(at, call)| (at + 100_000, *call)).collect()
    };
    let numbered: Vec<(i64, Call)> = (1..=60).map(|n| (n, ("allreduce", 1 << 20, Some(("0", n))))).collect();
    for calls in [rounds(), numbered] {
        let again = later(&calls);
        let (first, second) = calls.split_at(30);
        // Windows of one profiler; two trainings of one job. The second file of a rank may be named in front.
        for (turns, matched) in [([(0, first), (0, second)], 60), ([(0, &calls), (1, &again)], 120)] {
            let [(one, begin), (other, end)] = turns;
            let counts =
                compared_files(&[(0, other, end), (0, one, begin), (1, one, begin), (1, other, end)]);
            assert_eq!(numbers(&counts), [matched, 0, 0, 0], "{counts}");
            assert_eq!(counts["contradicted"], 0);
            assert_eq!(counts["spread"]["median_ns"], 1000);
        }
    }
}

#[test]
fn other_elements_are_another_call() {
    let whole = rounds();
    let mut other = whole.clone();
    other[30].1 = ("gloo:all_reduce", 77, None);
    let counts = compared([&whole, &other]);
    assert_eq!(numbers(&counts), [59, 1, 0, 1]);
}

#[test]
fn gloo_tells_when_ranks_waited_also_without_shapes() {
    let calls: Vec<(i64, Call)> = (0..30).map(|n| (n + 1, ("gloo:all_reduce", NO_SHAPES, None))).collect();
    let counts = compared([&calls, &calls]);
    assert_eq!(numbers(&counts), [30, 0, 0, 0]);
    assert_eq!((&counts["timed"], &counts["spread"]["median_ns"]), (&Json::from(30), &Json::from(1000)));
}

#[test]
fn calls_of_rccl_are_known_by_group_and_number_and_timed_by_their_kernels() {
    let all: Vec<(i64, Call)> = (0..20)
        .map(|n| (n + 1, ("allreduce", 1 << 20, Some((if n % 2 == 0 { "0" } else { "tp" }, n / 2 + 1)))))
        .collect();
    // One rank began to record later: the numbers tell.
    let counts = compared([&all, &all[6..]]);
    assert_eq!(numbers(&counts), [14, 6, 0, 0]);
    assert_eq!((&counts["timed"], &counts["spread"]["median_ns"]), (&Json::from(14), &Json::from(1000)));
    let mut other = all.clone();
    other[3].1.1 = 5;
    assert_eq!(numbers(&compared([&all, &other])), [19, 0, 1, 0]);
}
