//! What is drawn of a merged database is what the database says, by SQL.

use rpd_merge::trace::item::{
    ArgValue, Dictionary, Facts, FlowEnd, Kind, Selection, TableFacts, TrackKind, UnitLayout, What,
};
use rpd_merge::trace::rows::JobRows;
use rpd_tests::fixtures::{rocpd_databases, rpd_files};
use rpd_tests::harness::{Database, RunFolder, rpd_merge};
use rpd_tests::synthetic::{Random, SyntheticRun};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Memory for everything at once.
const PLENTY: u64 = 1 << 30;

/// An item with its numbers looked up.
#[derive(Clone, PartialEq, PartialOrd, Debug)]
struct Drawn {
    process: i64,
    track: String,
    kind: &'static str,
    name: String,
    category: String,
    start: i64,
    end: i64,
    value: String,
    args: Vec<(String, String)>,
    flows: Vec<String>,
}

/// All units of a job.
#[derive(Default)]
struct Job {
    items: Vec<Drawn>,
    facts: Facts,
    layouts: Vec<UnitLayout>,
    surveyed: u64,
}

impl Job {
    fn of(&self, kind: &str) -> impl Iterator<Item = &Drawn> {
        self.items.iter().filter(move |item| item.kind == kind)
    }

    fn sorted(mut self) -> Vec<Drawn> {
        self.items.sort_by(|one, other| one.partial_cmp(other).unwrap());
        self.items
    }
}

fn track_name(layout: &UnitLayout, place: u32) -> String {
    let track = &layout.tracks[place as usize];
    match track.parent {
        Some(parent) => format!("{}/{}", layout.tracks[parent as usize].name, track.name),
        None => track.name.clone(),
    }
}

fn read(path: &Path, selection: &Selection, window: Option<(i64, i64)>, memory: u64) -> Job {
    try_read(path, selection, window, memory).unwrap()
}

fn try_read(
    path: &Path,
    selection: &Selection,
    window: Option<(i64, i64)>,
    memory: u64,
) -> Result<Job, rpd_merge::failure::Failure> {
    let mut rows = JobRows::open(path, selection)?;
    rows.set_window(window);
    let mut job = Job { facts: rows.unasked(), ..Job::default() };
    for unit in 0..rows.units().len() {
        let layout = rows.survey(unit, &mut |_, _, _| job.surveyed += 1)?;
        let mut dictionary = Dictionary::default();
        // Texts are looked up when all are known.
        let mut items = Vec::new();
        let facts = rows.items(unit, &layout, &mut dictionary, memory, &mut |item| {
            let value = |value: ArgValue<'_>| match value {
                ArgValue::Text(text) => Err(text.to_owned()),
                ArgValue::Known(id) => Ok(id),
                other => Err(format!("{other:?}")),
            };
            let args: Vec<_> = item.args.iter().map(|arg| (arg.name, value(arg.value))).collect();
            items.push((
                item.start,
                item.end,
                item.track,
                item.kind,
                item.name,
                item.category,
                args,
                item.flows.to_vec(),
            ));
            Ok(())
        })?;
        let text = |id| dictionary.texts.get(id).to_owned();
        for (start, end, track, kind, name, category, args, flows) in items {
            assert!(start <= end);
            let (kind, value) = match kind {
                Kind::Slice => ("slice", String::new()),
                Kind::Instant => ("instant", String::new()),
                Kind::Counter(value) => ("counter", format!("{value:?}")),
                Kind::Sample(stack) => {
                    let frames = &dictionary.stacks[stack.0 as usize].frames;
                    let names: Vec<_> = frames.iter().map(|frame| text(frame.function)).collect();
                    ("sample", names.join(";"))
                }
            };
            let is_right = match layout.tracks[track as usize].kind {
                TrackKind::Group => false,
                TrackKind::Counter { .. } => kind == "counter",
                TrackKind::Slices(_) => matches!(kind, "slice" | "instant"),
                TrackKind::Thread { .. } => kind != "counter",
            };
            assert!(is_right, "{kind} on {}", track_name(&layout, track));
            let process = &layout.processes[layout.tracks[track as usize].process as usize];
            let args =
                args.into_iter().map(|(name, value)| (text(name), value.map_or_else(|text| text, text)));
            job.items.push(Drawn {
                process: process.id,
                track: track_name(&layout, track),
                kind,
                name: text(name),
                category: text(category),
                start,
                end,
                value,
                args: args.collect(),
                flows: flows.iter().map(|flow| format!("{flow:?}")).collect(),
            });
        }
        let in_order = layout.tracks.iter().enumerate().all(|(place, track)| {
            track.parent.is_none_or(|parent| {
                (parent as usize) < place && layout.tracks[parent as usize].process == track.process
            })
        });
        assert!(in_order);
        job.facts.add(&facts);
        job.layouts.push(layout);
    }
    Ok(job)
}

