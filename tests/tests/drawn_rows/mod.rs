//! What is drawn of a merged database is what the database says, by SQL.

mod broken;
mod chosen;
mod whole;

use rpd_shard::model::rocpd;
use rpd_tests::fixtures::rocpd_databases;
use rpd_tests::harness::{Database, rpd_merge};
use rpd_trace::{ArgValue, ItemKind, JobRows, TraceSelection, TrackKind, UnitFacts, UnitLayout};
use rusqlite::Connection;
use std::collections::BTreeMap;
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
    facts: UnitFacts,
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

fn read(path: &Path, selection: &TraceSelection, window: Option<(i64, i64)>, memory: u64) -> Job {
    try_read(path, selection, window, memory).unwrap()
}

fn try_read(
    path: &Path,
    selection: &TraceSelection,
    window: Option<(i64, i64)>,
    memory: u64,
) -> Result<Job, rpd_console::Failure> {
    let mut rows = JobRows::open(path, selection)?;
    rows.set_window(window);
    let mut job = Job { facts: rows.unselected(), ..Job::default() };
    for unit in 0..rows.units().len() {
        let layout = rows.survey(unit, &mut |_| job.surveyed += 1)?;
        // Texts are looked up when all are known.
        let mut items = Vec::new();
        let (facts, dictionary) = rows.items(unit, &layout, memory, &mut |item| {
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
                ItemKind::Slice => ("slice", String::new()),
                ItemKind::Instant => ("instant", String::new()),
                ItemKind::Counter(value) => ("counter", format!("{value:?}")),
                ItemKind::Sample(stack) => {
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
    let job = read(path, &TraceSelection::default(), None, PLENTY);
    let database = Database::open(path);
    let facts = &job.facts;
    let tables = [
        (rocpd::REGION, "max(0, end - start)"),
        (rocpd::KERNEL_DISPATCH, "max(0, end - start)"),
        (rocpd::MEMORY_COPY, "max(0, end - start)"),
        (rocpd::MEMORY_ALLOCATE, "max(0, end - start)"),
        (rocpd::SAMPLE, "0"),
        (rocpd::PMC_EVENT, "0"),
        (rocpd::ARG, "0"),
    ];
    for (table, duration) in tables {
        let (facts, table) = (facts.table(table), &table.to_string());
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
    assert_eq!((facts.launch_flows, facts.backward), (number(0), number(1)));
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
    assert_eq!(from.len() as u64, job.facts.launch_flows);
}

fn merged(folder: &Path, inputs: &[PathBuf]) -> PathBuf {
    let path = folder.join("merged.db");
    let _ = rpd_merge().arg("-o").arg(&path).args(inputs).run().success();
    path
}

/// A merge of the real databases; `None` where they are not here.
fn real(folder: &Path) -> Option<PathBuf> {
    let databases = rocpd_databases(folder);
    (!databases.is_empty()).then(|| merged(folder, &databases))
}
