//! What is missing in a run: `rpd-report integrity`. The merge stored most of it in the database.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::rows::TimedRows;
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_console::wording::{counted, rank_ranges};
use rpd_shard::model::{TableId, rocpd};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: [(&str, &str); 5] = [
    ("finding", "finding"),
    ("count", "count"),
    ("table", "table"),
    ("ranks", "ranks"),
    ("reason", "reason"),
];

/// Ranks of unfinished shards; null for a process without a rank.
const UNFINISHED_RANKS: &str = "rpd.unfinished_ranks";
/// Lists of ranks in the metadata: tag, finding, reason, and whether the run is incomplete by it.
const RANK_LISTS: [(&str, &str, &str, bool); 3] = [
    ("rpd.missing_ranks", "missing ranks", "no input contains them", true),
    (UNFINISHED_RANKS, "unfinished ranks", "their collectors did not finish", true),
    (
        "rpd.left_out_ranks",
        "ranks left out",
        "--ranks excluded them when the run was recorded or merged",
        false,
    ),
];
/// Maximum number of ways in which ranks failed that are named.
const MAX_ENDS: usize = 3;
/// Maximum number of collectives that are listed because they are not the same in all ranks.
const MAX_FAULTS: usize = 5;
/// Number of shards that could not be read.
const UNREADABLE_SHARDS: &str = "rpd.unreadable_shards";
/// Metadata that say what is missing.
const LEDGER: [&str; 5] =
    ["rpd.missing_ranks", UNFINISHED_RANKS, UNREADABLE_SHARDS, "rpd.losses", "rpd.former_losses"];
/// Numbers in `rpd.collectives`: key, finding.
const COLLECTIVE_COUNTS: [(&str, &str); 4] = [
    ("incomplete", "collectives not recorded of all ranks"),
    ("mismatched", "collectives that differ between ranks"),
    ("contradicted", "collectives left before others entered"),
    ("different", "unnumbered calls that differ between processes"),
];
/// What a run may lack without being incomplete: tables and categories, and what records them.
const RECORDED: [(Recorded, &str, &str); 5] = [
    (Recorded::Categories(&["MPI_API"]), "MPI calls", "rpd-collect, of programs that use MPI"),
    (Recorded::Categories(&["RCCL_API"]), "RCCL calls", "rpd-collect, of programs that use RCCL"),
    (
        Recorded::Categories(&["MARKER_CORE_RANGE_API", "user_annotation"]),
        "ranges",
        "rpd-collect, of programs that mark ranges by roctx",
    ),
    (Recorded::Table(rocpd::KERNEL_DISPATCH), "kernels", "rpd-collect --backend"),
    (Recorded::Table(rocpd::MEMORY_COPY), "copies", "rpd-collect --backend"),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recorded {
    /// Any of these categories.
    Categories(&'static [&'static str]),
    Table(TableId),
}

/// Makes the report.
pub(crate) fn report_integrity(run: &ReportRun, comm: &dyn Comm, max_rows: usize) -> Result<Report, Failure> {
    let (table, notes) = integrity_table(run, max_rows);
    let mut unavailable = vec![Unavailable::new("run.start_ns", "this subcommand reads no times")];
    unavailable.extend(table.unknown_values(&[("count", "the number of these rows is not known")]));
    let rows = TimedRows::new(run);
    rows.read_categories(comm)?;
    unavailable.extend(not_recorded(&rows));
    Ok(Report {
        subject: "integrity",
        run: run.head(),
        tables: vec![table],
        notes,
        unavailable,
        screen: None,
    })
}

/// Returns what is missing, with notes on ranks that failed and on collectives, and whether the run is complete.
pub(crate) fn integrity_table(run: &ReportRun, max_rows: usize) -> (ReportTable, Vec<String>) {
    let mut table = ReportTable::new("integrity", &COLUMNS);
    for finding in findings(run) {
        table.push_up_to(max_rows, finding.cells());
    }
    let mut notes = Vec::from_iter(failed_ranks(run));
    let note = match (incomplete(run), table.rows.is_empty()) {
        (Some(reason), _) => format!("the run is incomplete: {reason}"),
        (None, true) => "nothing is missing".to_owned(),
        (None, false) => "the run is complete".to_owned(),
    };
    notes.extend(collective_faults(run));
    notes.push(note);
    (table, notes)
}

/// Returns why the run is incomplete, in a few words; `None` if no rank, file or row is missing.
pub(crate) fn incomplete(run: &ReportRun) -> Option<String> {
    let reasons: Vec<String> =
        findings(run).iter().filter(|found| found.is_incomplete).map(Finding::describe).collect();
    let reasons: Vec<String> = reasons.into_iter().chain(run.damage.clone()).collect();
    let more = reasons.len().saturating_sub(3);
    let mut text = reasons.into_iter().take(3).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text += &format!("; {}", counted(more as u64, "further finding"));
    }
    Some(text).filter(|text| !text.is_empty())
}

