//! What a trace of a merged database must show, found with SQL and nothing of the merger.

use rpd_tests::harness::Database;
use rusqlite::Row;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Process, and the names of the tracks down to this one, with `/` between them.
pub(crate) type Key = (String, String);

/// Something with a duration, or none; times in ns since the first time of the job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span {
    pub(crate) key: Key,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) name: String,
    pub(crate) category: Option<String>,
}

/// The end of an arrow: a span, by track, start and name.
pub(crate) type End = (Key, i64, String);

/// All that there is to draw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawing {
    /// Regions, kernels, copies, allocations, instants.
    pub(crate) spans: Vec<Span>,
    /// Values of each counter over time.
    pub(crate) values: BTreeMap<Key, Vec<(i64, f64)>>,
    /// From calls to what they launched.
    pub(crate) arrows: Vec<(End, End)>,
    /// The calls of each collective.
    pub(crate) joint: Vec<Vec<End>>,
    /// The calls of each message, in the order of their starts.
    pub(crate) messages: Vec<Vec<End>>,
    /// Samples of call stacks: thread, time, functions from the outermost on.
    pub(crate) samples: Vec<(Key, i64, String)>,
    /// Last time of each process.
    pub(crate) last: BTreeMap<String, i64>,
}

/// The name of a thread or stream that its input recorded: tracks are below one with the rank.
const RECORDED: &str = "iif(json_type(extdata, '$.rpd.recorded_name') IS NULL, name, json_extract(extdata, '$.rpd.recorded_name'))";

/// The names of tracks by process and thread, and all rows with a time in one table.
const PREPARE: &str = r#"
CREATE TEMP TABLE process AS SELECT p.id, CASE
    WHEN p.command GLOB 'rpd-collect: system metrics of *' THEN 'node ' || n.hostname
    WHEN json_extract(p.extdata, '$.rpd.rank') IS NULL THEN 'process ' || p.pid || ' (' || n.shown || ')'
    ELSE 'rank ' || json_extract(p.extdata, '$.rpd.rank')
        || iif(json_extract(p.extdata, '$.rpd.worker'), ' worker', '') || ' (' || n.shown || ')' END AS name
  FROM rocpd_info_process p JOIN (SELECT *, iif(hostname GLOB 'unknown-????????*', 'host unknown', hostname) AS shown
    FROM rocpd_info_node) n ON n.id = p.nid;
CREATE TEMP TABLE thread AS SELECT id, coalesce(nullif(RECORDED, ''), 'thread ' || tid) AS name FROM rocpd_info_thread;
CREATE TEMP TABLE agent AS WITH called AS (SELECT *,
      iif(type = 'GPU', 'GPU', 'CPU') || ' ' || coalesce(type_index, logical_index, absolute_index) AS label
      FROM rocpd_info_agent)
  SELECT id, type = 'GPU' AS gpu, label
    || coalesce(' (' || coalesce(json_extract(extdata, '$.rpd.pci'),
        iif(json_extract(extdata, '$.location_id') > 0, printf('%04x:%02x:%02x.%x',
            coalesce(json_extract(extdata, '$.domain'), 0), json_extract(extdata, '$.location_id') >> 8,
            (json_extract(extdata, '$.location_id') >> 3) & 31, json_extract(extdata, '$.location_id') & 7), NULL))
        || ')', '') || '/' || label || ' ' AS name FROM called;
CREATE TEMP TABLE stream AS WITH called AS (SELECT id, pid, coalesce(json_extract(extdata, '$.rpd.id'), id) AS number,
      CASE WHEN coalesce(RECORDED, '') = '' THEN 'stream ' || (row_number() OVER (PARTITION BY pid ORDER BY id) - 1)
        WHEN RECORDED LIKE '%stream%' THEN RECORDED ELSE 'stream ' || RECORDED END AS name FROM rocpd_info_stream)
  SELECT id, name || iif(count(*) OVER (PARTITION BY pid, name) > 1, ' [' || number || ']', '') AS name FROM called;
