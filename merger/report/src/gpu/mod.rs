//! Where the time of the GPUs went: `rpd-report gpu`. docs/GPU.md has the definitions.

mod breakdown;
mod collective_kernels;
mod work;

use crate::input::ReportRun;
use crate::kernel_class::KernelClass;
use crate::report::{Cell, Report, ReportTable, Unavailable};
use crate::rows::TimedRows;
use crate::statistics::DurationSummary;
use crate::summary::joined_span;
use breakdown::{ClassTime, GpuTimes};
use collective_kernels::{CollectiveKernel, collective_table};
use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_console::wording::{counted, grouped};
use rpd_run::{RowUnit, UnitNames};
use rpd_shard::model::rocpd;
use rpd_verdict::shown_time;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use work::read_work;

const GPU_COLUMNS: [(&str, &str); 24] = [
    ("rank", "rank"),
    ("process", ""),
    ("host", "host"),
    ("gpu", "GPU"),
    ("model", ""),
    ("kernels", "kernels"),
    ("copies", "copies"),
    ("length_ns", "length"),
    ("compute_ns", ""),
    ("compute_share", "compute"),
    ("communication_ns", ""),
    ("exposed_ns", ""),
    ("exposed_share", "exposed"),
    ("overlap", "overlap"),
    ("memory_ns", ""),
    ("memory_share", "memory"),
    ("idle_ns", ""),
    ("idle_share", "idle"),
    ("late_launch_ns", "late launch"),
    ("launched_before_ns", "launched before"),
    ("unknown_launch_ns", "unknown launch"),
    ("launch_delay_p50_ns", "delay p50"),
    ("launch_delay_p95_ns", "p95"),
    ("short_kernels", "short"),
];

const CLASS_COLUMNS: [(&str, &str); 5] = [
    ("class", "kernels of class"),
    ("kernels", "kernels"),
    ("total_ns", "total"),
    ("share", "share"),
    ("mean_ns", "mean"),
];

const NO_TIME: &str = "all work of these GPUs together took no time";
const NO_LAUNCH: &str = "no call that launched work of this GPU is recorded";
/// Why values of a column are not known.
const REASONS: [(&str, &str); 12] = [
    ("exposed_share", NO_TIME),
    ("memory_share", NO_TIME),
    ("idle_share", NO_TIME),
    ("late_launch_ns", NO_LAUNCH),
    ("launched_before_ns", NO_LAUNCH),
    ("short_kernels", NO_LAUNCH),
    ("rank", "these processes have no rank"),
    ("model", "the recording does not name it"),
    ("overlap", "no kernel of these GPUs communicates"),
    ("launch_delay_p50_ns", NO_LAUNCH),
    ("launch_delay_p95_ns", NO_LAUNCH),
    ("compute_share", NO_TIME),
];

/// Maximum number of GPUs of which a note says that they lack launches.
const MAX_NOTES: usize = 3;
/// A GPU is short of launches if it is idle for at least this part of its time until work is launched.
const MIN_LATE_SHARE: f64 = 0.1;

/// Makes the report.
pub(crate) fn report_gpu(run: &ReportRun, comm: &dyn Comm, max_rows: usize) -> Result<Report, Failure> {
    let rows = TimedRows::new(run);
    let found = rows.fold_units(
        comm,
        |_, unit| read_unit(&rows, unit),
        |mut one: UnitGpus, other| {
            one.gpus.extend(other.gpus);
            one.collectives.extend(other.collectives);
            one
        },
    )?;
    let UnitGpus { mut gpus, collectives } = found;
    let is_whole = run.selection.window_ns().is_none() && run.selection.step.is_none();
    gpus.sort_by_key(|gpu| (gpu.order, gpu.agent));
    let span = gpus.iter().fold(None, |span, gpu| joined_span(span, Some(gpu.times.span)));
    let mut notes = Vec::new();
    let (classes, collectives) =
        (class_table(&gpus, max_rows), collective_table(&collectives, is_whole, max_rows));
    let mut table = ReportTable::new("gpu", &GPU_COLUMNS);
    for gpu in gpus {
        notes.extend(gpu.lack_of_launches());
        table.push_up_to(max_rows, gpu.cells());
    }
    let more = notes.len().saturating_sub(MAX_NOTES);
    notes.truncate(MAX_NOTES);
    if more > 0 {
        let gpus = if more == 1 { "GPU is" } else { "GPUs are" };
        let (more, share) = (grouped(more as u64), MIN_LATE_SHARE * 100.0);
        notes.push(format!(
            "{more} further {gpus} idle for {share:.0} % of the time or more until work is launched"
        ));
    }
    let mut unavailable = table.unknown_values(&REASONS);
    unavailable.extend(collectives.unknown_values(&collective_kernels::REASONS));
    unavailable.extend(rows.left_out("gpu"));
    if table.rows.is_empty() {
        let reason = "no kernels and copies are in this part of the run";
        unavailable.push(Unavailable::new("gpu", reason).recorded_by(Some("rpd-collect --backend")));
    }
    let run = run.head_with(span);
    Ok(Report {
        subject: "gpu",
        run,
        tables: vec![table, classes, collectives],
        notes,
        unavailable,
        screen: None,
    })
}

/// A GPU that one process uses.
#[derive(Debug, Serialize, Deserialize)]
struct UsedGpu {
    /// Order of the process among those of the run, and id of the agent.
    order: (u32, u32, i64),
    agent: i64,
    rank: Option<u32>,
    process: String,
    host: String,
    label: String,
    model: String,
    times: GpuTimes,
}