/// Returns whether ranks entered collectives by different calls.
pub(crate) fn has_differing_collectives(run: &ReportRun) -> bool {
    let counts: Json = serde_json::from_str(run.database.tables.tag("rpd.collectives")).unwrap_or_default();
    counts["mismatched"].as_u64().is_some_and(|count| count > 0)
}

/// Returns the first collectives that are not the same in all ranks, with what the ranks called.
pub(crate) fn collective_faults(run: &ReportRun) -> Vec<String> {
    let stored = run.database.tables.tag("rpd.collective_faults");
    let faults: Vec<String> = serde_json::from_str(stored).unwrap_or_default();
    faults.into_iter().take(MAX_FAULTS).collect()
}

/// Returns which ranks failed, and how, in a few words; `None` if none did.
pub(crate) fn failed_ranks(run: &ReportRun) -> Option<String> {
    let mut by_end: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let selected = |place: &usize| run.selection.contains(*place as u32);
    let processes = run.database.processes.iter().enumerate().filter(|(place, _)| selected(place));
    for (_, process) in processes.filter(|(_, process)| !process.is_helper) {
        if let (Some(failure), Some(rank)) = (&process.failure, process.info.rank) {
            by_end.entry(failure).or_default().insert(rank);
        }
    }
    let ranks = |ranks: &BTreeSet<u32>| {
        let listed: Vec<u32> = ranks.iter().copied().collect();
        format!("{} {}", if listed.len() == 1 { "rank" } else { "ranks" }, rank_ranges(&listed))
    };
    // A launcher ends the others alike.
    let mut by_end: Vec<(&str, BTreeSet<u32>)> = by_end.into_iter().collect();
    by_end.sort_by_key(|(_, ranks)| ranks.len());
    let mut texts: Vec<String> = by_end.iter().map(|(how, all)| format!("{} {how}", ranks(all))).collect();
    let more = texts.len().saturating_sub(MAX_ENDS);
    texts.truncate(MAX_ENDS);
    if more > 0 {
        texts.push(format!("others in {}", counted(more as u64, "further way")));
    }
    Some(texts.join(", ")).filter(|text| !text.is_empty())
}

/// Returns what was not recorded at all of the selected processes, of which the rows or categories are read already.
pub(crate) fn not_recorded(rows: &TimedRows<'_>) -> Vec<Unavailable> {
    let categories = rows.names.categories();
    let has = |recorded: Recorded| match recorded {
        Recorded::Categories(names) => names.iter().any(|name| categories.contains(*name)),
        Recorded::Table(table) => rows.units().iter().any(|unit| unit.has_rows(table)),
    };
    let missing = RECORDED.iter().filter(|(recorded, ..)| !has(*recorded));
    let entry = |(_, what, how): &(Recorded, &'static str, &'static str)| {
        Unavailable::new(*what, "not recorded").recorded_by(Some(how))
    };
    missing.map(entry).collect()
}

/// An entry of the table.
#[derive(Debug, Default)]
struct Finding {
    finding: String,
    count: Option<u64>,
    table: String,
    ranks: Vec<u32>,
    reason: String,
    /// Whether the run lacks something that was to be recorded.
    is_incomplete: bool,
}

impl Finding {
    fn cells(self) -> Vec<Cell> {
        vec![
            Cell::Text(self.finding),
            Cell::known(self.count, Cell::Count),
            Cell::Text(self.table),
            Cell::Ranks(self.ranks),
            Cell::Text(self.reason),
        ]
    }

    fn of_previous_merge(self) -> Finding {
        Finding { reason: format!("{}, in a previous merge", self.reason), ..self }
    }

    fn describe(&self) -> String {
        let Finding { finding, count, table, ranks, reason, .. } = self;
        if !ranks.is_empty() && !table.is_empty() {
            return format!("{finding} of ranks {} ({reason})", rank_ranges(ranks));
        }
        if !ranks.is_empty() {
            return format!("{finding}: {} ({reason})", rank_ranges(ranks));
        }
        let count = count.map_or("an unknown number of".to_owned(), |count| count.to_string());
        let of = if table.is_empty() { String::new() } else { format!(" of {table}") };
        format!("{count} {finding}{of} ({reason})")
    }
}

