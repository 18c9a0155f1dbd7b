//! The processes of a run.

use crate::tables::{IdRanges, RunTables};
use crate::units::{DRAWN, NAMING};
use rpd_console::Failure;
use rpd_shard::model::{TableId, Value, rocpd};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Ranges of the ranks that are selected; `None` for all.
pub type RankFilter<'a> = Option<&'a [RangeInclusive<u32>]>;

/// Where the numbers of processes without a rank stand, behind all ranks.
const NO_RANK: u32 = u32::MAX;
/// How the command of the collector's sampler of a node begins.
const SAMPLER: &str = "rpd-collect: system metrics of ";
/// Most characters of a name of a process, a track or a node.
const MOST_NAME: usize = 1024;

/// A process of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessIdentity {
    /// `rank 3 (node07)`, `rank 3 worker (node07)`, `node07` for the system metrics of a node.
    pub name: String,
    /// Where it stands among all processes of the job: smaller ones first.
    pub order: (u32, u32, i64),
    /// Number in the operating system of its node: not unique in the job.
    pub pid: i64,
    /// Host name.
    pub host: String,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Key of its row of `rocpd_info_process`; 0 for rows that no process has.
    pub id: i64,
}

/// A process of the job, and which rows it claims.
#[derive(Clone, Debug)]
pub struct RunProcess {
    /// What identifies it.
    pub info: ProcessIdentity,
    /// Whether it is asked for.
    pub selected: bool,
    /// Its ranges of ids, first and last, as it claims them.
    pub(crate) claims: BTreeMap<TableId, (i64, i64)>,
}

/// The processes of the job in their order, which is that of their ids.
pub(crate) fn processes(tables: &RunTables, ranks: RankFilter<'_>) -> Result<Vec<RunProcess>, Failure> {
    let mut nodes: HashMap<i64, String> = HashMap::new();
    let every = IdRanges::range(i64::MIN, i64::MAX);
    tables.all(rocpd::INFO_NODE, &every, &["hostname"], &mut |rows, places| {
        for i in places {
            nodes.insert(rows.keys.get(i), text(rows.column("hostname").get(i)));
        }
        Ok(())
    })?;
    let mut found = Vec::new();
    let wanted = &["nid", "pid", "command", "extdata"];
    tables.all(rocpd::INFO_PROCESS, &every, wanted, &mut |rows, places| {
        for i in places {
            let extdata = rows.column("extdata").get(i);
            let extdata: Map<String, Json> =
                extdata.text_lossy().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            let noted = extdata.get("rpd");
            let host = || rows.column("nid").int(i).and_then(|nid| nodes.get(&nid)).cloned();
            let about = About {
                id: rows.keys.get(i),
                pid: rows.column("pid").int(i).unwrap_or(0),
                host: host().unwrap_or_default(),
                of_node: text(rows.column("command").get(i)).starts_with(SAMPLER),
                noted: noted.and_then(Json::as_object),
            };
            found.push(about.process(ranks));
        }
        Ok(())
    })?;
    Ok(found)
}

/// What is known of a process.
struct About<'a> {
    id: i64,
    pid: i64,
    host: String,
    of_node: bool,
    noted: Option<&'a Map<String, Json>>,
}

impl About<'_> {
    fn process(self, ranks: RankFilter<'_>) -> RunProcess {
        let About { id, pid, host, of_node, noted } = self;
        let noted = |name: &str| noted.and_then(|noted| noted.get(name));
        let rank = noted("rank").and_then(Json::as_u64).and_then(|rank| u32::try_from(rank).ok());
        let rank = rank.filter(|_| !of_node);
        let is_worker = noted("worker").and_then(Json::as_bool).unwrap_or(false);
        let place = if host.is_empty() { String::new() } else { format!(" ({host})") };
        let name = match rank {
            _ if of_node => {
                if host.is_empty() {
                    "node".to_owned()
                } else {
                    host.clone()
                }
            }
            Some(rank) if is_worker => format!("rank {rank} worker{place}"),
            Some(rank) => format!("rank {rank}{place}"),
            None => format!("process {pid}{place}"),
        };
        let kind = if of_node { 2 } else { u32::from(is_worker) };
        let selected = match (ranks, rank) {
            (Some(ranks), Some(rank)) => ranks.iter().any(|range| range.contains(&rank)),
            _ => true,
        };
        let info = ProcessIdentity { name, order: (rank.unwrap_or(NO_RANK), kind, id), pid, host, rank, id };
        let claims = noted("rows").and_then(Json::as_object).map(claims).unwrap_or_default();
        RunProcess { info, selected, claims }
    }
}

/// First and last id of each table, from `{"rocpd_region": [first, how many]}`.
fn claims(rows: &Map<String, Json>) -> BTreeMap<TableId, (i64, i64)> {
    let mut claims = BTreeMap::new();
    for table in DRAWN.into_iter().chain(NAMING).chain([rocpd::EVENT]) {
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

/// A text of the database that is shown, or an empty one.
pub(crate) fn text(value: Value<'_>) -> String {
    value.text_lossy().unwrap_or_default().chars().take(MOST_NAME).collect()
}