/// `(process, name, category, start, end)` of slices or instants, sorted.
type Line = (i64, String, String, i64, i64);

fn lines<'a>(items: impl Iterator<Item = &'a Drawn>) -> Vec<Line> {
    let line = |item: &Drawn| (item.process, item.name.clone(), item.category.clone(), item.start, item.end);
    let mut lines: Vec<Line> = items.map(line).collect();
    lines.sort();
    lines
}

fn sql_lines(connection: &Connection, sql: &str) -> Vec<Line> {
    let mut query = connection.prepare(sql).unwrap();
    let line = |row: &rusqlite::Row<'_>| {
        Ok((
            row.get(0)?,
            row.get::<_, Option<String>>(1)?.unwrap_or_default(),
            row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            row.get(3)?,
            row.get(4)?,
        ))
    };
    let mut lines: Vec<Line> = query.query_map([], line).unwrap().collect::<Result<_, _>>().unwrap();
    lines.sort();
    lines
}

/// The rows of all tables with a duration, as they should be drawn.
const SLICES: &str = "
    WITH e AS (SELECT event.id, s.string AS category, json_extract(event.extdata, '$.message') AS message
                 FROM rocpd_event event LEFT JOIN rocpd_string s ON s.id = event.category_id)
    SELECT r.pid, coalesce(nullif(e.message, ''), s.string), e.category, r.start, max(r.start, r.end)
      FROM rocpd_region r LEFT JOIN rocpd_string s ON s.id = r.name_id LEFT JOIN e ON e.id = r.event_id
    UNION ALL
    SELECT k.pid, coalesce(nullif(s.display_name, ''), s.kernel_name), e.category, k.start, max(k.start, k.end)
      FROM rocpd_kernel_dispatch k LEFT JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id
      LEFT JOIN e ON e.id = k.event_id
    UNION ALL
    SELECT c.pid, s.string, e.category, c.start, max(c.start, c.end)
      FROM rocpd_memory_copy c LEFT JOIN rocpd_string s ON s.id = c.name_id LEFT JOIN e ON e.id = c.event_id
    UNION ALL
    SELECT a.pid, a.type, e.category, a.start, max(a.start, a.end)
      FROM rocpd_memory_allocate a LEFT JOIN e ON e.id = a.event_id";

const INSTANTS: &str = "
    SELECT t.pid, coalesce(nullif(json_extract(e.extdata, '$.message'), ''), n.string), c.string, s.timestamp, s.timestamp
      FROM rocpd_sample s JOIN rocpd_track t ON t.id = s.track_id LEFT JOIN rocpd_string n ON n.id = t.name_id
      LEFT JOIN rocpd_event e ON e.id = s.event_id LEFT JOIN rocpd_string c ON c.id = e.category_id
     WHERE s.event_id IS NULL OR s.event_id NOT IN (SELECT event_id FROM rocpd_pmc_event WHERE event_id IS NOT NULL)";

/// How many kernels and copies have a call, and how many began before it.
const ARROWS: &str = "
    WITH sink AS (SELECT k.id, k.start, e.stack_id FROM rocpd_kernel_dispatch k JOIN rocpd_event e ON e.id = k.event_id
                  UNION ALL
                  SELECT c.id, c.start, e.stack_id FROM rocpd_memory_copy c JOIN rocpd_event e ON e.id = c.event_id),
         call AS (SELECT e.stack_id, min(r.start) AS start FROM rocpd_region r JOIN rocpd_event e ON e.id = r.event_id
                   WHERE e.stack_id <> 0 GROUP BY e.stack_id)
    SELECT sum(sink.start >= call.start), sum(sink.start < call.start) FROM sink JOIN call USING (stack_id)";

