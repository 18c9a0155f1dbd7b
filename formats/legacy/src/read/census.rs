//! Finds the processes of a file, their threads, and the process of each session.

use super::RpdReadError;
use super::clocks::Overlap;
use super::schema::{RpdFile, identifier};
use super::value::{int, text};
use crate::{CLOCK_TAG, CLOCKS, ONE_TIME, ONE_TIME_TAG};
use rpd_shard::identity::unnamed_node;
use rpd_shard::record::{Clock, Node, Process};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of processes of one file, more than a node can run. Each recording process opens a session.
const MAX_PROCESSES: usize = 4096;
/// Maximum number of threads and sessions of one file.
const MAX_THREADS: usize = 1 << 20;
/// Maximum number of strings that are examined for the kind of a row: files of several processes repeat strings.
const MAX_KIND_STRINGS: usize = 1 << 20;
/// Names of roctx rows and of their domain.
pub(super) const MARKERS: [&str; 3] = ["usermarker", "roctx", "marker"];

/// A process of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Node number in a merged file, else 0.
    node: i64,
    pid: i32,
    pub(super) first: i64,
    pub(super) last: i64,
}

/// Result of the first pass.
#[derive(Debug, Default)]
pub(super) struct ProcessCensus {
    /// Processes by their number in the shard, from 1.
    pub(super) processes: Vec<Found>,
    by_pid: HashMap<(i64, i32), u32>,
    /// First process of each node.
    by_node: HashMap<i64, u32>,
    /// Placeholder description of each node.
    named: BTreeMap<i64, Node>,
    /// Process of each session. The upper half of an id is its session.
    sessions: HashMap<i64, u32>,
    /// Process and thread id, and first and last time of the thread.
    pub(super) threads: BTreeMap<(u32, i64), (i64, i64)>,
    /// Distance between the ids of two nodes, if the file states one.
    pid_stride: Option<i64>,
    pub(super) gpu_stride: Option<i64>,
    /// The clock that the file states.
    pub(super) clock: Option<Clock>,
    /// Whether the file states that all nodes share this clock.
    is_one_time: bool,
    /// Calls and ranges, to determine whether they are on one clock.
    pub(super) overlap: Overlap,
    /// Ids of the strings that identify roctx ranges; `runtime` holds those of HIP and HSA.
    ranges: HashSet<i64>,
    runtime: HashSet<i64>,
}

impl ProcessCensus {
    /// Reads the calls once.
    pub(super) fn take(input: &RpdFile) -> Result<ProcessCensus, RpdReadError> {
        let mut census = ProcessCensus::default();
        census.metadata(input)?;
        census.kinds(input)?;
        census.nodes(input)?;
        census.calls(input)?;
        if census.processes.is_empty() {
            census.add_unknown_process(input)?;
        }
        census.name_nodes();
        Ok(census)
    }

    fn metadata(&mut self, input: &RpdFile) -> Result<(), RpdReadError> {
        for (tag, value) in super::metadata(input)? {
            match tag.as_str() {
                "pid_stride" => self.pid_stride = value.parse().ok().filter(|stride| *stride > 1),
                "gpu_stride" => self.gpu_stride = value.parse().ok().filter(|stride| *stride > 1),
                CLOCK_TAG => self.clock = CLOCKS.into_iter().find(|clock| clock.name() == value),
                ONE_TIME_TAG => self.is_one_time = value == ONE_TIME,
                _ => {}
            }
        }
        Ok(())
    }

    /// Registers the processes of a file with several nodes in node order. A node that has only operations or
    /// values gets an unknown process.
    fn nodes(&mut self, input: &RpdFile) -> Result<(), RpdReadError> {
        let (Some(pids), Some(gpus)) = (self.pid_stride, self.gpu_stride) else { return Ok(()) };
        let mut met: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        let mut calls = numbers(input, "rocpd_api", "pid", "min(id)")?;
        calls.retain(|[pid, _]| *pid >= 0);
        for [pid, start] in calls {
            met.entry(pid / pids).or_default().push((pid, start));
        }
        for (table, gpu) in [("rocpd_op", "gpuId"), ("rocpd_monitor", "deviceId")] {
            for [gpu, start] in numbers(input, table, gpu, "1")? {
                let node = (gpu / gpus).max(0);
                met.entry(node).or_insert_with(|| vec![(node.saturating_mul(pids), start)]);
            }
        }
        // A single node: processes are registered in the order of their first calls.
        if met.keys().all(|node| *node == 0) {
            return Ok(());
        }
        for (pid, start) in met.into_values().flatten() {
            self.meet(pid, start, start).map_err(|(what, limit)| input.too_many(what, limit))?;
        }
        Ok(())
    }

