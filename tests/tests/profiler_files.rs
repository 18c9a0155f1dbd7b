//! Files of several profilers: Perfetto traces, databases of rocprof-sys and rocprof-compute, tables of omnistat and
//! rocprof. What is in them is in a merge; what is refused says what to name instead.

use rpd_perfetto::{Event, Sequence, StringId, Thread, Timestamp, Track, TrackId, TrackKind};
use rpd_tests::content::{DatabaseContent, differences};
use rpd_tests::databases::{DatabaseJob, change, content_of, warnings_about};
use rpd_tests::fixtures;
use rpd_tests::harness::{
    Database, RunFolder, TraceProcessor, assert_refused, dump_difference, losses, rpd_merge,
};
use rpd_tests::synthetic::SyntheticRun;
use serde_json::Value as Json;
use std::fs;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// A trace of one slice, as another profiler may write it.
fn small_trace(pid: i32, name: &str) -> Vec<u8> {
    let mut sequence = Sequence::new(NonZeroU32::MIN);
    let track = TrackId(5);
    let thread = TrackKind::Thread(Thread { pid, tid: pid });
    sequence.track(&Track { kind: thread, ..Track::new(track, "main") });
    let event_name = sequence.event_name(StringId(1), || name);
    let category = Some(sequence.category(StringId(2), || "host"));
    let at = |ns| Timestamp::new(ns).unwrap();
    sequence.begin(&Event { category, ..Event::new(at(1_000), track, event_name) });
    sequence.end(at(3_500), track);
    sequence.packets().to_vec()
}

const OMNISTAT: &str = "\
metric,rocm_average_socket_power_watts,rocm_average_socket_power_watts
instance,node01,node02
card,0,0
timestamp,,
2025-01-01 10:00:00,150.5,160
2025-01-01 10:00:01,151.5,
";

/// Rows without the quotes of their texts.
fn words(rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let plain = |row: Vec<String>| row.iter().map(|cell| cell.trim_matches('\'').to_owned()).collect();
    rows.into_iter().map(plain).collect()
}

/// Merges, quietly, and opens the output.
fn merged(inputs: &[&Path], output: &Path) -> Database {
    let outcome = rpd_merge().args(["--strict", "--force", "-o"]).arg(output).args(inputs).run().success();
    assert!(!outcome.stderr.contains("warning:"), "{outcome}");
    let database = Database::open(output);
    database.assert_sound();
    database
}

/// A trace that a merge drew, asked of Perfetto and of a merge of the trace.
const DRAWN: [(&str, &str, &str); 5] = [
    (
        "slices",
        "SELECT s.name, s.category, count(*), sum(s.dur), CAST(max(s.ts + s.dur) AS INT) FROM slice s
           WHERE s.dur > 0 AND s.category IS NOT 'rpd_file' GROUP BY 1, 2",
        "SELECT name, category, count(*), sum(duration), max(\"end\") FROM regions WHERE duration > 0 GROUP BY 1, 2",
    ),
    (
        "moments",
        "SELECT s.name, s.category, s.ts FROM slice s WHERE s.dur = 0",
        "SELECT coalesce(json_extract(ev.extdata, '$.message'), (SELECT name FROM regions r WHERE r.event_id = ev.id)),
                (SELECT string FROM rocpd_string c WHERE c.id = ev.category_id),
                coalesce((SELECT timestamp FROM rocpd_sample s WHERE s.event_id = ev.id),
                         (SELECT start FROM rocpd_region r WHERE r.event_id = ev.id))
           FROM rocpd_event ev
          WHERE ev.id NOT IN (SELECT event_id FROM rocpd_pmc_event)
            AND ev.id NOT IN (SELECT event_id FROM rocpd_region WHERE \"end\" > start)
            AND ev.category_id NOT IN (SELECT id FROM rocpd_string WHERE string = 'PERF_SAMPLE')",
    ),
    (
        "counters",
        "SELECT t.name, coalesce(t.unit, ''), c.ts, c.value FROM counter c JOIN counter_track t ON t.id = c.track_id",
        "SELECT iif(instr(i.name, ' / ') > 0, substr(i.name, instr(i.name, ' / ') + 3), i.name), i.units, s.timestamp, v.value
           FROM rocpd_pmc_event v JOIN rocpd_sample s ON s.event_id = v.event_id JOIN rocpd_info_pmc i ON i.id = v.pmc_id",
    ),
    (
        "arguments",
        "SELECT substr(a.key, 7), coalesce(a.string_value, CAST(a.int_value AS TEXT)) FROM slice s JOIN args a USING (arg_set_id)
          WHERE s.category IS NOT 'rpd_file' AND a.key LIKE 'debug.%' AND a.value_type IN ('string', 'int')",
        "SELECT a.name, a.value FROM rocpd_arg a WHERE a.type IN ('string', 'int')",
    ),
    (
        "processes",
        "SELECT pid FROM process WHERE pid > 0",
        "SELECT pid FROM rocpd_info_process",
    ),
];

#[test]
fn a_trace_of_a_merge_is_read_as_perfetto_reads_it() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 300, ..SyntheticRun::default() });
    let drawn = run.beside("trace.pftrace.gz");
    let _ = rpd_merge()
        .args(["--format", "perfetto", "--force", "-o"])
        .arg(&drawn)
        .arg(&run.path)
        .run()
        .success();
    let again = merged(&[&drawn], &run.beside("again.db"));
    assert_eq!(losses(&again), []);
    let rows = |place: usize| DRAWN.map(|(name, perfetto, merge)| (name, [perfetto, merge][place]));
    let found = again.answers(&rows(1));
    for name in ["slices", "moments", "counters", "arguments", "processes"] {
        assert!(found[name].len() >= 3, "{name}: {:?}", found[name]);
    }
    for perfetto in TraceProcessor::all("a trace read as Perfetto reads it") {
        let answers = perfetto.queries(&drawn, DRAWN.map(|(_, perfetto, _)| perfetto));
        let text = |cell: &Json| match cell {
            Json::Null => "NULL".to_owned(),
            Json::String(text) => format!("'{text}'"),
            Json::Number(number) if number.is_f64() => format!("{:?}", number.as_f64().unwrap()),
            other => other.to_string(),
        };
        let mut wanted = DatabaseContent::new();
        for ((name, ..), rows) in DRAWN.iter().zip(answers) {
            let mut rows: Vec<String> =
                rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(" | ")).collect();
            rows.sort();
            wanted.insert((*name).to_owned(), rows);
        }
        assert_eq!(differences(&wanted, &found), "", "{}", perfetto.version());
    }
}

