//! The calls that show a finding: those that waited longest for the ranks that are named, `--explain`.

use crate::input::ReportRun;
use crate::report::{Cell, EVIDENCE_TABLE, ReportTable, Unavailable};
use crate::waiting::{AnalysedRun, doubts, label_text, process_of, ranks_of};
use rpd_console::Failure;
use rpd_graph::{Call, ExplainedWait};

/// Columns without a title are for machines.
const COLUMNS: [(&str, &str); 20] = [
    ("rank", "rank"),
    ("host", ""),
    ("call", "call"),
    ("at_ns", "at"),
    ("enter_ns", ""),
    ("duration_ns", ""),
    ("waited_ns", "waited"),
    ("cause_rank", "for rank"),
    ("cause_host", ""),
    ("cause_call", "to enter"),
    ("cause_enter_ns", ""),
    ("cause_duration_ns", ""),
    ("error_bound_ns", "clocks +-"),
    ("cause_work", "meanwhile in"),
    ("cause_work_ns", "for"),
    ("typical_work_ns", "typically"),
    ("own_work_ns", "waiting rank"),
    ("cause_waited_ns", "waited itself"),
    ("region_id", "row"),
    ("cause_region_id", "row of the other"),
];

const SUM_COLUMNS: [(&str, &str); 6] = [
    ("ranks", "waits for ranks"),
    ("listed", "listed"),
    ("listed_ns", "time"),
    ("waits", "all"),
    ("waits_ns", "time of all"),
    ("listed_share", "listed part"),
];

/// Why values of a column are not known.
const REASONS: [(&str, &str); 10] = [
    ("region_id", NO_REGION),
    ("cause_region_id", NO_REGION),
    ("rank", NO_RANK),
    ("cause_rank", NO_RANK),
    ("error_bound_ns", "the merge did not compare the clocks of these nodes"),
    ("cause_work", "it did nothing longer than the rank that waited"),
    ("cause_work_ns", "it did nothing longer than the rank that waited"),
    ("own_work_ns", "the other did nothing longer"),
    ("typical_work_ns", "only one or two ranks do such work, or it is a call"),
    ("listed_share", "no rank waited"),
];
const NO_RANK: &str = "the process has no rank";
const NO_REGION: &str = "kernels and copies are no regions";

/// Keys of the tables.
pub(crate) const EVIDENCE_TABLES: [&str; 2] = [EVIDENCE_TABLE, "explained"];

/// The evidence of a finding.
#[derive(Debug)]
pub(crate) struct WaitEvidence {
    /// The calls, and their sums.
    pub(crate) tables: [ReportTable; 2],
    pub(crate) notes: Vec<String>,
    pub(crate) unavailable: Vec<Unavailable>,
}

/// Lists the calls that waited longest for the threads `causes`.
pub(crate) fn wait_evidence(
    run: &ReportRun,
    found: &AnalysedRun<'_>,
    causes: &[u32],
    max_listed: usize,
) -> Result<WaitEvidence, Failure> {
    let waits = found.analysis.waits_for(causes, max_listed);
    let (start, _) = run.extent.unwrap_or_default();
    let [mut table, mut sums] =
        [ReportTable::new(EVIDENCE_TABLE, &COLUMNS), ReportTable::new("explained", &SUM_COLUMNS)];
    waits.listed.iter().for_each(|wait| table.push_up_to(max_listed, cells(found, wait, start)));
    let listed_ns = waits.listed.iter().fold(0u64, |sum, wait| sum.saturating_add(wait.waited_ns));
    let share = (waits.waited_ns > 0).then(|| listed_ns as f64 / waits.waited_ns as f64);
    let row = vec![
        Cell::Ranks(ranks_of(found.calls, causes)),
        Cell::Count(waits.listed.len() as u64),
        Cell::sum(listed_ns.into()),
        Cell::Count(waits.count),
        Cell::sum(waits.waited_ns.into()),
        Cell::known(share, Cell::Ratio),
    ];
    sums.push_up_to(1, row);
    let mut notes = vec![
        "rows are keys of rocpd_region; \"meanwhile\" is since the two ranks last synchronised".to_owned(),
    ];
    if run.is_unmerged {
        notes.push(
            "the run is not merged: rpd-merge of the same inputs writes rows with these keys".to_owned(),
        );
    }
    notes.extend(doubts(found));
    let mut unavailable = table.unknown_values(&REASONS);
    unavailable.extend(sums.unknown_values(&REASONS));
    if table.rows.is_empty() {
        unavailable.push(Unavailable::new("explain", "no rank waited for these ranks"));
    }
    Ok(WaitEvidence { tables: [table, sums], notes, unavailable })
}

fn cells(found: &AnalysedRun<'_>, wait: &ExplainedWait, start: i64) -> Vec<Cell> {
    let time = |ns: u64| Cell::sum(ns.into());
    let rank = |timeline: u32| {
        let rank = process_of(found.calls, timeline).and_then(|process| process.rank);
        Cell::known(rank, |rank| Cell::Count(rank.into()))
    };
    let host = |timeline: u32| {
        Cell::known(process_of(found.calls, timeline), |process| Cell::Text(process.host.clone()))
    };
    let (own, cause) = ((wait.timeline, wait.call), (wait.cause, wait.cause_call));
    let call_of = |(timeline, call): (u32, u32)| -> Option<&Call> {
        found.calls.job.timelines.get(timeline as usize)?.calls.get(call as usize)
    };
    let name =
        |place| Cell::known(call_of(place), |call| Cell::Text(label_text(found.calls, Some(call.label))));
    let enter = |place| Cell::known(call_of(place), |call| Cell::Nanoseconds(call.enter_ns));
    let duration = |place| Cell::known(call_of(place), |call| time(call.duration_ns));
    let key = |(timeline, call): (u32, u32)| {
        let keys = found.calls.region_ids.get(timeline as usize);
        Cell::known(keys.and_then(|keys| keys.get(call as usize)), |key| Cell::RowKey(*key))
    };
    let is_longer = wait.label_ns > 0;
    let if_longer = |cell: Cell| if is_longer { cell } else { Cell::Unknown };
    vec![
        rank(wait.timeline),
        host(wait.timeline),
        name(own),
        Cell::known(call_of(own), |call| Cell::Nanoseconds(call.enter_ns.saturating_sub(start))),
        enter(own),
        duration(own),
        time(wait.waited_ns),
        rank(wait.cause),
        host(wait.cause),
        name(cause),
        enter(cause),
        duration(cause),
        Cell::known(wait.error_bound_ns, time),
        if_longer(Cell::Text(label_text(found.calls, wait.label))),
        if_longer(time(wait.label_ns)),
        Cell::known(wait.typical_ns, time),
        if_longer(time(wait.own_label_ns)),
        time(wait.cause_waited_ns),
        key(own),
        key(cause),
    ]
}
