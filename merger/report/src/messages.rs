//! Messages between ranks: `rpd-report messages`.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::waiting::{
    AnalysedRun, ListedParts, doubts, label_text, missing_reasons, no_calls, with_analysis,
};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_graph::MessageFlow;
use std::cmp::Reverse;

const COLUMNS: [(&str, &str); 10] = [
    ("from", "from"),
    ("to", "to"),
    ("kind", "kind"),
    ("count", "messages"),
    ("bytes", "size"),
    ("late_sender_ns", "late sender"),
    ("late_receiver_ns", "late receiver"),
    ("median_ns", "median"),
    ("bytes_per_s", "bandwidth"),
    ("unmatched_ends", "unmatched"),
];

/// Why values of a column are not known.
const REASONS: [(&str, &str); 5] = [
    ("from", "the sender of these is not recorded, not selected, or has no rank"),
    ("to", "the receiver of these is not recorded, not selected, or has no rank"),
    ("bytes", "a message has 4 GiB or more, or its size is not recorded"),
    ("median_ns", "no call received one of these messages alone"),
    ("bytes_per_s", "no call received one of these messages alone, or they have no bytes"),
];

/// Makes the report.
pub(crate) fn report_messages(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    let listed = ListedParts { messages: true, ..ListedParts::default() };
    with_analysis(run, comm, listed, |found| Ok(messages_report(run, found, max_rows)))
}

/// Makes the report from analysed calls, which must have kept their messages.
pub(crate) fn messages_report(run: &ReportRun, found: &AnalysedRun<'_>, max_rows: usize) -> Report {
    let is_selected = |process: Option<u32>| {
        let process = process.and_then(|process| found.calls.processes.get(process as usize));
        process.is_some_and(|process| run.selection.contains(process.run_process as u32))
    };
    let mut flows = found.analysis.message_flows();
    flows.retain(|flow| is_selected(flow.from) || is_selected(flow.to));
    // The sort is stable: flows of equal waiting stay in the order of their ranks.
    flows.sort_by_key(|flow| Reverse(flow.late_sender_ns.saturating_add(flow.late_receiver_ns)));
    let mut table = ReportTable::new("messages", &COLUMNS);
    flows.iter().for_each(|flow| table.push_up_to(max_rows, cells(found, flow)));
    let mut unavailable = missing_reasons(found.calls);
    unavailable.extend(table.unknown_values(&REASONS));
    if found.calls.job.timelines.is_empty() {
        unavailable.push(no_calls("messages", found.calls));
    } else if flows.is_empty() {
        unavailable.push(Unavailable::new("messages", "the selected ranks send and receive none"));
    }
    let (tables, notes) = (vec![table], doubts(found));
    Report { subject: "messages", run: run.head(), tables, notes, unavailable, screen: None }
}

fn cells(found: &AnalysedRun<'_>, flow: &MessageFlow) -> Vec<Cell> {
    let rank = |process: Option<u32>| {
        let rank = process.and_then(|process| found.calls.processes.get(process as usize)?.rank);
        Cell::known(rank, |rank| Cell::Count(rank.into()))
    };
    let time = |ns: u64| Cell::sum(ns.into());
    vec![
        rank(flow.from),
        rank(flow.to),
        Cell::Text(label_text(found.calls, Some(flow.label))),
        Cell::Count(flow.count),
        Cell::known(flow.bytes, Cell::Bytes),
        time(flow.late_sender_ns),
        time(flow.late_receiver_ns),
        Cell::known(flow.median_ns, time),
        Cell::known(bytes_per_second(flow), Cell::BytesPerSecond),
        Cell::Count(flow.unmatched_ends),
    ]
}

/// Returns the mean size of a message divided by the median time of one; `None` if either is 0.
fn bytes_per_second(flow: &MessageFlow) -> Option<u64> {
    const NS_PER_SECOND: u128 = 1_000_000_000;
    let ns = u128::from(flow.median_ns?).checked_mul(flow.count.into())?;
    let rate = (u128::from(flow.bytes?) * NS_PER_SECOND).checked_div(ns)?;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_is_bytes_by_time() {
        let flow =
            MessageFlow { count: 4, bytes: Some(4_000), median_ns: Some(500), ..MessageFlow::default() };
        assert_eq!(bytes_per_second(&flow), Some(2_000_000_000));
        let none = [
            MessageFlow { bytes: Some(0), ..flow },
            MessageFlow { median_ns: None, ..flow },
            MessageFlow { median_ns: Some(0), ..flow },
            MessageFlow { count: 0, ..flow },
        ];
        assert_eq!(none.map(|flow| bytes_per_second(&flow)), [None; 4]);
        let large = MessageFlow { count: 1, bytes: Some(u64::MAX), median_ns: Some(1), ..flow };
        assert_eq!(bytes_per_second(&large), None);
    }
}
