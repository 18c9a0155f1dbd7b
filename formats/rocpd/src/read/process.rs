//! Processes and nodes of a table set.

use rpd_shard::identity::{RankIdentity, detect_rank};
use rpd_shard::model::{Local, Rows};
use rpd_shard::record::Node;
use serde_json::{Map, Value as Json};

/// A row of `rocpd_info_process`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessFacts {
    /// Key of the row.
    pub key: i64,
    /// Key of its node.
    pub nid: i64,
    /// Process id of the operating system.
    pub pid: i64,
    /// Rank in the job.
    pub rank: Option<u32>,
    /// Number of ranks in the job.
    pub size: Option<u32>,
    /// Rank on its node.
    pub local_rank: Option<u32>,
    /// The variable that the rank was read from.
    pub rank_from: Option<String>,
    /// Whether a merge recorded it as a worker of its rank or as a collector.
    pub worker: bool,
    /// Start time, ns in the clock domain of the table set.
    pub start: Option<i64>,
    /// End time, ns in the clock domain of the table set.
    pub end: Option<i64>,
}

/// Reads rows of `rocpd_info_process`. The rank is the one that rpd-merge stored, otherwise that of the recorded
/// environment.
pub(super) fn processes(rows: Rows<Local>) -> impl Iterator<Item = ProcessFacts> {
    (0..rows.len).map(move |row| {
        let text = |column: &str| rows.column(column).get(row).text_lossy().map(|text| text.into_owned());
        let int = |column: &str| rows.column(column).int(row);
        let (identity, worker) = text("extdata")
            .and_then(|text| merged_identity(&text))
            .unwrap_or_else(|| (recorded_identity(&text("environment").unwrap_or_default()), false));
        ProcessFacts {
            key: rows.keys.get(row),
            nid: int("nid").unwrap_or(0),
            pid: int("pid").unwrap_or(0),
            rank: identity.rank,
            size: identity.size,
            local_rank: identity.local_rank,
            rank_from: identity.rank_from,
            worker,
            start: int("start"),
            end: int("end"),
        }
    })
}

/// Returns the identity that rpd-merge wrote into `extdata`, and whether the process is a worker.
fn merged_identity(extdata: &str) -> Option<(RankIdentity, bool)> {
    let Ok(Json::Object(extdata)) = serde_json::from_str(extdata) else { return None };
    let rpd = extdata.get("rpd")?;
    rpd.get("rank")?;
    let number = |name: &str| rpd.get(name)?.as_u64()?.try_into().ok();
    let worker = rpd.get("worker").and_then(Json::as_bool).unwrap_or(false);
    let identity = RankIdentity {
        rank: number("rank"),
        size: number("size"),
        local_rank: number("local_rank"),
        rank_from: rpd.get("rank_from").and_then(Json::as_str).map(str::to_owned),
        restart: number("restart").unwrap_or(0),
    };
    Some((identity, worker))
}

/// Detects the rank from the launcher's variables in a recorded environment.
fn recorded_identity(environment: &str) -> RankIdentity {
    let environment: Map<String, Json> = serde_json::from_str(environment).unwrap_or_default();
    detect_rank(|name| environment.get(name)?.as_str(), None)
}

/// Reads rows of `rocpd_info_node` with their keys.
pub(super) fn nodes(rows: Rows<Local>) -> impl Iterator<Item = (i64, Node)> {
    (0..rows.len).map(move |row| {
        let text = |column: &str| {
            let value = rows.column(column).get(row);
            value.text_lossy().map(|text| text.into_owned()).unwrap_or_default()
        };
        let node = Node {
            machine_id: text("machine_id"),
            boot_id: String::new(),
            system_name: text("system_name"),
            hostname: text("hostname"),
            release: text("release"),
            version: text("version"),
            hardware_name: text("hardware_name"),
            domain_name: text("domain_name"),
        };
        (rows.keys.get(row), node)
    })
}