fn findings(run: &ReportRun) -> Vec<Finding> {
    let tag = |name: &str| serde_json::from_str::<Json>(run.database.tables.tag(name)).unwrap_or_default();
    let mut found: Vec<Finding> = LEDGER.iter().filter_map(|name| damaged(run, name)).collect();
    for (name, finding, reason, is_incomplete) in RANK_LISTS {
        let ranks = rank_numbers(&tag(name));
        if !ranks.is_empty() {
            let (count, finding, reason) = (Some(ranks.len() as u64), finding.to_owned(), reason.to_owned());
            found.push(Finding { finding, count, ranks, reason, is_incomplete, ..Finding::default() });
        }
    }
    let without_rank = list(&tag(UNFINISHED_RANKS)).iter().filter(|rank| rank.is_null()).count() as u64;
    if without_rank > 0 {
        let (finding, reason) = match without_rank {
            1 => ("unfinished shard", "of a process without a rank; its collector did not finish"),
            _ => ("unfinished shards", "of processes without a rank; their collectors did not finish"),
        };
        found.push(Finding {
            finding: finding.to_owned(),
            count: Some(without_rank),
            reason: reason.to_owned(),
            is_incomplete: true,
            ..Finding::default()
        });
    }
    if let Some(count @ 1..) = tag(UNREADABLE_SHARDS).as_u64() {
        let finding = if count == 1 { "unreadable input" } else { "unreadable inputs" }.to_owned();
        let reason = "left out of the merge".to_owned();
        found.push(Finding {
            finding,
            count: Some(count),
            reason,
            is_incomplete: true,
            ..Finding::default()
        });
    }
    found.extend(list(&tag("rpd.losses")).iter().map(lost_rows));
    for former in list(&tag("rpd.former_losses")) {
        found.extend(previous_losses(former));
    }
    for replaced in list(&tag("rpd.replaced")) {
        let of = |place: usize| replaced[place].as_str().unwrap_or_default();
        let (finding, table) = ("replaced values".to_owned(), format!("{}.{}", of(0), of(1)));
        let reason = "mostly references to lost rows".to_owned();
        found.push(Finding { finding, count: replaced[2].as_u64(), table, reason, ..Finding::default() });
    }
    let collectives = tag("rpd.collectives");
    for (key, finding) in COLLECTIVE_COUNTS {
        if let Some(count @ 1..) = collectives[key].as_u64() {
            let (finding, reason) = (finding.to_owned(), "they are not compared".to_owned());
            found.push(Finding { finding, count: Some(count), reason, ..Finding::default() });
        }
    }
    found
}

/// Returns a finding if a part of the ledger cannot be read, so that what is missing is not known.
fn damaged(run: &ReportRun, name: &str) -> Option<Finding> {
    let stored = run.database.tables.tag(name);
    let is_valid = match serde_json::from_str::<Json>(stored) {
        Ok(Json::Array(all)) => name != UNREADABLE_SHARDS && all.iter().all(|one| is_entry(name, one)),
        Ok(Json::Number(_)) => name == UNREADABLE_SHARDS,
        _ => stored.is_empty(),
    };
    let finding = || Finding {
        finding: "damaged value".to_owned(),
        count: Some(1),
        table: name.to_owned(),
        reason: "the merge cannot have written its value; merge again".to_owned(),
        is_incomplete: true,
        ..Finding::default()
    };
    (!is_valid).then(finding)
}

/// Returns whether a part of the ledger can have this entry.
fn is_entry(name: &str, entry: &Json) -> bool {
    match name {
        "rpd.losses" => entry.is_object(),
        "rpd.former_losses" => true,
        // That of a process without a rank.
        UNFINISHED_RANKS if entry.is_null() => true,
        _ => entry.as_u64().is_some_and(|rank| u32::try_from(rank).is_ok()),
    }
}

fn lost_rows(loss: &Json) -> Finding {
    let text = |key: &str| loss[key].as_str().unwrap_or_default();
    let (cause, reason, file) = (text("cause"), text("reason"), text("file"));
    let parts = [cause, reason].into_iter().filter(|part| !part.is_empty());
    let finding = match (file, text("profiler")) {
        ("", "") => "lost rows".to_owned(),
        ("", profiler) => format!("rows of {profiler}"),
        (file, _) => format!("rows of {file}"),
    };
    Finding {
        finding,
        count: loss["rows"].as_u64(),
        table: text("table").to_owned(),
        ranks: rank_numbers(&loss["ranks"]),
        reason: parts.collect::<Vec<_>>().join(": "),
        is_incomplete: true,
    }
}

/// Returns the findings in the ledger of a previous merge, which is stored as its text. One that cannot be read is a
/// finding with its text as the reason.
fn previous_losses(ledger: &Json) -> Vec<Finding> {
    let text = ledger.as_str().map_or_else(|| ledger.to_string(), str::to_owned);
    let losses: Option<Vec<Json>> = serde_json::from_str(&text).ok();
    match losses.filter(|losses| losses.iter().all(Json::is_object)) {
        Some(losses) => losses.iter().map(lost_rows).map(Finding::of_previous_merge).collect(),
        None => {
            let (finding, reason) = ("losses".to_owned(), text);
            vec![Finding { finding, reason, is_incomplete: true, ..Finding::default() }.of_previous_merge()]
        }
    }
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn rank_numbers(value: &Json) -> Vec<u32> {
    list(value).iter().filter_map(Json::as_u64).filter_map(|rank| u32::try_from(rank).ok()).collect()
}