/// Compares all that can be compared, and returns what was read.
fn check(path: &Path) -> Job {
    let job = read(path, &Selection::default(), None, PLENTY);
    let database = Database::open(path);
    let facts = &job.facts;
    let tables: [(&str, &TableFacts, &str); 7] = [
        ("rocpd_region", &facts.regions, "max(0, end - start)"),
        ("rocpd_kernel_dispatch", &facts.kernels, "max(0, end - start)"),
        ("rocpd_memory_copy", &facts.copies, "max(0, end - start)"),
        ("rocpd_memory_allocate", &facts.allocations, "max(0, end - start)"),
        ("rocpd_sample", &facts.samples, "0"),
        ("rocpd_pmc_event", &facts.values, "0"),
        ("rocpd_arg", &facts.args, "0"),
    ];
    for (table, facts, duration) in tables {
        let rows = database.count(table) as u64;
        let sum = database.number(&format!("SELECT coalesce(sum({duration}), 0) FROM {table}"));
        assert_eq!((facts.rows, facts.drawn + facts.untimed), (rows, rows), "{table}: {facts:?}");
        assert_eq!((facts.left_out, facts.duration), (0, sum as u128), "{table}");
    }
    let connection = &database.connection;
    assert_eq!(lines(job.of("slice")), sql_lines(connection, SLICES));
    assert_eq!(lines(job.of("instant")), sql_lines(connection, INSTANTS));
    let counts = facts.items;
    let kinds = ["slice", "instant", "counter", "sample"].map(|kind| job.of(kind).count() as u64);
    assert_eq!(kinds, [counts.slices, counts.instants, counts.counters, counts.samples]);
    let arrows: Vec<Vec<String>> = database.rows(ARROWS);
    let number = |place: usize| arrows[0][place].parse::<u64>().unwrap_or(0);
    assert_eq!((facts.arrows, facts.backward), (number(0), number(1)));
    check_flows(&job);
    let first = job.layouts.iter().filter_map(|layout| layout.first).min();
    let last = job.layouts.iter().filter_map(|layout| layout.last).max();
    assert_eq!(first, job.items.iter().map(|item| item.start).min());
    assert_eq!(last, job.items.iter().map(|item| item.end).max());
    let surveyed: u64 = job.layouts.iter().map(|layout| layout.counts.slices).sum();
    assert_eq!(surveyed, counts.slices);
    job
}

/// Each arrow has one beginning and one end, in this order; those of collectives have any number.
fn check_flows(job: &Job) {
    let mut from: BTreeMap<&str, i64> = BTreeMap::new();
    let mut to: BTreeMap<&str, i64> = BTreeMap::new();
    for item in &job.items {
        for flow in &item.flows {
            let (sort, number) = flow.split_once('(').unwrap();
            match sort {
                "From" => assert!(from.insert(number, item.start).is_none()),
                "To" => assert!(to.insert(number, item.start).is_none()),
                _ => {}
            }
        }
    }
    assert_eq!(from.keys().collect::<Vec<_>>(), to.keys().collect::<Vec<_>>());
    assert!(from.iter().all(|(number, start)| to[number] >= *start));
    assert_eq!(from.len() as u64, job.facts.arrows);
}

fn merged(folder: &Path, inputs: &[PathBuf]) -> PathBuf {
    let path = folder.join("merged.db");
    let _ = rpd_merge().arg("-o").arg(&path).args(inputs).run().success();
    path
}

fn real(folder: &Path) -> PathBuf {
    merged(folder, &rocpd_databases(folder))
}

#[test]
fn all_rows_of_real_databases_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let job = check(&real(folder.path()));
    assert!(job.facts.arrows > 1000 && job.facts.items.counters > 6000);
    assert_eq!(job.layouts.len(), 4);
    let tracks: BTreeSet<&str> = job.items.iter().map(|item| item.track.as_str()).collect();
    for track in
        ["GPU 0/stream 2", "GPU 0/copies", "GPU 0/SQ_WAVES_0", "GPU 0/memory allocated", "thread 110000"]
    {
        assert!(tracks.contains(track), "{track}: {tracks:?}");
    }
}

#[test]
fn all_rows_of_older_files_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for file in rpd_files(folder.path()) {
        let _ = check(&merged(folder.path(), &[file]));
        std::fs::remove_file(folder.path().join("merged.db")).unwrap();
    }
}

#[test]
fn all_rows_of_synthetic_runs_are_drawn() {
    for seed in 0..6 {
        let run =
            SyntheticRun { seed, nodes: 2, ranks_per_node: 2, workers: true, ..SyntheticRun::default() };
        let folder = RunFolder::new(&run);
        let database = folder.merged();
        let path = PathBuf::from(database.connection.path().unwrap());
        let job = check(&path);
        // A collective of all ranks is one arrow.
        let mut ranks: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for item in &job.items {
            for flow in item.flows.iter().filter(|flow| flow.starts_with("Through")) {
                ranks.entry(flow).or_default().insert(item.process);
            }
        }
        assert!(ranks.values().any(|ranks| ranks.len() == 4), "{seed}: {}", ranks.len());
    }
}

