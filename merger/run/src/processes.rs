//! The processes of a run.

use crate::row_times::is_row_time;
use crate::tables::{IdRanges, RunTables};
use crate::units::unit_tables;
use rpd_console::Failure;
use rpd_shard::model::{TableId, Value, rocpd};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Order of processes without a rank, after all ranks.
const NO_RANK: u32 = u32::MAX;
/// Beginning of the command of the collector's sampler of a node.
const SAMPLER_COMMAND: &str = "rpd-collect: system metrics of ";
/// Maximum number of characters in the name of a process, a track or a node.
const MAX_NAME_CHARS: usize = 1024;
/// Maximum length of the name of a signal.
const MAX_SIGNAL_NAME: usize = 16;

/// A process of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessIdentity {
    /// Name: `rank 3 (node07)`, `rank 3 worker (node07)`, or `node node07` for the system metrics of a node.
    pub name: String,
    /// Sort key among all processes of the job.
    pub order: (u32, u32, i64),
    /// Process id on its node. It is not unique in the job.
    pub pid: i64,
    /// Host name.
    pub host: String,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Key of its row in `rocpd_info_process`; 0 for rows that no process claims.
    pub id: i64,
}

impl ProcessIdentity {
    /// Returns whether the input does not name the host, so that its name was generated.
    pub fn lacks_host(&self) -> bool {
        is_generated(&self.host)
    }
}

/// A process of the job, and the rows that it claims.
#[derive(Clone, Debug)]
pub struct RunProcess {
    /// Identity of the process.
    pub info: ProcessIdentity,
    /// Whether the process is selected.
    pub is_selected: bool,
    /// Whether it is no rank itself: a process that a rank started, or the sampler of a node.
    pub is_helper: bool,
    /// Whether its command is an interpreter of Python.
    pub is_python: bool,
    /// How it failed, in words: `died by signal 9 (SIGKILL)`; `None` if it did not, or that is not known.
    pub failure: Option<String>,
    /// When it ended, ns in job time; `None` if it is not known.
    pub ended_ns: Option<i64>,
    /// Ranges of ids that it claims, first and last.
    pub(crate) claims: BTreeMap<TableId, (i64, i64)>,
}

/// Returns whether the program of a command line is an interpreter of Python: `/usr/bin/python3.12 train.py`.
fn is_python(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("pypy")
}

/// Number of digits in a generated name of a host.
const HASH_DIGITS: usize = 8;

