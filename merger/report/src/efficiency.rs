//! The efficiency of the run by the factors of the POP project: `rpd-report efficiency`.

use crate::input::ReportRun;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::waiting::{ListedParts, missing_reasons, no_calls, with_analysis};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_graph::JobEfficiency;

const COLUMNS: [(&str, &str); 5] = [
    ("unit", "of"),
    ("parallel", "parallel"),
    ("load_balance", "load balance"),
    ("serialization", "serialization"),
    ("transfer", "transfer"),
];

/// Makes the report.
pub(crate) fn report_efficiency(
    run: &ReportRun,
    comm: &dyn Comm,
    max_rows: usize,
) -> Result<Option<Report>, Failure> {
    with_analysis(run, comm, ListedParts::default(), |found| {
        let mut table = ReportTable::new("efficiency", &COLUMNS);
        let mut unavailable = missing_reasons(found.calls);
        if found.calls.job.timelines.is_empty() {
            unavailable.push(no_calls("efficiency", found.calls));
        } else {
            let efficiencies = [("CPU", found.efficiency), ("GPU", found.gpu_efficiency)];
            for (unit, efficiency) in efficiencies.into_iter().filter_map(|(unit, of)| Some((unit, of?))) {
                let row = vec![
                    Cell::Text(unit.to_owned()),
                    Cell::Ratio(efficiency.parallel),
                    Cell::Ratio(efficiency.load_balance),
                    Cell::known(efficiency.serialization, Cell::Ratio),
                    Cell::known(efficiency.transfer, Cell::Ratio),
                ];
                table.push_up_to(max_rows, row);
            }
        }
        let is_unmatched = |efficiency: JobEfficiency| efficiency.serialization.is_none();
        if found.efficiency.or(found.gpu_efficiency).is_some_and(is_unmatched) {
            let reason = "less than 95 % of the messages and collectives match";
            unavailable.push(Unavailable::new("efficiency.serialization", reason));
            unavailable.push(Unavailable::new("efficiency.transfer", reason));
        }
        let mut notes = vec![
            "parallel = load balance x serialization x transfer; of CPU: without the work on GPUs".to_owned(),
        ];
        if found.leaves_out_ranks {
            notes.extend(found.reasons.iter().map(|reason| format!("the factors may be wrong: {reason}")));
        }
        let tables = vec![table];
        Ok(Report { subject: "efficiency", run: run.head(), tables, notes, unavailable, screen: None })
    })
}