#[test]
fn args_are_drawn_in_their_order_with_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = real(folder.path());
    let job = read(&path, &Selection::default(), None, PLENTY);
    let database = Database::open(&path);
    let sql =
        "SELECT r.pid, r.start, group_concat(a.name || '=' || coalesce(a.value, ''), ';' ORDER BY a.position)
                 FROM rocpd_region r JOIN rocpd_arg a ON a.event_id = r.event_id GROUP BY r.id";
    let mut query = database.connection.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let mut expected: Vec<(i64, i64, String)> =
        query.query_map([], row).unwrap().map(Result::unwrap).collect();
    let plain = |value: &str| match value.strip_prefix("Int(").or_else(|| value.strip_prefix("Double(")) {
        Some(number) => number.trim_end_matches(')').to_owned(),
        None => value.to_owned(),
    };
    let of_call = |item: &&Drawn| item.category != "KERNEL_DISPATCH" && !item.category.starts_with("MEMORY");
    let mut found: Vec<(i64, i64, String)> = Vec::new();
    for item in
        job.of("slice").filter(of_call).filter(|item| item.args.iter().any(|(name, _)| name != "call"))
    {
        let args = item.args.iter().filter(|(name, _)| name != "call");
        let args: Vec<_> = args.map(|(name, value)| format!("{name}={}", plain(value))).collect();
        found.push((item.process, item.start, args.join(";")));
    }
    expected.sort();
    found.sort();
    assert!(expected.len() > 1000);
    assert_eq!(found, expected);
}

#[test]
fn little_memory_draws_the_same() {
    let run =
        SyntheticRun { nodes: 1, ranks_per_node: 1, events_per_rank: 40_000, ..SyntheticRun::default() };
    let folder = RunFolder::new(&run);
    let database = folder.merged();
    let path = PathBuf::from(database.connection.path().unwrap());
    let plenty = check(&path);
    let little = read(&path, &Selection::default(), None, 0);
    assert_eq!(little.facts, plenty.facts);
    assert!(little.sorted() == plenty.sorted());
}

#[test]
fn rows_that_no_process_claims_are_told_apart_by_their_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = real(folder.path());
    let claimed = read(&path, &Selection::default(), None, PLENTY);
    let without = |sql: &str| {
        let connection = Connection::open(&path).unwrap();
        let table: String = connection
            .query_row("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_info_process_%'", [], |row| {
                row.get(0)
            })
            .unwrap();
        connection.execute(&sql.replace("PROCESS", &table), []).unwrap();
    };
    let claimed = claimed.sorted();
    // One of them, then all.
    for sql in [
        "UPDATE PROCESS SET extdata = json_remove(extdata, '$.rpd.rows') WHERE id = 2",
        "UPDATE PROCESS SET extdata = json_set(extdata, '$.rpd.rows.rocpd_region[0]', 1)",
    ] {
        without(sql);
        let job = read(&path, &Selection::default(), None, PLENTY);
        assert_eq!(job.facts.without_track, 0);
        let strip = |items: Vec<Drawn>| {
            let without_numbers = |mut item: Drawn| {
                // Arrows are numbered by unit.
                item.flows.iter_mut().for_each(|flow| flow.truncate(flow.find('(').unwrap_or(0)));
                item
            };
            let mut items: Vec<Drawn> = items.into_iter().map(without_numbers).collect();
            items.sort_by(|one, other| one.partial_cmp(other).unwrap());
            items
        };
        assert!(strip(job.sorted()) == strip(claimed.clone()), "{sql}");
    }
}