    /// Names the nodes. The file does not state which machine a node was, only that nodes differ. Nodes that share
    /// one time get the same boot id, because boot ids distinguish clocks.
    fn name_nodes(&mut self) {
        let mut on_nodes: BTreeMap<i64, Vec<(i32, i64)>> = BTreeMap::new();
        for found in &self.processes {
            on_nodes.entry(found.node).or_default().push((found.pid, found.first));
        }
        let named =
            on_nodes.into_iter().map(|(number, processes)| (number, unnamed_node(number, &processes)));
        self.named = named.collect();
        let boot = self.named.values().next().map(|node| node.boot_id.clone());
        if let Some(boot) = boot.filter(|_| self.is_one_time) {
            self.named.values_mut().for_each(|node| node.boot_id.clone_from(&boot));
        }
    }

    /// Finds the names and domains that distinguish calls and ranges.
    fn kinds(&mut self, input: &RpdFile) -> Result<(), RpdReadError> {
        let failed = |source| input.error("rocpd_string", source);
        let sql = format!(
            "SELECT id, lower(string) IN ('{}') FROM rocpd_string
              WHERE lower(substr(string, 1, 3)) IN ('hip', 'hsa') OR lower(string) IN ('{0}') LIMIT {MAX_KIND_STRINGS}",
            MARKERS.join("', '")
        );
        let mut query = input.conn.prepare(&sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |i| row.get_ref(i).ok().and_then(int);
            let kind = if number(1) == Some(1) { &mut self.ranges } else { &mut self.runtime };
            kind.extend(number(0));
        }
        Ok(())
    }