/// Returns the processes of the job in the order of their ids. `ranks` are the selected ranks.
pub(crate) fn read_processes(
    tables: &RunTables,
    ranks: Option<&[RangeInclusive<u32>]>,
) -> Result<Vec<RunProcess>, Failure> {
    let mut nodes: HashMap<i64, String> = HashMap::new();
    tables.read_rows(rocpd::INFO_NODE, &IdRanges::all(), &["hostname"], &mut |rows, places| {
        for i in places {
            nodes.insert(rows.keys.get(i), text(rows.column("hostname").get(i)));
        }
        Ok(())
    })?;
    let mut found = Vec::new();
    let wanted = &["nid", "pid", "end", "command", "extdata"];
    tables.read_rows(rocpd::INFO_PROCESS, &IdRanges::all(), wanted, &mut |rows, places| {
        for i in places {
            let extdata = json_object(rows.column("extdata").get(i));
            let stored = |name: &str| extdata.get("rpd").and_then(|stored| stored.get(name));
            let (id, pid) = (rows.keys.get(i), rows.column("pid").int(i).unwrap_or(0));
            let node = rows.column("nid").int(i).and_then(|nid| nodes.get(&nid));
            let host = node.cloned().unwrap_or_default();
            let command = text(rows.column("command").get(i));
            let is_node = command.starts_with(SAMPLER_COMMAND);
            let is_worker = stored("worker").and_then(Json::as_bool).unwrap_or(false);
            let rank = stored("rank").and_then(Json::as_u64).and_then(|rank| u32::try_from(rank).ok());
            let rank = rank.filter(|_| !is_node);
            let place = match host.as_str() {
                "" => String::new(),
                host if is_generated(host) => " (host unknown)".to_owned(),
                host => format!(" ({host})"),
            };
            let name = match rank {
                _ if is_node && host.is_empty() => "node".to_owned(),
                _ if is_node => format!("node {host}"),
                Some(rank) if is_worker => format!("rank {rank} worker{place}"),
                Some(rank) => format!("rank {rank}{place}"),
                None => format!("process {pid}{place}"),
            };
            let kind = if is_node { 2 } else { u32::from(is_worker) };
            let order = (rank.unwrap_or(NO_RANK), kind, id);
            let is_selected =
                ranks.zip(rank).is_none_or(|(ranks, rank)| ranks.iter().any(|range| range.contains(&rank)));
            let claims = stored("rows").and_then(Json::as_object).map(read_claims).unwrap_or_default();
            let info = ProcessIdentity { name, order, pid, host, rank, id };
            found.push(RunProcess {
                info,
                is_selected,
                is_helper: is_node || is_worker,
                is_python: is_python(&command),
                failure: stored("exit").and_then(failure_text),
                ended_ns: rows.column("end").int(i).filter(|ns| is_row_time(*ns)),
                claims,
            });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns whether a merge generated the name of a host, because the input names none: `unknown-1ded4f6f (pid 4711)`.
fn is_generated(host: &str) -> bool {
    let hash = host.strip_prefix("unknown-").and_then(|rest| rest.split_at_checked(HASH_DIGITS));
    hash.is_some_and(|(hash, rest)| {
        hash.bytes().all(|digit| digit.is_ascii_hexdigit()) && (rest.is_empty() || rest.starts_with(" ("))
    })
}

/// Describes a failure from `{"code": 7}` or `{"signal": 9, "name": "SIGKILL"}`; `None` for exit code 0 and anything else.
fn failure_text(exit: &Json) -> Option<String> {
    if let Some(code) = exit.get("code").and_then(Json::as_i64) {
        return (code != 0).then(|| format!("ended with exit code {code}"));
    }
    let signal = exit.get("signal").and_then(Json::as_i64)?;
    let name = exit.get("name").and_then(Json::as_str).unwrap_or_default();
    let is_name = !name.is_empty() && name.len() <= MAX_SIGNAL_NAME && name.is_ascii();
    Some(if is_name {
        format!("died by signal {signal} ({name})")
    } else {
        format!("died by signal {signal}")
    })
}

/// Returns the first and the last id of each table, from `{"rocpd_region": [first, how many]}`.
fn read_claims(rows: &Map<String, Json>) -> BTreeMap<TableId, (i64, i64)> {
    let mut claims = BTreeMap::new();
    for table in unit_tables() {
        let range = rows.get(&table.to_string());
        let number = |place| range.and_then(|range: &Json| range.get(place)).and_then(Json::as_i64);
        if let (Some(first), Some(count)) = (number(0), number(1))
            && let Some(last) = count.checked_sub(1).filter(|more| *more >= 0)
            && let Some(last) = first.checked_add(last)
        {
            claims.insert(table, (first, last));
        }
    }
    claims
}

/// Returns the members of a text that is a JSON object; none if it is something else.
pub(crate) fn json_object(value: Value<'_>) -> Map<String, Json> {
    value.text_lossy().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Returns a text of the database for display; empty if it is missing.
pub(crate) fn text(value: Value<'_>) -> String {
    value.text_lossy().unwrap_or_default().chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_command_line_says_whether_it_is_python() {
        let pythons = ["python3 train.py", "/opt/venv/bin/python3.12 -m app", "pypy3 a.py", "python"];
        assert!(pythons.into_iter().all(is_python));
        let others =
            ["", " ", "./train python3", "bash -c python3", "/opt/python3/bin/solver", "ipython-like"];
        assert!(!others.into_iter().any(is_python));
    }
}