CREATE TEMP TABLE event AS SELECT e.id, c.string AS category, coalesce(e.stack_id, 0) AS stack,
    nullif(json_extract(e.extdata, '$.message'), '') AS message, e.call_stack,
    e.id IN (SELECT event_id FROM rocpd_pmc_event) AS counts,
    coalesce(json_extract(e.extdata, '$.message'), '') <> '' OR e.id IN (SELECT event_id FROM rocpd_arg) AS says
  FROM rocpd_event e LEFT JOIN rocpd_string c ON c.id = e.category_id;
CREATE UNIQUE INDEX temp.event_id ON event (id);
CREATE TEMP TABLE span AS
  SELECT 'region' AS kind, r.id, r.pid, t.name AS path, r.start, r.end, coalesce(e.message, s.string) AS name, r.event_id,
      s.string AS call
    FROM rocpd_region r JOIN thread t ON t.id = r.tid JOIN rocpd_string s ON s.id = r.name_id
    LEFT JOIN event e ON e.id = r.event_id
  UNION ALL SELECT 'kernel', k.id, k.pid, a.name || q.name,
      k.start, k.end, coalesce(nullif(s.display_name, ''), s.kernel_name), k.event_id, NULL
    FROM rocpd_kernel_dispatch k JOIN agent a ON a.id = k.agent_id JOIN stream q ON q.id = k.stream_id
    JOIN rocpd_info_kernel_symbol s ON s.id = k.kernel_id
  UNION ALL SELECT 'copy', c.id, c.pid, coalesce(CASE WHEN d.gpu THEN d.name WHEN f.gpu THEN f.name
        ELSE coalesce(d.name, f.name) END, '') || 'copies', c.start, c.end, s.string, c.event_id, NULL
    FROM rocpd_memory_copy c JOIN rocpd_string s ON s.id = c.name_id LEFT JOIN agent d ON d.id = c.dst_agent_id
    LEFT JOIN agent f ON f.id = c.src_agent_id
  UNION ALL SELECT 'allocation', m.id, m.pid, coalesce(a.name, '') || 'allocations', m.start, m.end, m.type, m.event_id, NULL
    FROM rocpd_memory_allocate m LEFT JOIN agent a ON a.id = m.agent_id
  UNION ALL SELECT CASE WHEN e.call_stack NOT IN ('{}', '[]') AND t.tid IS NOT NULL AND NOT e.says THEN 'sample'
        WHEN e.call_stack NOT IN ('{}', '[]') OR e.says OR NOT coalesce(e.counts, 0) THEN 'instant' ELSE 'values' END,
      p.id, t.pid, coalesce(h.name, nullif(s.string, ''), 'samples'), p.timestamp, p.timestamp,
      coalesce(e.message, s.string), p.event_id, NULL
    FROM rocpd_sample p JOIN rocpd_track t ON t.id = p.track_id LEFT JOIN thread h ON h.id = t.tid
    LEFT JOIN rocpd_string s ON s.id = t.name_id LEFT JOIN event e ON e.id = p.event_id;
CREATE INDEX temp.span_event ON span (event_id);
CREATE TEMP TABLE zero AS SELECT min(start) AS t FROM span;
"#;

const SPANS: &str = "SELECT p.name, s.path, s.start - t, max(s.start, s.end) - t, s.name, e.category
    FROM span s JOIN zero JOIN process p ON p.id = s.pid LEFT JOIN event e ON e.id = s.event_id
    WHERE s.kind NOT IN ('sample', 'values')";

const SAMPLES: &str = "SELECT p.name, s.path, s.start - t, e.call_stack
    FROM span s JOIN zero JOIN process p ON p.id = s.pid LEFT JOIN event e ON e.id = s.event_id
    WHERE s.kind = 'sample'";