    fn calls(&mut self, input: &RpdFile) -> Result<(), RpdReadError> {
        let failed = |source| input.error("rocpd_api", source);
        let mut select = input.select("rocpd_api", "a");
        for column in ["id", "pid", "tid", "start", "end", "apiName_id", "domain_id"] {
            select.column("rocpd_api", "a", column);
        }
        let mut query = input.conn.prepare(&select.sql("ORDER BY a.id")).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |i| row.get_ref(i).ok().and_then(int);
            let (Some(start), Some(pid)) = (number(3), number(1)) else { continue };
            let end = number(4).unwrap_or(start);
            let Some(source) =
                self.meet(pid, start, end).map_err(|(what, limit)| input.too_many(what, limit))?
            else {
                continue;
            };
            if let Some(id) = number(0) {
                self.sessions.entry(id >> 32).or_insert(source);
            }
            let tid = self.tid(number(2));
            let seen = self.threads.entry((source, tid)).or_insert((start, end));
            *seen = (seen.0.min(start), seen.1.max(end));
            if self.threads.len().max(self.sessions.len()) > MAX_THREADS {
                return Err(input.too_many("threads", MAX_THREADS));
            }
            let named =
                |kind: &HashSet<i64>| [5, 6].into_iter().filter_map(number).any(|id| kind.contains(&id));
            if named(&self.ranges) {
                self.overlap.add((source, tid), true, start, end);
            } else if named(&self.runtime) {
                self.overlap.add((source, tid), false, start, end);
            }
        }
        Ok(())
    }

    /// Returns the process with this id in the file, and registers it if it is new.
    fn meet(&mut self, pid: i64, start: i64, end: i64) -> Result<Option<u32>, (&'static str, usize)> {
        let Some(key) = self.pid(pid) else { return Ok(None) };
        let next = self.processes.len() as u32 + 1;
        let source = *self.by_pid.entry(key).or_insert(next);
        if source == next {
            if self.processes.len() == MAX_PROCESSES {
                return Err(("processes", MAX_PROCESSES));
            }
            self.processes.push(Found { node: key.0, pid: key.1, first: start, last: end });
            self.by_node.entry(key.0).or_insert(source);
        } else if let Some(found) = self.processes.get_mut(source as usize - 1) {
            found.first = found.first.min(start);
            found.last = found.last.max(end);
        }
        Ok(Some(source))
    }

    /// Registers an unknown process for a file that has operations but no call of a known process.
    fn add_unknown_process(&mut self, input: &RpdFile) -> Result<(), RpdReadError> {
        let mut rows = false;
        for table in ["rocpd_api", "rocpd_op", "rocpd_monitor", "rocpd_counter"] {
            rows |= input.has_rows(table)?;
        }
        if rows {
            let sql = "SELECT coalesce(min(start), 0) FROM rocpd_op WHERE typeof(start) = 'integer'";
            let first = if input.table("rocpd_op").is_some() { input.number("rocpd_op", sql)? } else { 0 };
            self.processes.push(Found { node: 0, pid: 0, first, last: first });
        }
        Ok(())
    }

    /// Returns node number and process id. A file with several nodes encodes both in one number.
    fn pid(&self, pid: i64) -> Option<(i64, i32)> {
        let (node, pid) = match self.pid_stride {
            Some(stride) if pid >= stride => (pid / stride, pid % stride),
            _ => (0, pid),
        };
        Some((node, i32::try_from(pid).ok()?))
    }

    /// Returns the thread id on its node; 0 if there is none.
    pub(super) fn tid(&self, tid: Option<i64>) -> i64 {
        match (tid, self.pid_stride) {
            (Some(tid), Some(stride)) if tid >= stride => tid % stride,
            (tid, _) => tid.unwrap_or(0),
        }
    }

    /// Returns the number of a GPU on its node.
    pub(super) fn gpu(&self, gpu: Option<i64>) -> Option<i64> {
        gpu.map(|gpu| self.gpu_stride.filter(|stride| gpu >= *stride).map_or(gpu, |stride| gpu % stride))
    }

    /// Returns the process with this id in the file.
    pub(super) fn by_pid(&self, pid: Option<i64>) -> Option<u32> {
        self.by_pid.get(&self.pid(pid?)?).copied()
    }

    /// Returns the process of the session in an id, or else the first process.
    pub(super) fn by_session(&self, id: Option<i64>) -> u32 {
        id.and_then(|id| self.sessions.get(&(id >> 32)).copied()).unwrap_or(1)
    }

    /// Returns the clock of the file, and the evidence that ranges are on another clock.
    pub(super) fn clock(&self, forced: Option<Clock>, marker_offset: Option<i64>) -> (Clock, Option<String>) {
        let mixed = match self.clock {
            // rpd-merge has aligned the clocks.
            Some(_) => None,
            None => self.overlap.mixed(),
        };
        let shifted = mixed.is_some() || marker_offset.is_some();
        let found = self.clock.unwrap_or(if shifted { Clock::Boottime } else { Clock::Monotonic });
        (forced.unwrap_or(found), mixed)
    }

    /// Returns the first process of the node that a GPU number encodes, or else the result of
    /// [`ProcessCensus::by_session`].
    pub(super) fn by_place(&self, id: Option<i64>, gpu: Option<i64>) -> u32 {
        let node = gpu.zip(self.gpu_stride).map(|(gpu, stride)| gpu / stride);
        match node.and_then(|node| self.by_node.get(&node)) {
            // A session identifies a process, but files of several nodes have only one session.
            Some(first) if self.sessions.len() < 2 => *first,
            _ => self.by_session(id),
        }
    }

    /// Returns the description of a process.
    pub(super) fn process(&self, source: u32, clock: Clock) -> Option<Process> {
        let found = self.processes.get((source as usize).checked_sub(1)?)?;
        let node = self.named.get(&found.node)?.clone();
        Some(Process {
            source,
            pid: found.pid,
            first_seen: found.first,
            last_seen: Some(found.last),
            ..Process::of_file(node, clock)
        })
    }
}

/// Returns the distinct numbers in a column, and the first time of each. Skips values that are not numbers.
fn numbers(
    input: &RpdFile,
    table: &'static str,
    column: &str,
    order: &str,
) -> Result<Vec<[i64; 2]>, RpdReadError> {
    let Some(column) = input.table(table).and_then(|info| info.column(column)) else { return Ok(Vec::new()) };
    let failed = |source| input.error(table, source);
    let column = identifier(&column.name);
    let sql = format!(
        "SELECT {column}, min(start) FROM {table} GROUP BY {column} ORDER BY {order} LIMIT {MAX_THREADS}"
    );
    let mut query = input.conn.prepare(&sql).map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let number = |i| row.get_ref(i).ok().and_then(int);
        found.extend(number(0).zip(number(1)).map(|(a, b)| [a, b]));
    }
    Ok(found)
}

/// Returns whether a text is the name or the domain of roctx rows.
pub(super) fn is_marker(value: rusqlite::types::ValueRef<'_>) -> bool {
    text(value).is_some_and(|text| MARKERS.iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes())))
}