#[test]
fn traces_in_a_folder_are_merged_but_not_those_that_hold_what_databases_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = (folder.path().join("in"), folder.path().join("out.db"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("perfetto-trace-0.proto"), small_trace(70, "first")).unwrap();
    fs::write(path.join("perfetto-trace-1.proto"), small_trace(71, "second")).unwrap();
    let names =
        |database: &Database| words(database.rows("SELECT name, category, duration FROM regions ORDER BY 1"));
    let both = [["first", "host", "2500"], ["second", "host", "2500"]];
    assert_eq!(names(&merged(&[&path], &output)), both);
    // What others name so is none of a merge, but counted.
    fs::write(path.join("messages.proto"), "syntax = \"proto3\";\n").unwrap();
    fs::write(path.join("table.csv"), "a,b\n1,2\n").unwrap();
    let outcome = rpd_merge().args(["--strict", "--force", "-o"]).arg(&output).arg(&path).run().success();
    assert!(outcome.stderr.contains("2 files that no profiler wrote (1 *.csv, 1 *.proto)"), "{outcome}");
    assert_eq!(names(&Database::open(&output)), both);

    let job = DatabaseJob::small();
    fs::copy(&job.inputs[0], path.join("rocpd-70.db")).unwrap();
    let outcome = rpd_merge().args(["--force", "-o"]).arg(&output).arg(&path).run().success();
    let warned = |line: &&str| line.starts_with("warning:") && line.contains("databases lie beside it");
    assert_eq!(outcome.stderr.lines().filter(warned).count(), 2, "{outcome}");
    assert_eq!(Database::open(&output).number("SELECT count(*) FROM regions WHERE category = 'host'"), 0);
    // Named, they are merged all the same.
    let trace = path.join("perfetto-trace-0.proto");
    let database = merged(&[&path.join("rocpd-70.db"), &trace], &output);
    assert_eq!(database.number("SELECT count(*) FROM regions WHERE category = 'host'"), 1);
}

#[test]
fn a_trace_that_a_merge_left_in_a_run_is_not_merged_with_it() {
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 50, ..SyntheticRun::default() });
    let before = run.merged().dump();
    let _ = rpd_merge().args(["--format", "perfetto", "--force"]).arg(&run.path).run().success();
    let drawn =
        fs::read_dir(&run.path).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert!(drawn.into_iter().any(|name| name.contains(".pftrace")));
    assert_eq!(dump_difference(&before, &run.merged().dump()), None);
}

