//! What the merge stored of each process and of its losses.

use rpd_console::Failure;
use rpd_run::{IdRanges, RunDatabase};
use rpd_shard::model::rocpd;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Facts about a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProcessFacts {
    /// Key of its node.
    pub(crate) node: i64,
    /// Number of ranks of the job.
    pub(crate) size: Option<u32>,
    /// Error bound of its times, ns.
    pub(crate) error_bound_ns: Option<u64>,
}

/// Reads the facts of all processes by the key of their row.
///
/// # Errors
/// If rows cannot be read.
pub(crate) fn read_process_facts(run: &RunDatabase) -> Result<HashMap<i64, ProcessFacts>, Failure> {
    let mut facts = HashMap::new();
    let wanted = &["nid", "extdata"];
    run.tables.read_rows(rocpd::INFO_PROCESS, &IdRanges::all(), wanted, &mut |rows, places| {
        for i in places {
            let text = rows.column("extdata").get(i);
            let text = text.text_lossy().unwrap_or_default();
            let extdata: Json = serde_json::from_str(&text).unwrap_or_default();
            let stored = &extdata["rpd"];
            let size = stored["size"].as_u64().and_then(|size| u32::try_from(size).ok());
            let error_bound_ns = stored["clock"]["bar_ns"].as_u64();
            let node = rows.column("nid").int(i).unwrap_or(0);
            facts.insert(rows.keys.get(i), ProcessFacts { node, size, error_bound_ns });
        }
        Ok(())
    })?;
    Ok(facts)
}

/// Losses of a run that concern calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CallLosses {
    /// Lost rows by table; `None` if their number is not known.
    pub(crate) rows: BTreeMap<String, Option<u64>>,
    /// Tables of which rows were lost for another reason than full rings.
    pub(crate) otherwise: BTreeSet<String>,
    /// Ranks of which nothing is there.
    pub(crate) missing_ranks: BTreeSet<u32>,
    /// Ranks whose collector did not finish.
    pub(crate) unfinished_ranks: BTreeSet<u32>,
    /// A collector of a process without a rank did not finish.
    pub(crate) has_unfinished_without_rank: bool,
}

/// Tables whose lost rows may be calls, and the name of losses of unknown tables.
const CALL_TABLES: [&str; 7] =
    ["mpi_call", "mpi_request", "communicator", "region", "event", "arg", "sample"];
/// Cause of a loss that larger rings avoid.
const RING_FULL: &str = "ring_full";
const UNKNOWN_TABLE: &str = "unknown tables";

/// Reads the losses from the metadata of a merge.
pub(crate) fn read_call_losses(run: &RunDatabase) -> CallLosses {
    let json = |tag: &str| serde_json::from_str::<Json>(run.tables.tag(tag)).unwrap_or_default();
    let ranks = |tag: &str| -> BTreeSet<u32> {
        let ranks = json(tag);
        let ranks = ranks.as_array().map(Vec::as_slice).unwrap_or_default();
        ranks.iter().filter_map(Json::as_u64).filter_map(|rank| u32::try_from(rank).ok()).collect()
    };
    let mut losses = CallLosses {
        missing_ranks: ranks("rpd.missing_ranks"),
        unfinished_ranks: ranks("rpd.unfinished_ranks"),
        has_unfinished_without_rank: json("rpd.unfinished_ranks")
            .as_array()
            .is_some_and(|ranks| ranks.iter().any(Json::is_null)),
        ..CallLosses::default()
    };
    for tag in ["rpd.missing_ranks", "rpd.unfinished_ranks", "rpd.losses", "rpd.former_losses"] {
        let rows = json(tag);
        if !rows.is_array() && !run.tables.tag(tag).is_empty() {
            // The list is damaged, so any number of rows may be lost.
            losses.rows.insert(UNKNOWN_TABLE.to_owned(), None);
        }
        if !tag.ends_with("losses") {
            continue;
        }
        // The losses of a previous merge are stored as the text of its ledger.
        let ledgers = rows.as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let entries = ledgers.flat_map(|entry| match entry.as_str().map(serde_json::from_str::<Vec<Json>>) {
            Some(Ok(entries)) => entries,
            _ => vec![entry.clone()],
        });
        for loss in entries {
            let table = loss["table"].as_str().unwrap_or(UNKNOWN_TABLE);
            let table = table.strip_prefix("rocpd_").unwrap_or(table);
            let is_of_profiler = loss["profiler"].is_string();
            if is_of_profiler || !(CALL_TABLES.contains(&table) || table == UNKNOWN_TABLE) {
                continue;
            }
            if loss["cause"] != RING_FULL {
                losses.otherwise.insert(table.to_owned());
            }
            let sum = losses.rows.entry(table.to_owned()).or_insert(Some(0));
            *sum = sum.zip(loss["rows"].as_u64()).map(|(sum, rows)| sum.saturating_add(rows));
        }
    }
    losses
}