#[test]
fn what_is_not_asked_for_is_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = real(folder.path());
    let all = read(&path, &Selection::default(), None, PLENTY);
    let with = |exclude: &[What]| {
        let selection = Selection { exclude: exclude.to_vec(), ..Selection::default() };
        read(&path, &selection, None, PLENTY)
    };
    let job = with(&[What::Kernels, What::Flows]);
    assert_eq!((job.facts.kernels.drawn, job.facts.kernels.left_out), (0, all.facts.kernels.rows));
    assert_eq!(job.facts.values.left_out, all.facts.values.rows, "the counters of kernels go with them");
    assert!(job.items.iter().all(|item| item.category != "KERNEL_DISPATCH" && item.flows.is_empty()));
    let job = with(&[What::Category("HSA_CORE_API".to_owned()), What::Counters, What::Args]);
    assert!(job.items.iter().all(|item| item.category != "HSA_CORE_API" && item.kind != "counter"));
    assert_eq!(job.facts.args.left_out, all.facts.args.rows);
    assert_eq!(job.facts.regions.drawn + job.facts.regions.left_out, all.facts.regions.rows);
    let job = with(&[What::Markers]);
    assert!(job.items.iter().all(|item| !item.category.starts_with("MARKER")));

    let ranks = Selection { ranks: Some(vec![1..=2]), ..Selection::default() };
    let job = read(&path, &ranks, None, PLENTY);
    assert_eq!(
        job.layouts.iter().map(|layout| layout.processes[0].rank).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(job.facts.regions.rows, all.facts.regions.rows);
    assert_eq!(job.facts.regions.drawn + job.facts.regions.left_out, all.facts.regions.rows);
    let plain = Selection { annotations: false, group_by_queue: true, ..Selection::default() };
    let job = read(&path, &plain, None, PLENTY);
    assert!(job.items.iter().all(|item| item.args.is_empty()));
    assert!(job.items.iter().any(|item| item.track == "GPU 0/queue 2"));
    assert!(!job.items.iter().any(|item| item.track.contains("stream")));
}

#[test]
fn a_window_has_what_touches_it_and_the_counters_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = real(folder.path());
    let all = read(&path, &Selection::default(), None, PLENTY);
    let mut starts: Vec<i64> = all.of("slice").map(|item| item.start).collect();
    starts.sort_unstable();
    let (from, to) = (starts[starts.len() / 3], starts[starts.len() / 2]);
    let job = read(&path, &Selection::default(), Some((from, to)), PLENTY);
    let touches = |item: &Drawn| item.start < to && (item.kind == "counter" || item.end >= from);
    let mut expected: Vec<Drawn> = all.items.iter().filter(|item| touches(item)).cloned().collect();
    expected.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let facts = job.facts.regions;
    assert_eq!(facts.drawn + facts.left_out, all.facts.regions.rows);
    assert!(facts.left_out > 0 && facts.drawn > 0);
    let found = job.sorted();
    let differ = found.iter().zip(&expected).find(|(one, other)| one != other);
    assert_eq!((found.len(), differ), (expected.len(), None));
}

#[test]
fn a_database_that_is_damaged_anywhere_is_drawn_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = SyntheticRun { events_per_rank: 60, ..SyntheticRun::default() };
    let synthetic = RunFolder::new(&run);
    let database = synthetic.merged();
    let bytes = std::fs::read(database.connection.path().unwrap()).unwrap();
    let path = folder.path().join("damaged.db");
    let mut random = Random::new(&[11]);
    let (mut drawn, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut damaged = bytes.clone();
        for _ in 0..=random.index(3) {
            let at = random.index(damaged.len());
            damaged[at] = random.bits() as u8;
        }
        if random.chance(10) {
            damaged.truncate(random.index(damaged.len()));
        }
        std::fs::write(&path, &damaged).unwrap();
        match try_read(&path, &Selection::default(), None, PLENTY) {
            Ok(_) => drawn += 1,
            Err(failure) => {
                assert!(failure.to_string().contains("damaged.db"), "{failure}");
                refused += 1;
            }
        }
    }
    assert!(drawn > 0 && refused > 0, "{drawn} {refused}");
}

#[test]
fn what_is_no_merge_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = rocpd_databases(folder.path()).remove(0);
    assert!(!JobRows::is_merged(&input));
    let failure = JobRows::open(&input, &Selection::default()).unwrap_err();
    assert!(failure.to_string().contains("merge it first"), "{failure}");
    assert!(JobRows::is_merged(&real(folder.path())));
    assert!(!JobRows::is_merged(&folder.path().join("missing.db")));
}

#[test]
fn flow_ends_of_calls_and_collectives_have_numbers_of_their_own() {
    // The top bit tells them apart: numbers of calls never have it.
    let folder = RunFolder::new(&SyntheticRun::default());
    let database = folder.merged();
    let path = PathBuf::from(database.connection.path().unwrap());
    let rows = JobRows::open(&path, &Selection::default()).unwrap();
    for unit in 0..rows.units().len() {
        let layout = rows.survey(unit, &mut |_, _, _| {}).unwrap();
        let take = &mut |item: &rpd_merge::trace::item::Item<'_>| {
            for flow in item.flows {
                match flow {
                    FlowEnd::From(number) | FlowEnd::To(number) => assert_eq!(number >> 63, 0),
                    FlowEnd::Through(number) => assert_eq!(number >> 63, 1),
                }
            }
            Ok(())
        };
        let _ = rows.items(unit, &layout, &mut Dictionary::default(), PLENTY, take).unwrap();
    }
}