#[test]
fn a_cut_trace_is_merged_as_far_as_it_goes_and_a_broken_one_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = (folder.path().join("t.pftrace"), folder.path().join("out.db"));
    let trace = small_trace(70, "first");
    fs::write(&path, &trace[..trace.len() - 3]).unwrap();
    let outcome = rpd_merge().args(["--force", "-o"]).arg(&output).arg(&path).run().success();
    assert!(outcome.stderr.contains("it is damaged at byte"), "{outcome}");
    let database = Database::open(&output);
    assert_eq!(losses(&database), [(None, "truncated".to_owned(), -1)]);
    let open = "SELECT s.string, json_extract(r.extdata, '$.rpd.open') FROM rocpd_region r
                  JOIN rocpd_string s ON s.id = r.name_id";
    assert_eq!(words(database.rows(open)), [["first", "1"]]);
    assert_refused(
        &rpd_merge().args(["--strict", "-o"]).arg(folder.path().join("s.db")).arg(&path).run(),
        3,
        &["t.pftrace"],
    );
}

#[test]
fn tables_of_omnistat_are_counters_and_those_of_rocprof_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = (folder.path().join("omnistat-rocm.gpu.csv"), folder.path().join("out.db"));
    fs::write(&path, OMNISTAT).unwrap();
    let database = merged(&[folder.path()], &output);
    let values = "SELECT n.hostname, a.type, a.type_index, i.name, i.units, v.value
                    FROM rocpd_pmc_event v JOIN rocpd_info_pmc i ON i.id = v.pmc_id JOIN rocpd_info_agent a ON a.id = i.agent_id
                    JOIN rocpd_info_node n ON n.id = i.nid ORDER BY 1, 6";
    let power = "rocm_average_socket_power_watts";
    assert_eq!(
        words(database.rows(values)),
        [
            ["node01", "GPU", "0", power, "W", "150.5"],
            ["node01", "GPU", "0", power, "W", "151.5"],
            ["node02", "GPU", "0", power, "W", "160.0"]
        ]
    );
    assert_eq!(database.number("SELECT max(timestamp) - min(timestamp) FROM rocpd_sample"), 1_000_000_000);
    // A trace of it has a counter for each node.
    let trace = folder.path().join("t.json.gz");
    let outcome =
        rpd_merge().args(["--format", "chrome-json", "--force", "-o"]).arg(&trace).arg(&path).run().success();
    assert!(outcome.stderr.contains("its times are in whole seconds"), "{outcome}");

    let table = folder.path().join("kernel_trace.csv");
    for (header, words) in [
        (
            "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Start_Timestamp\",\"End_Timestamp\"\n",
            ["CSV of rocprofv3", "rocprofv3 -f rocpd"],
        ),
        ("\"Name\",\"Calls\",\"TotalDurationNs\"\n", ["table of sums", "rocprofv3 -f rocpd"]),
        ("Index,KernelName,gpu-id\n", ["CSV of rocprof", "rocprofv3 -f rocpd"]),
    ] {
        fs::write(&table, header).unwrap();
        // In a folder the others are merged without it; named, it is refused.
        let outcome = rpd_merge().args(["--force", "-o"]).arg(&output).arg(folder.path()).run().success();
        assert!(outcome.stderr.contains(&format!("left out: {} is ", table.display())), "{outcome}");
        assert_refused(&rpd_merge().args(["--force", "-o"]).arg(&output).arg(&table).run(), 4, &words);
    }
}

#[test]
fn categories_of_rocprof_sys_mean_what_those_of_rocprofv3_mean() {
    let plain = DatabaseJob::small();
    let sys = DatabaseJob::small();
    let spelled = [("HIP_RUNTIME_API_EXT", "rocm_hip_api"), ("MARKER_CORE_RANGE_API", "rocm_marker_api")];
    for input in &sys.inputs {
        let renamed = |(from, to): (&str, &str)| {
            format!("UPDATE \"rocpd_string<uuid>\" SET string = '{to}' WHERE string = '{from}'")
        };
        let statements = spelled.map(renamed);
        change(input, &statements.each_ref().map(String::as_str));
    }
    // Moments of a category are called like it.
    let calls = "SELECT iif(apiName IN ('HIP_RUNTIME_API_EXT', 'rocm_hip_api'), '', apiName), domain, args, start, \"end\"
                   FROM api";
    let rpd = |job: &DatabaseJob| {
        let output = job.beside("out.rpd");
        let _ = rpd_merge()
            .args(["--format", "rpd", "--force", "-o"])
            .arg(&output)
            .arg(job.place())
            .run()
            .success();
        let answers = Database::open(&output).answers(&[("calls", calls)]);
        (output, answers)
    };
    let ((_, wanted), (written, found)) = (rpd(&plain), rpd(&sys));
    assert!(
        wanted["calls"].iter().any(|row| row.contains("'roctx'"))
            && wanted["calls"].iter().any(|row| row.contains("'hip'"))
    );
    assert_eq!(differences(&wanted, &found), "");
    // And they come back from the .rpd as they were spelled, where moments are calls, too.
    let _ = sys.merge(&[]).success();
    let back = merged(&[&written], &sys.beside("back.db"));
    for (_, to) in spelled {
        let of_kind = format!("SELECT count(*) FROM regions WHERE category = '{to}'");
        let (direct, found) = (sys.database().number(&of_kind), back.number(&of_kind));
        assert!(direct > 0 && found >= direct, "{to}: {found} of {direct}");
    }
    // Traces can do without markers.
    let marks = |job: &DatabaseJob| {
        let output = job.beside("trace.json.gz");
        let arguments = ["--format", "chrome-json", "--exclude", "markers", "--force", "-o"];
        let _ = rpd_merge().args(arguments).arg(&output).arg(job.place()).run().success();
        let mut text = String::new();
        let packed = fs::read(output).unwrap();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        (text.matches("rocm_marker_api").count(), text.matches("rocm_hip_api").count() > 0)
    };
    assert_eq!(marks(&sys), (0, true));
}