/// The GPUs of a unit, and its kernels that carry out collectives.
#[derive(Debug, Default, Serialize, Deserialize)]
struct UnitGpus {
    gpus: Vec<UsedGpu>,
    collectives: Vec<CollectiveKernel>,
}

fn read_unit(rows: &TimedRows<'_>, unit: &RowUnit) -> Result<UnitGpus, Failure> {
    if !unit.has_rows(rocpd::KERNEL_DISPATCH) && !unit.has_rows(rocpd::MEMORY_COPY) {
        return Ok(UnitGpus::default());
    }
    let names = UnitNames::read(&rows.run.database.tables, unit)?;
    let agent_of = |id: i64| names.agents.at(names.agents.place(Some(id)));
    let (work, collectives) = read_work(rows, unit, |id| agent_of(id).is_some_and(|agent| agent.is_gpu))?;
    let mut gpus = Vec::new();
    for ((process, agent), work) in work {
        let Some((info, times)) = rows.run.process(process).zip(GpuTimes::of(&work)) else { continue };
        let known = agent_of(agent);
        gpus.push(UsedGpu {
            order: info.order,
            agent,
            rank: info.rank,
            process: info.name.clone(),
            host: info.host.clone(),
            label: known.map_or_else(|| "unknown".to_owned(), |agent| agent.label()),
            model: known.map(|agent| agent.model.clone()).unwrap_or_default(),
            times,
        });
    }
    Ok(UnitGpus { gpus, collectives })
}

impl UsedGpu {
    /// Describes that the GPU lacks launches, if it does.
    fn lack_of_launches(&self) -> Option<String> {
        let times = &self.times;
        let share = times.idle.late_launch as f64 / times.length().max(1) as f64;
        // Kernels that communicate wait for other GPUs.
        let counted_classes =
            || times.classes.iter().filter(|(class, _)| **class != KernelClass::Communication);
        let total: i128 = counted_classes().map(|(_, class)| class.total).sum();
        let in_classes: u64 = counted_classes().map(|(_, class)| class.kernels).sum();
        let mean = i64::try_from(total / i128::from(in_classes.max(1))).unwrap_or(i64::MAX);
        let distance = times.length() / i64::try_from(times.kernels).unwrap_or(i64::MAX).max(1);
        let short = times.launches.short_kernels;
        (share >= MIN_LATE_SHARE && in_classes > 0).then(|| {
            let rank = self.rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
            let (host, label) = (&self.host, &self.label);
            format!(
                "{label}{rank} on {host} is idle for {:.0} % of its time until work is launched: its {}, one every {}, \
                 take {} on average without those that communicate; {} take less time than their launches",
                share * 100.0,
                counted(times.kernels, "kernel"),
                shown_time(distance),
                shown_time(mean),
                grouped(short)
            )
        })
    }

    fn cells(self) -> Vec<Cell> {
        let times = self.times;
        let length = times.length();
        let share = |ns: i64| if length > 0 { Cell::Ratio(ns as f64 / length as f64) } else { Cell::Unknown };
        let hidden = times.communication - times.exposed;
        let overlap = (times.communication > 0).then(|| hidden as f64 / times.communication as f64);
        let delays = times.launches.delays.summary();
        let if_launched = |cell: Cell| if delays.is_some() { cell } else { Cell::Unknown };
        let delay = |place: usize| {
            Cell::known(delays, |delays: DurationSummary| Cell::Nanoseconds(delays.percentiles[place]))
        };
        vec![
            Cell::known(self.rank, |rank| Cell::Count(rank.into())),
            Cell::Text(self.process),
            Cell::Text(self.host),
            Cell::Text(self.label),
            Cell::known(Some(self.model).filter(|model| !model.is_empty()), Cell::Text),
            Cell::Count(times.kernels),
            Cell::Count(times.copies),
            Cell::Nanoseconds(length),
            Cell::Nanoseconds(times.compute),
            share(times.compute),
            Cell::Nanoseconds(times.communication),
            Cell::Nanoseconds(times.exposed),
            share(times.exposed),
            Cell::known(overlap, Cell::Ratio),
            Cell::Nanoseconds(times.memory),
            share(times.memory),
            Cell::Nanoseconds(times.idle.all()),
            share(times.idle.all()),
            if_launched(Cell::Nanoseconds(times.idle.late_launch)),
            if_launched(Cell::Nanoseconds(times.idle.launched_before)),
            Cell::Nanoseconds(times.idle.unknown),
            delay(0),
            delay(1),
            if_launched(Cell::Count(times.launches.short_kernels)),
        ]
    }
}

/// Returns the kernels of all GPUs by class, that with the most time first.
fn class_table(gpus: &[UsedGpu], max_rows: usize) -> ReportTable {
    let mut sums: BTreeMap<KernelClass, ClassTime> = BTreeMap::new();
    for (class, time) in gpus.iter().flat_map(|gpu| &gpu.times.classes) {
        let sum = sums.entry(*class).or_default();
        (sum.kernels, sum.total) = (sum.kernels + time.kernels, sum.total + time.total);
    }
    let all: i128 = sums.values().map(|sum| sum.total).sum();
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(class, sum)| (Reverse(sum.total), *class));
    let mut table = ReportTable::new("kernel_classes", &CLASS_COLUMNS);
    for (class, ClassTime { kernels, total }) in sums {
        let row = vec![
            Cell::Text(class.name().to_owned()),
            Cell::Count(kernels),
            Cell::sum(total),
            Cell::Ratio(if all > 0 { total as f64 / all as f64 } else { 0.0 }),
            Cell::sum(total / i128::from(kernels.max(1))),
        ];
        table.push_up_to(max_rows, row);
    }
    table
}
