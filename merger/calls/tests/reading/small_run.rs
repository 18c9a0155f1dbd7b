//! Small merged databases, written row by row.

use rpd_calls::{CallFile, ReadOptions, RunCalls};
use rpd_rocpd::{Guid, Writer};
use rpd_run::RunDatabase;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use std::path::PathBuf;
use tempfile::TempDir;

const GUID: Guid = Guid::from_bits(0x77);

/// A merged database that is being written. Each process has one thread with its number.
pub(crate) struct SmallRun {
    folder: TempDir,
    connection: Connection,
    strings: HashMap<String, i64>,
    tracks: HashMap<(i64, String), i64>,
    /// First and last event, region, sample and arg of each process, which must be written one after the other.
    first_ids: Vec<[i64; 4]>,
}

/// The tables whose rows a process claims, in the order of `first_ids`.
const CLAIMED: [&str; 4] = ["rocpd_event", "rocpd_region", "rocpd_sample", "rocpd_arg"];

impl SmallRun {
    pub(crate) fn new() -> SmallRun {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.db");
        let mut writer = Writer::create(&path, &GUID).unwrap();
        writer.metadata("rpd.version", "0").unwrap();
        writer.commit().unwrap();
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN").unwrap();
        let (strings, tracks) = (HashMap::new(), HashMap::new());
        SmallRun { folder, connection, strings, tracks, first_ids: Vec::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("run.db")
    }

    pub(crate) fn sql(&self, sql: &str) {
        self.connection.execute_batch(&sql.replace('%', &GUID.suffix())).unwrap();
    }

    pub(crate) fn count(&self, sql: &str) -> i64 {
        self.connection.query_row(&sql.replace('%', &GUID.suffix()), [], |row| row.get(0)).unwrap()
    }

    fn insert(&self, table: &str, columns: &str, values: &[&dyn rusqlite::ToSql]) -> i64 {
        let places = vec!["?"; values.len()].join(",");
        let sql = format!("INSERT INTO {table}{} ({columns}) VALUES ({places})", GUID.suffix());
        self.connection.prepare_cached(&sql).unwrap().execute(values).unwrap();
        self.connection.last_insert_rowid()
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = self.insert("rocpd_string", "string", params![text]);
        self.strings.insert(text.to_owned(), id);
        id
    }

    fn next_ids(&self) -> [i64; 4] {
        CLAIMED.map(|table| self.count(&format!("SELECT ifnull(max(id), 0) + 1 FROM {table}%")))
    }

    /// Begins the next process, which is a rank. Its rows follow.
    pub(crate) fn rank(&mut self, rank: u32, size: u32) -> i64 {
        let process = self.first_ids.len() as i64 + 1;
        let node = params![process, format!("machine {process}"), "node"];
        self.insert("rocpd_info_node", "hash, machine_id, hostname", node);
        let clock = format!(r#"{{"rpd":{{"rank":{rank},"size":{size},"clock":{{"bar_ns":7}}}}}}"#);
        self.insert("rocpd_info_process", "nid, pid, extdata", params![process, 100 + process, clock]);
        self.insert("rocpd_info_thread", "nid, pid, tid", params![process, process, process]);
        self.first_ids.push(self.next_ids());
        process
    }

    /// Adds another thread of the last process.
    pub(crate) fn thread(&mut self) -> i64 {
        let process = self.first_ids.len() as i64;
        self.insert("rocpd_info_thread", "nid, pid, tid", params![process, process, 1000])
    }

    fn event(&mut self, category: &str, stack: i64, parent: i64, args: &[(&str, &str)]) -> i64 {
        let category = self.string(category);
        let columns = "category_id, stack_id, parent_stack_id";
        let event = self.insert("rocpd_event", columns, params![category, stack, parent]);
        for (position, (name, value)) in (0i64..).zip(args) {
            let values = params![event, position, "int", name, value];
            self.insert("rocpd_arg", "event_id, position, type, name, value", values);
        }
        event
    }

    fn region(&mut self, thread: i64, span: (i64, i64), name: &str, event: Option<i64>) -> i64 {
        let (process, name) = (self.first_ids.len() as i64, self.string(name));
        let values = params![process, process, thread, span.0, span.1, name, event];
        self.insert("rocpd_region", "nid, pid, tid, start, end, name_id, event_id", values)
    }

    /// Adds a call to MPI on a thread. The stack id is that of the region, which is returned.
    pub(crate) fn call(&mut self, thread: i64, span: (i64, i64), name: &str, args: &[(&str, &str)]) -> i64 {
        let region = self.region(thread, span, name, None);
        let event = self.event("MPI_API", region, 0, args);
        self.sql(&format!("UPDATE rocpd_region% SET event_id = {event} WHERE id = {region}"));
        region
    }

    /// Adds a range.
    pub(crate) fn range(&mut self, thread: i64, span: (i64, i64), name: &str) {
        let event = self.event("MARKER_CORE_RANGE_API", 0, 0, &[]);
        self.region(thread, span, name, Some(event));
    }

    /// Returns the track of a thread with a name.
    fn track(&mut self, thread: i64, track: &str) -> i64 {
        let (process, name) = (self.first_ids.len() as i64, self.string(track));
        let known = self.tracks.get(&(thread, track.to_owned())).copied();
        known.unwrap_or_else(|| {
            let values = params![process, process, thread, name];
            let id = self.insert("rocpd_track", "nid, pid, tid, name_id", values);
            self.tracks.insert((thread, track.to_owned()), id);
            id
        })
    }

    /// Adds a sample of a Python stack, a JSON text.
    pub(crate) fn python_sample(&mut self, thread: i64, time: i64, stack: &str, extdata: &str) {
        let (track, category) = (self.track(thread, "Python stack"), self.string("PYTHON_SAMPLE"));
        let values = params![category, 0, 0, stack, extdata];
        let columns = "category_id, stack_id, parent_stack_id, call_stack, extdata";
        let event = self.insert("rocpd_event", columns, values);
        self.insert("rocpd_sample", "track_id, timestamp, event_id", params![track, time, event]);
    }

    /// Adds a sample on a track of a thread.
    pub(crate) fn sample(&mut self, thread: i64, track: &str, stacks: (i64, i64), args: &[(&str, &str)]) {
        let track = self.track(thread, track);
        let event = self.event("MPI_API", stacks.0, stacks.1, args);
        self.insert("rocpd_sample", "track_id, timestamp, event_id", params![track, 0, event]);
    }

    pub(crate) fn metadata(&mut self, tag: &str, value: &str) {
        self.insert("rocpd_metadata", "tag, value", params![tag, value]);
    }

    /// Writes which rows each process has, and commits.
    pub(crate) fn finish(&mut self) {
        let ends: Vec<[i64; 4]> = self.first_ids.iter().skip(1).copied().chain([self.next_ids()]).collect();
        for (process, (first, end)) in (1..).zip(self.first_ids.iter().zip(&ends)) {
            let claim = |(table, (first, end)): (&str, (&i64, &i64))| {
                format!("\"{table}\":[{first},{}]", end - first)
            };
            let mut claims: Vec<String> = CLAIMED.into_iter().zip(first.iter().zip(end)).map(claim).collect();
            for table in ["rocpd_info_thread", "rocpd_track"] {
                let of = |what: &str| {
                    self.count(&format!("SELECT ifnull({what}, 0) FROM {table}% WHERE pid = {process}"))
                };
                claims.push(format!("\"{table}\":[{},{}]", of("min(id)"), of("count(*)")));
            }
            let rows = claims.join(",");
            self.sql(&format!(
                "UPDATE rocpd_info_process% SET extdata = json_set(extdata, '$.rpd.rows', json('{{{rows}}}'))
                 WHERE id = {process}"
            ));
        }
        self.sql("COMMIT");
    }

    /// Finishes the database and reads its calls, with the keys of their rows. Those of the whole run must be the same
    /// in a file of calls.
    pub(crate) fn read(&mut self, options: &ReadOptions) -> RunCalls {
        self.finish();
        let (run, place) = (self.open(), self.path().with_extension("calls"));
        CallFile::write(&place, &run, 3).unwrap();
        let file = CallFile::open(&place, &run).unwrap().unwrap();
        let stored = RunCalls::from_file(&run, &file).unwrap();
        assert_eq!(stored, RunCalls::read(&run, &ReadOptions::default()).unwrap());
        let options = ReadOptions { keeps_row_keys: true, ..options.clone() };
        RunCalls::read(&self.open(), &options).unwrap()
    }

    pub(crate) fn open(&self) -> RunDatabase {
        RunDatabase::open(&self.path(), None).unwrap()
    }
}