#[test]
fn databases_of_passes_say_which_pass_they_are() {
    let job = DatabaseJob::small();
    let names = ["pmc_perf_0_4711.db", "pmc_perf_1_4712.db", "SQ_LEVEL_WAVES.db"];
    for (input, name) in job.inputs.iter().zip(names) {
        fs::rename(input, job.place().join(name)).unwrap();
    }
    fs::write(job.place().join("pmc_perf.csv"), "Dispatch_ID,GPU_ID,Queue_ID,Kernel_Name\n").unwrap();
    let _ = job.merge(&["--strict"]).success();
    let passes = "SELECT json_extract(extdata, '$.rpd.pass') AS pass, count(*) FROM rocpd_info_process GROUP BY 1 ORDER BY 1";
    let told: Vec<String> =
        words(job.database().rows(passes)).into_iter().map(|mut row| row.remove(0)).collect();
    assert_eq!(told[told.len() - 3..], ["SQ_LEVEL_WAVES", "pmc_perf_0", "pmc_perf_1"], "{told:?}");
    // A merge of the merge says the same, whatever it is called.
    let renamed = job.beside("pmc_perf_9.db");
    fs::copy(job.output(), &renamed).unwrap();
    let again = merged(&[&renamed], &job.beside("again.db"));
    assert_eq!(differences(&content_of(&[job.output()]), &content_of(&[job.beside("again.db")])), "");
    assert_eq!(again.rows(passes), job.database().rows(passes));
}