/// Each value from the beginning of its span, and 0 from its end.
const VALUES: &str = "SELECT p.name, iif(a.gpu, a.name, '') || i.name, s.start - t, v.value
    FROM rocpd_pmc_event v JOIN rocpd_info_pmc i ON i.id = v.pmc_id JOIN process p ON p.id = i.pid
    LEFT JOIN agent a ON a.id = i.agent_id JOIN span s ON s.event_id = v.event_id JOIN zero
    UNION ALL SELECT p.name, iif(a.gpu, a.name, '') || i.name, max(s.start, s.end) - t, 0.0
    FROM rocpd_pmc_event v JOIN rocpd_info_pmc i ON i.id = v.pmc_id JOIN process p ON p.id = i.pid
    LEFT JOIN agent a ON a.id = i.agent_id JOIN span s ON s.event_id = v.event_id JOIN zero
    WHERE s.kind NOT IN ('instant', 'sample', 'values')";

const MEMORY: &str = "SELECT p.name, coalesce(a.name, ''), coalesce(m.level, 'REAL'), m.type, m.address, m.size,
      iif(m.type IN ('ALLOC', 'REALLOC'), max(m.start, m.end), m.start) - t AS at
    FROM rocpd_memory_allocate m JOIN zero JOIN process p ON p.id = m.pid LEFT JOIN agent a ON a.id = m.agent_id
    ORDER BY at, m.id";

/// The call that began last before what it launched; of several at that time, the first row.
const ARROWS: &str = "WITH launched AS (
      SELECT s.pid, s.path, s.start, s.name, e.stack FROM span s JOIN event e ON e.id = s.event_id
      WHERE s.kind IN ('kernel', 'copy') AND e.stack <> 0),
    call AS MATERIALIZED (SELECT s.id, s.pid, s.path, s.start, s.name, e.stack FROM span s JOIN event e ON e.id = s.event_id
      WHERE s.kind = 'region' AND e.stack <> 0)
    SELECT p.name, c.path, c.start - t, c.name, l.path, l.start - t, l.name
    FROM launched l JOIN zero JOIN process p ON p.id = l.pid
    JOIN call c ON c.stack = l.stack AND c.pid = l.pid AND c.start <= l.start
    WHERE NOT EXISTS (SELECT 1 FROM call o WHERE o.stack = l.stack AND o.pid = l.pid AND o.start <= l.start
      AND (o.start > c.start OR o.start = c.start AND o.id < c.id))";

/// Calls on communicators that several ranks know by the same name.
const JOINT: &str =
    "SELECT comm.value || ' ' || seq.value || ' ' || replace(s.call || ' ', '_c ', ' '), p.name, s.path,
      s.start - t, s.name
    FROM span s JOIN zero JOIN process p ON p.id = s.pid
    JOIN rocpd_arg comm ON comm.event_id = s.event_id AND comm.name = 'comm'
    JOIN rocpd_arg seq ON seq.event_id = s.event_id AND seq.name = 'seq'
    WHERE s.kind = 'region' AND (s.call GLOB 'MPI_*' OR s.call GLOB 'nccl*') AND comm.value <> 'MPI_COMM_SELF'
    ORDER BY s.start";

