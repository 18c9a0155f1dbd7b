//! Calls that had not returned when the recording ended, and which ranks they wait for: `rpd-report hang`.

use crate::input::ReportRun;
use crate::integrity::collective_faults;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::waiting::{ListedParts, missing_reasons, no_calls, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;

const COLUMNS: [(&str, &str); 6] = [
    ("rank", "rank"),
    ("host", "host"),
    ("call", "in call"),
    ("operation", "operation"),
    ("open_ns", "for"),
    ("waits_for", "waits for ranks"),
];

/// Makes the report.
pub(crate) fn report_hang(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    let listed = ListedParts { messages: true, ..ListedParts::default() };
    with_analysis(run, comm, listed, |found| {
        let (calls, job) = (found.calls, &found.calls.job);
        let (open, mut notes) =
            found.describe_open_calls(|process| run.selection.contains(process.run_process as u32));
        notes.extend(collective_faults(run));
        let is_none_open = open.is_empty();
        let mut table = ReportTable::new("hang", &COLUMNS);
        for call in open {
            let row = vec![
                Cell::known(call.rank, |rank| Cell::Count(rank.into())),
                Cell::Text(call.host),
                Cell::Text(call.call),
                Cell::Text(call.operation),
                Cell::sum(call.open_ns.into()),
                Cell::Ranks(call.waits_for),
            ];
            table.push_up_to(max_rows, row);
        }
        let mut unavailable = missing_reasons(calls);
        unavailable.extend(table.unknown_values(&[("rank", "the process has no rank")]));
        if job.timelines.is_empty() {
            unavailable.push(no_calls("hang", calls));
        } else if is_none_open {
            let reason = match (job.is_part, found.leaves_out_ranks) {
                (true, _) => "calls that are open at the end of the window are not examined; omit --window",
                (false, true) => "all calls of the selected ranks had returned when the recording ended",
                (false, false) => "all recorded calls had returned when the recording ended",
            };
            match job.is_part {
                true => unavailable.push(Unavailable::new("hang", reason)),
                false => notes.push(reason.to_owned()),
            }
        }
        Ok(Report { subject: "hang", run: run.head(), tables: vec![table], notes, unavailable, screen: None })
    })
}