#[test]
fn passes_of_one_program_are_all_there_and_a_copy_of_one_is_told() {
    let job = DatabaseJob::small();
    let dispatches = |inputs: &[&Path], name: &str| {
        let database = merged(inputs, &job.beside(name));
        let by_pass = "SELECT json_extract(p.extdata, '$.rpd.pass'), count(*) FROM rocpd_kernel_dispatch k
                         JOIN rocpd_info_process p ON p.id = k.pid GROUP BY 1 ORDER BY 1";
        words(database.rows(by_pass))
    };
    // The same program is run again: the same process id, the same kernels, another guid.
    let alone = dispatches(&[&job.inputs[0]], "alone.db");
    let kernels = alone[0][1].clone();
    let folder = job.beside("workload");
    fs::create_dir(&folder).unwrap();
    let passes = ["pmc_perf_0.db", "pmc_perf_1.db"].map(|name| folder.join(name));
    fs::copy(&job.inputs[0], &passes[0]).unwrap();
    let pass = fs::read(&job.inputs[0]).unwrap();
    let guid = Database::open(&job.inputs[0]).metadata()["guid"][0].clone();
    let other = |text: &str| text.replace(&guid[..8], "0badcafe");
    let renamed = |bytes: Vec<u8>, from: &str| {
        let mut bytes = bytes;
        let places: Vec<usize> =
            (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
        places.iter().for_each(|at| bytes[*at..*at + from.len()].copy_from_slice(other(from).as_bytes()));
        bytes
    };
    fs::write(&passes[1], renamed(pass, &guid[..8])).unwrap();
    assert_eq!(
        dispatches(&[&folder], "both.db"),
        [["pmc_perf_0", kernels.as_str()], ["pmc_perf_1", kernels.as_str()]]
    );
    // A pass that was copied is none of its own.
    let copy = folder.join("pmc_perf_2.db");
    fs::copy(&passes[1], &copy).unwrap();
    let outcome = rpd_merge().args(["--force", "-o"]).arg(job.output()).arg(&folder).run().success();
    let told = [warnings_about(&outcome, &passes[1]), warnings_about(&outcome, &copy)].concat();
    assert!(told.iter().any(|line| line.contains("a copy, which is left out")), "{outcome}");
    assert_eq!(
        job.database().number("SELECT count(*) FROM rocpd_kernel_dispatch").to_string(),
        (2 * kernels.parse::<i64>().unwrap()).to_string()
    );
}

#[test]
fn what_rocprof_sys_says_of_itself_is_no_trace_and_stops_no_merge() {
    let job = DatabaseJob::small();
    let metadata = job.place().join("metadata-4711.json");
    let functions = job.place().join("functions-4711.json");
    fs::write(&metadata, "{\n    \"rocprofiler-systems\": {\n        \"metadata\": {\"pid\": 4711}}}")
        .unwrap();
    fs::write(&functions, "{\"omnitrace\": {\"functions\": [{\"name\": \"main\", \"ph\": \"X\"}]}}").unwrap();
    // In a folder it is none of a merge's business.
    let wanted = content_of(&job.inputs);
    let _ = job.merge(&["--strict"]).success();
    assert_eq!(differences(&wanted, &content_of(&[job.output()])), "");
    // Named, it is told what it is, and the rest is merged.
    let outcome = rpd_merge()
        .args(["--force", "-o"])
        .arg(job.output())
        .args(&job.inputs)
        .args([&metadata, &functions])
        .run()
        .success();
    for file in [&metadata, &functions] {
        let told = warnings_about(&outcome, file);
        assert!(told.iter().any(|line| line.contains("is JSON of rocprof-sys about a run")), "{outcome}");
    }
    assert_eq!(differences(&wanted, &content_of(&[job.output()])), "");
}

#[test]
fn a_path_may_have_any_letters() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("it's a \"job\" of 100%20 #1?mode=ro;");
    fs::create_dir(&odd).unwrap();
    let run = RunFolder::new(&SyntheticRun { events_per_rank: 30, ..SyntheticRun::default() });
    let job = DatabaseJob::small();
    let plain = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let kineto = r#"{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "traceEvents":
        [{"ph":"X","cat":"cpu_op","name":"op","pid":70,"tid":71,"ts":10,"dur":1}]}"#;
    let mut inputs: Vec<PathBuf> = vec![
        run.shard(0),
        job.inputs[0].clone(),
        plain("trace.json", kineto.as_bytes()),
        plain("trace.proto", &small_trace(70, "first")),
        plain("table.csv", OMNISTAT.as_bytes()),
    ];
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    inputs.extend(fixtures::rpd_files(&folder.path().join("rpd")).into_iter().min_by_key(size));
    inputs.extend(fixtures::rocprofv3_json(&folder.path().join("json")));
    for (number, input) in inputs.iter().enumerate() {
        let name = input.file_name().unwrap().to_str().unwrap();
        let copy = odd.join(format!("a 'b' \"{name}"));
        fs::copy(input, &copy).unwrap();
        let merge = |input: &Path, to: &Path| {
            let _ = rpd_merge().arg("-o").arg(to).arg(input).run().success();
            let tables = ["region", "kernel_dispatch", "sample", "arg", "info_thread", "info_node", "string"];
            let database = Database::open(to);
            tables.map(|table| database.count(&format!("rocpd_{table}")))
        };
        let (left, right) = (folder.path().join(format!("{number}.db")), odd.join(format!("{number}.db")));
        let rows = merge(input, &left);
        assert_eq!(rows, merge(&copy, &right), "{name}");
        assert!(rows[..3].iter().sum::<i64>() > 0, "{name}: {rows:?}");
    }
}

#[test]
fn collectives_are_found_whatever_their_category_is_called() {
    let run = SyntheticRun { events_per_rank: 600, ranks_per_node: 1, ..SyntheticRun::default() };
    let told = |to: Option<&str>| {
        let job = DatabaseJob::new(&run);
        for (input, to) in job.inputs.iter().zip(to.into_iter().cycle()) {
            let rename = format!(
                "UPDATE \"rocpd_string<uuid>\" SET string = '{to}' || lower(string) WHERE string IN ('RCCL_API', 'MPI_API')"
            );
            change(input, &[&rename]);
        }
        let _ = job.merge(&[]).success();
        job.database().metadata()["rpd.collectives"].clone()
    };
    let plain = told(None);
    assert!(!plain[0].contains("\"matched\":0,"), "{plain:?}");
    assert_eq!(told(Some("rocm_")), plain);
}