/// The call that starts to send each message, and the call that completes its receive. Messages with the same communicator,
/// sender, receiver and tag are received in the order in which they are sent. No message is larger than its buffer, or received before
/// it is sent by more than the error bounds of the clocks.
const MESSAGES: &str = "WITH call AS MATERIALIZED (
      SELECT s.pid, s.path, s.start, s.end, s.name, s.call, e.stack, json_extract(i.extdata, '$.rpd.rank') AS rank, comm.value AS comm,
        peer.value AS peer, tag.value AS tag,
        CAST(bytes.value AS INTEGER) AS bytes, json_extract(i.extdata, '$.rpd.clock.bar_ns') AS bar
      FROM span s JOIN event e ON e.id = s.event_id JOIN rocpd_info_process i ON i.id = s.pid
      JOIN rocpd_arg comm ON comm.event_id = s.event_id AND comm.name = 'comm'
      JOIN rocpd_arg peer ON peer.event_id = s.event_id AND peer.name = 'peer'
      JOIN rocpd_arg tag ON tag.event_id = s.event_id AND tag.name = 'tag'
      JOIN rocpd_arg bytes ON bytes.event_id = s.event_id AND bytes.name = 'bytes'
      WHERE s.kind = 'region' AND s.call IN ('MPI_Send', 'MPI_Isend', 'MPI_Recv', 'MPI_Irecv')),
    completed AS MATERIALIZED (
      SELECT t.pid, e.stack_id AS begun, e.parent_stack_id AS by FROM rocpd_sample p JOIN rocpd_track t ON t.id = p.track_id
      JOIN rocpd_event e ON e.id = p.event_id JOIN rocpd_string c ON c.id = t.name_id WHERE c.string = 'MPI request'),
    completing AS MATERIALIZED (SELECT s.pid, s.path, s.start, s.end, s.name, e.stack FROM span s JOIN event e ON e.id = s.event_id
      WHERE s.kind = 'region' AND e.stack <> 0),
    sent AS (SELECT *, row_number() OVER (PARTITION BY comm, rank, peer, tag ORDER BY start) AS n FROM call
      WHERE call LIKE 'MPI_%send'),
    received AS (SELECT *, row_number() OVER (PARTITION BY comm, peer, rank, tag ORDER BY start) AS n FROM call
      WHERE call LIKE 'MPI_%recv'),
    arrived AS (SELECT comm, rank, peer, tag, n, bytes, bar, pid, path, start, name, received.end FROM received WHERE call = 'MPI_Recv'
      UNION ALL SELECT r.comm, r.rank, r.peer, r.tag, r.n, r.bytes, r.bar, r.pid, w.path, w.start, w.name, NULL FROM received r
      JOIN completed c ON c.pid = r.pid AND c.begun = r.stack JOIN completing w ON w.pid = c.pid AND w.stack = c.by
      WHERE r.call = 'MPI_Irecv')
    SELECT ps.name, s.path, s.start - t, s.name, pr.name, r.path, r.start - t, r.name
    FROM sent s JOIN zero JOIN arrived r ON r.comm = s.comm AND r.peer = s.rank AND r.rank = s.peer AND r.tag = s.tag AND r.n = s.n
      AND r.bytes >= s.bytes AND coalesce(r.end + r.bar + s.bar >= s.start, true)
    JOIN process ps ON ps.id = s.pid JOIN process pr ON pr.id = r.pid";

