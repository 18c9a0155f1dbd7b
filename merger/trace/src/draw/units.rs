//! What is drawn at once: the rows of a process, by the ranges of ids that a merge noted, and one unit more for
//! the rows that no process claims.

use super::tables::{Ids, Tables};
use crate::item::{DrawnProcess, Selection};
use rpd_console::Failure;
use rpd_shard::model::{TableId, rocpd};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap};

/// Tables whose rows are drawn, in the order in which they are, and the tables that they are joined with.
pub(super) const DRAWN: [TableId; 7] = [
    rocpd::REGION,
    rocpd::SAMPLE,
    rocpd::KERNEL_DISPATCH,
    rocpd::MEMORY_COPY,
    rocpd::MEMORY_ALLOCATE,
    rocpd::PMC_EVENT,
    rocpd::ARG,
];
/// The place of a table in [`DRAWN`], and one behind it for others.
pub(super) fn place_of(table: TableId) -> usize {
    DRAWN.iter().position(|drawn| *drawn == table).unwrap_or(DRAWN.len())
}

/// Tables that say who is who in a process.
pub(super) const NAMING: [TableId; 7] = [
    rocpd::INFO_THREAD,
    rocpd::INFO_AGENT,
    rocpd::INFO_QUEUE,
    rocpd::INFO_STREAM,
    rocpd::INFO_PMC,
    rocpd::INFO_KERNEL_SYMBOL,
    rocpd::TRACK,
];

/// Where the numbers of processes without a rank stand, behind all ranks.
const NO_RANK: u32 = u32::MAX;
/// How the command of the collector's sampler of a node begins.
const SAMPLER: &str = "rpd-collect: system metrics of ";
/// Most characters of a name of a process, a track or a node.
const MOST_NAME: usize = 1024;

/// A process of the job.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) drawn: DrawnProcess,
    /// Whether it is asked for.
    pub(super) selected: bool,
    /// Its ranges of ids, first and last, as it claims them.
    claims: BTreeMap<TableId, (i64, i64)>,
}

/// A part of the job.
#[derive(Debug)]
pub(super) struct Unit {
    /// Places of its processes; of the one that has what nobody claims: all of the job.
    pub(super) processes: Vec<u32>,
    /// Whether the rows say themselves, by their column pid, to which process they belong.
    pub(super) by_pid: bool,
    ids: HashMap<TableId, Ids>,
}

impl Unit {
    /// The ids of its rows in a table.
    pub(super) fn ids(&self, table: TableId) -> &Ids {
        static NONE: Ids = Ids::none();
        self.ids.get(&table).unwrap_or(&NONE)
    }

    /// Rows of all tables, at most.
    pub(super) fn weight(&self) -> u64 {
        self.ids.values().map(Ids::count).fold(0, u64::saturating_add)
    }
}

/// The processes of the job in their order, which is that of their ids.
pub(super) fn processes(tables: &Tables, selection: &Selection) -> Result<Vec<Process>, Failure> {
    let mut nodes: HashMap<i64, String> = HashMap::new();
    let every = Ids::range(i64::MIN, i64::MAX);
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
            found.push(about.process(selection));
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
    fn process(self, selection: &Selection) -> Process {
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
        let selected = match (&selection.ranks, rank) {
            (Some(ranks), Some(rank)) => ranks.iter().any(|range| range.contains(&rank)),
            _ => true,
        };
        let drawn = DrawnProcess { name, order: (rank.unwrap_or(NO_RANK), kind, id), pid, host, rank, id };
        let claims = noted("rows").and_then(Json::as_object).map(claims).unwrap_or_default();
        Process { drawn, selected, claims }
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

/// The units of the job, in its order, and how many rows of each table belong to processes that are not asked for.
pub(super) fn units(
    tables: &Tables,
    processes: &[Process],
) -> Result<(Vec<Unit>, HashMap<TableId, u64>), Failure> {
    let mut units: Vec<Unit> = Vec::new();
    let mut unasked: HashMap<TableId, u64> = HashMap::new();
    let mut rest: HashMap<TableId, Ids> = HashMap::new();
    let mut believed: Vec<bool> = vec![true; processes.len()];
    let mut bounds: HashMap<TableId, (i64, i64)> = HashMap::new();
    for table in DRAWN.into_iter().chain(NAMING).chain([rocpd::EVENT]) {
        let Some((first, last)) = tables.bounds(table)? else { continue };
        bounds.insert(table, (first, last));
        let mut ranges: Vec<(i64, i64, usize)> = Vec::new();
        for (place, process) in processes.iter().enumerate() {
            ranges.extend(process.claims.get(&table).map(|(first, last)| (*first, *last, place)));
        }
        ranges.sort_unstable();
        // Who claims what another one has cannot be believed, and neither can the other one.
        for two in ranges.windows(2) {
            if let [(_, end, one), (start, _, other)] = two
                && start <= end
            {
                for place in [one, other] {
                    if let Some(believed) = believed.get_mut(*place) {
                        *believed = false;
                    }
                }
            }
        }
    }
    let believes = |place: usize| believed.get(place).copied().unwrap_or(false);
    let there = |(table, (first, last)): (&TableId, &(i64, i64))| {
        let (from, to) = bounds.get(table)?;
        Some((*table, Ids::range(*first.max(from), *last.min(to)))).filter(|(_, ids)| !ids.is_empty())
    };
    for (table, (first, last)) in &bounds {
        let claimed = processes.iter().enumerate().filter(|(place, _)| believes(*place));
        let mut taken: Vec<(i64, i64)> =
            claimed.filter_map(|(_, process)| process.claims.get(table).copied()).collect();
        taken.sort_unstable();
        let free = Ids::between(*first, *last, &taken);
        if !free.is_empty() {
            rest.insert(*table, free);
        }
    }
    for (place, process) in processes.iter().enumerate() {
        if !believes(place) || process.claims.is_empty() {
            continue;
        }
        if !process.selected {
            for (table, ids) in process.claims.iter().filter_map(there) {
                let sum = unasked.entry(table).or_default();
                *sum = sum.saturating_add(ids.count());
            }
            continue;
        }
        let ids = process.claims.iter().filter_map(there).collect();
        units.push(Unit { processes: vec![place as u32], by_pid: false, ids });
    }
    if DRAWN.iter().any(|table| rest.contains_key(table)) {
        let all = (0..processes.len() as u32).collect();
        units.push(Unit { processes: all, by_pid: true, ids: rest });
    }
    let order = |unit: &Unit| {
        let first = unit.processes.first().and_then(|place| processes.get(*place as usize));
        (unit.by_pid, first.map(|process| process.drawn.order))
    };
    units.sort_by_key(order);
    Ok((units, unasked))
}

/// A text of the database that is shown, or an empty one.
pub(super) fn text(value: rpd_shard::model::Value<'_>) -> String {
    value.text_lossy().unwrap_or_default().chars().take(MOST_NAME).collect()
}