impl Drawing {
    /// Reads what there is in a merged database.
    pub(crate) fn of(database: &Database) -> Drawing {
        database.connection.execute_batch(&PREPARE.replace("RECORDED", RECORDED)).unwrap();
        let mut drawing = Drawing::default();
        each(database, SPANS, |row| {
            let (start, end) = (row.get(2)?, row.get(3)?);
            let span = Span { key: key(row)?, start, end, name: text(row, 4)?, category: row.get(5)? };
            drawing.spans.push(span);
            Ok(())
        });
        each(database, SAMPLES, |row| {
            drawing.samples.push((key(row)?, row.get(2)?, functions(&row.get::<_, String>(3)?)));
            Ok(())
        });
        each(database, VALUES, |row| {
            drawing.values.entry(key(row)?).or_default().push((row.get(2)?, row.get(3)?));
            Ok(())
        });
        each(database, ARROWS, |row| {
            let process: String = row.get(0)?;
            let from = ((process.clone(), row.get(1)?), row.get(2)?, text(row, 3)?);
            drawing.arrows.push((from, ((process, row.get(4)?), row.get(5)?, text(row, 6)?)));
            Ok(())
        });
        let mut joint: BTreeMap<String, Vec<End>> = BTreeMap::new();
        each(database, JOINT, |row| {
            let end = ((row.get(1)?, row.get(2)?), row.get(3)?, text(row, 4)?);
            joint.entry(row.get(0)?).or_default().push(end);
            Ok(())
        });
        drawing.joint = joint.into_values().collect();
        each(database, MESSAGES, |row| {
            let sent = ((row.get(0)?, row.get(1)?), row.get(2)?, text(row, 3)?);
            let received = ((row.get(4)?, row.get(5)?), row.get(6)?, text(row, 7)?);
            let mut calls: Vec<End> = vec![sent, received];
            // Files have processes in the order of their ranks.
            calls.sort_by(|a, b| (a.1, &a.0.0).cmp(&(b.1, &b.0.0)));
            drawing.messages.push(calls);
            Ok(())
        });
        drawing.memory(database);
        drawing.spans.sort();
        drawing.samples.sort();
        drawing.arrows.sort();
        drawing.values.values_mut().for_each(|values| values.sort_by(|a, b| a.partial_cmp(b).unwrap()));
        let last =
            "SELECT p.name, max(max(s.start, s.end) - t) FROM span s JOIN zero JOIN process p ON p.id = s.pid
            GROUP BY p.name";
        each(database, last, |row| {
            drawing.last.insert(row.get(0)?, row.get(1)?);
            Ok(())
        });
        drawing
    }

    /// The memory that is allocated: from the end of an allocation to the beginning of its release.
    fn memory(&mut self, database: &Database) {
        let mut at_address: HashMap<(String, String, i64), (Key, i64)> = HashMap::new();
        let mut sums: HashMap<Key, i64> = HashMap::new();
        each(database, MEMORY, |row| {
            let (process, agent, level): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (kind, address): (String, Option<i64>) = (row.get(3)?, row.get(4)?);
            let (size, at): (i64, i64) = (row.get(5)?, row.get(6)?);
            let what = match level.as_str() {
                "VIRTUAL" => "virtual memory allocated",
                "SCRATCH" => "scratch memory allocated",
                _ => "memory allocated",
            };
            let is_there = matches!(kind.as_str(), "ALLOC" | "REALLOC");
            let track = (process.clone(), format!("{agent}{what}"));
            let place = address.map(|address| (process, level, address));
            // What was at the address is no more, whoever takes it.
            if let Some((before, bytes)) = place.as_ref().and_then(|place| at_address.remove(place)) {
                let sum = sums.entry(before.clone()).or_default();
                *sum -= bytes;
                if !is_there || before != track {
                    self.values.entry(before).or_default().push((at, *sum as f64));
                }
            }
            if is_there {
                let sum = sums.entry(track.clone()).or_default();
                *sum += size;
                self.values.entry(track.clone()).or_default().push((at, *sum as f64));
                if let Some(place) = place {
                    at_address.insert(place, (track, size));
                }
            }
            Ok(())
        });
    }
}

/// The functions of a call stack, which is stored from the innermost one on; 512 are drawn.
fn functions(call_stack: &str) -> String {
    let mut stack: Value = serde_json::from_str(call_stack).unwrap();
    if let Some(frames) = stack.get_mut("frames") {
        stack = frames.take();
    }
    let name = |frame: &Value| {
        let names = ["name", "function"].into_iter().filter_map(|name| frame[name].as_str());
        frame.as_str().into_iter().chain(names).next().unwrap().to_owned()
    };
    let mut names: Vec<String> = stack.as_array().unwrap().iter().take(512).map(name).collect();
    names.reverse();
    names.join(";")
}

fn key(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok((row.get(0)?, row.get(1)?))
}

/// A text, which need not be UTF-8.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(column)?.as_bytes_or_null().unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned())
}

fn each(database: &Database, sql: &str, mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) {
    let mut statement = database.connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap_or_else(|error| panic!("{sql}: {error}")) {
        take(row).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}
