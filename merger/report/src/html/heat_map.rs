//! What each rank does over time, in cells of equal length.

use super::time_cells::TimeCells;
use crate::input::ProcessGroups;
use crate::ranks::RankTimes;
use crate::report::{Cell, ReportTable};
use crate::waiting::AnalysedRun;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of cells of all ranks, and of one.
const MAX_CELLS: usize = 1 << 21;
const MAX_RANK_CELLS: usize = 2_048;
/// Minimum number of cells of a rank.
const MIN_RANK_CELLS: usize = 16;
/// Parts of the run for which the table has the waiting.
const TENTHS: usize = 10;

/// What a rank does. The number is that in the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum RankActivity {
    Compute = 0,
    Waiting = 1,
    Communication = 2,
    Copy = 3,
    Idle = 4,
}

/// Kinds of activity.
const ACTIVITIES: usize = 5;
/// In the page, no activity: nothing is recorded.
const NOTHING: u8 = ACTIVITIES as u8;

/// Columns of the table.
const COLUMNS: [(&str, &str); 8 + TENTHS] = [
    ("rank", "rank"),
    ("host", "host"),
    ("process", ""),
    ("compute_ns", "compute"),
    ("waiting_ns", "waiting"),
    ("communication_ns", "communication"),
    ("copy_ns", "copy"),
    ("idle_ns", "idle"),
    ("waiting_1", "waits in 1st tenth"),
    ("waiting_2", "2nd"),
    ("waiting_3", "3rd"),
    ("waiting_4", "4th"),
    ("waiting_5", "5th"),
    ("waiting_6", "6th"),
    ("waiting_7", "7th"),
    ("waiting_8", "8th"),
    ("waiting_9", "9th"),
    ("waiting_10", "10th"),
];

/// Times of all ranks in cells. The time in a cell is in ns.
#[derive(Debug)]
pub(super) struct HeatMap {
    /// First and last time, ns in job time.
    span: (i64, i64),
    cells: usize,
    ranks: Vec<HeatRow>,
    /// Whether any rank has kernels or copies.
    has_gpus: bool,
}

/// Times of one rank, or of a process without a rank.
#[derive(Debug)]
struct HeatRow {
    group: u32,
    cells: Vec<[f32; ACTIVITIES]>,
}

impl HeatMap {
    /// Divides the recorded times of ranks into cells. Waiting counts as communication, until
    /// [`HeatMap::add_waiting`] knows it.
    pub(super) fn new(times: &BTreeMap<u32, RankTimes>, span: (i64, i64)) -> HeatMap {
        let cells = (MAX_CELLS / times.len().max(1)).clamp(MIN_RANK_CELLS, MAX_RANK_CELLS);
        let grid = TimeCells { span, cells };
        let mut ranks: Vec<HeatRow> = times
            .par_iter()
            .map(|(group, times)| HeatRow { group: *group, cells: activities(&grid, times) })
            .collect();
        ranks.sort_by_key(|row| row.group);
        let is_of_gpu = |row: &HeatRow| {
            let has = |kind: RankActivity| row.cells.iter().any(|cell| cell[kind as usize] > 0.0);
            has(RankActivity::Copy) || has(RankActivity::Idle)
        };
        let has_gpus = ranks.iter().any(is_of_gpu);
        HeatMap { span, cells, ranks, has_gpus }
    }

    /// Moves the time that ranks waited in calls from communication to waiting. A call waits first, then communicates.
    pub(super) fn add_waiting(&mut self, found: &AnalysedRun<'_>, groups: &ProcessGroups) {
        let grid = TimeCells { span: self.span, cells: self.cells };
        let mut timelines: HashMap<u32, Vec<usize>> = HashMap::new();
        for (number, timeline) in found.calls.job.timelines.iter().enumerate() {
            if let Some(process) = found.calls.processes.get(timeline.process as usize) {
                timelines.entry(groups.of(process.run_process as u32)).or_default().push(number);
            }
        }
        self.ranks.par_iter_mut().for_each(|row| {
            let mut waiting = vec![0f32; grid.cells];
            for number in timelines.get(&row.group).into_iter().flatten() {
                let timeline = &found.calls.job.timelines[*number];
                for (place, call) in timeline.calls.iter().enumerate() {
                    if timeline.is_stream && !timeline.is_collective_kernel(place) {
                        continue;
                    }
                    let waited = found.analysis.waited_in_call(*number, place).min(call.duration_ns);
                    let (start, end) = (call.enter_ns, call.enter_ns.saturating_add_unsigned(waited));
                    grid.add(start, end, |cell, ns| waiting[cell] += ns);
                }
            }
            for (cell, waiting) in row.cells.iter_mut().zip(waiting) {
                let moved = waiting.min(cell[RankActivity::Communication as usize]);
                cell[RankActivity::Communication as usize] -= moved;
                cell[RankActivity::Waiting as usize] += moved;
            }
        });
    }

    /// Returns the number of cells of a rank.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Returns the first time, and the length, ns.
    pub(super) fn start_and_length(&self) -> (i64, i64) {
        (self.span.0, self.span.1.saturating_sub(self.span.0))
    }

    /// Returns whether a GPU was recorded, so that copies and idle times are known.
    pub(super) fn has_gpus(&self) -> bool {
        self.has_gpus
    }

    /// Returns what takes most of the time of each cell, rank by rank.
    pub(super) fn dominating(&self) -> Vec<u8> {
        let most = |cell: &[f32; ACTIVITIES]| {
            let longest = (0..ACTIVITIES).rev().max_by(|one, other| cell[*one].total_cmp(&cell[*other]));
            longest.filter(|kind| cell[*kind] > 0.0).map_or(NOTHING, |kind| kind as u8)
        };
        self.ranks.iter().flat_map(|row| row.cells.iter().map(most)).collect()
    }

    /// Returns the percentage of the time of each cell that the rank waits, rank by rank.
    pub(super) fn waiting_percent(&self) -> Vec<u8> {
        let percent = |cell: &[f32; ACTIVITIES]| {
            let all: f32 = cell.iter().sum();
            let waiting = cell[RankActivity::Waiting as usize];
            if all > 0.0 { (waiting / all * 100.0).round().clamp(0.0, 100.0) as u8 } else { 0 }
        };
        self.ranks.iter().flat_map(|row| row.cells.iter().map(percent)).collect()
    }

    /// Returns the sums of each rank, and its waiting in each tenth of the run.
    pub(super) fn table(&self, groups: &ProcessGroups) -> ReportTable {
        let mut table = ReportTable::new("time", &COLUMNS);
        let sum_of = |cells: &[[f32; ACTIVITIES]], kind: usize| -> f64 {
            cells.iter().map(|cell| f64::from(cell[kind])).sum()
        };
        for row in &self.ranks {
            let Some(group) = groups.groups.get(row.group as usize) else { continue };
            let mut cells = vec![
                Cell::known(group.rank, |rank| Cell::Count(rank.into())),
                Cell::Text(group.host.clone()),
                Cell::Text(group.name.clone()),
            ];
            let sum = |kind: usize| Cell::Nanoseconds(sum_of(&row.cells, kind).round() as i64);
            cells.extend((0..ACTIVITIES).map(sum));
            cells.extend((0..TENTHS).map(|tenth| {
                let part = |place: usize| place * row.cells.len() / TENTHS;
                let of = &row.cells[part(tenth)..part(tenth + 1)];
                let all: f64 = (0..ACTIVITIES).map(|kind| sum_of(of, kind)).sum();
                let waiting = sum_of(of, RankActivity::Waiting as usize);
                if all > 0.0 { Cell::Ratio(waiting / all) } else { Cell::Unknown }
            }));
            table.push_up_to(usize::MAX, cells);
        }
        table
    }
}

/// Returns what a rank does in each cell. Kernels count as compute, even if a call waits meanwhile.
fn activities(grid: &TimeCells, times: &RankTimes) -> Vec<[f32; ACTIVITIES]> {
    let mut cells = vec![[0f32; ACTIVITIES]; grid.cells];
    let Some((first, last)) = times.span else { return cells };
    let mut calls = times.mpi.clone();
    calls.join(times.rccl.clone());
    calls.join(times.communicating.clone());
    let [calls, computing, copies] =
        [calls, times.computing.clone(), times.copies.clone()].map(|union| union.into_intervals());
    let has_gpu = !computing.is_empty() || !copies.is_empty();
    let kinds = [RankActivity::Compute, RankActivity::Copy, RankActivity::Communication];
    let otherwise = if has_gpu { RankActivity::Idle } else { RankActivity::Compute };
    each_part((first, last), [&computing, &copies, &calls], |set, start, end| {
        let kind = set.and_then(|set| kinds.get(set)).copied().unwrap_or(otherwise);
        grid.add(start, end, |cell, ns| cells[cell][kind as usize] += ns);
    });
    cells
}

/// Divides a span into parts, each with the number of the first set that contains it. The intervals of each set ascend and
/// do not touch.
fn each_part<const N: usize>(
    (mut at, end): (i64, i64),
    sets: [&[(i64, i64)]; N],
    mut take: impl FnMut(Option<usize>, i64, i64),
) {
    let mut places = [0; N];
    while at < end {
        let (mut next, mut found) = (end, None);
        for (number, set) in sets.iter().enumerate() {
            let place = &mut places[number];
            while set.get(*place).is_some_and(|interval| interval.1 <= at) {
                *place += 1;
            }
            match set.get(*place) {
                Some((start, until)) if *start <= at => {
                    found = found.or(Some(number));
                    next = next.min(*until);
                }
                Some((start, _)) => next = next.min(*start),
                None => {}
            }
        }
        take(found, at, next);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::IntervalUnion;

    fn union(intervals: &[(i64, i64)]) -> IntervalUnion {
        let mut union = IntervalUnion::default();
        intervals.iter().for_each(|(start, end)| union.add(*start, *end));
        union
    }

    #[test]
    fn each_time_counts_once_and_kernels_first() {
        let mut times = RankTimes::default();
        times.span = Some((0, 100));
        times.mpi = union(&[(10, 30), (60, 90)]);
        times.computing = union(&[(20, 40), (85, 95)]);
        times.copies = union(&[(35, 50)]);
        let cells = activities(&TimeCells { span: (0, 100), cells: 3 }, &times);
        let sum = |kind: RankActivity| cells.iter().map(|cell| cell[kind as usize]).sum::<f32>();
        use RankActivity::{Communication, Compute, Copy, Idle, Waiting};
        assert_eq!([Compute, Waiting, Communication, Copy, Idle].map(sum), [30.0, 0.0, 35.0, 10.0, 25.0]);
        for (cell, length) in cells.iter().zip([33.0, 33.0, 34.0]) {
            assert_eq!(cell.iter().sum::<f32>(), length);
        }
    }

    #[test]
    fn without_gpu_a_rank_computes_outside_of_calls() {
        let mut times = RankTimes::default();
        times.span = Some((10, 20));
        times.mpi = union(&[(12, 15)]);
        let map = HeatMap::new(&BTreeMap::from([(0, times)]), (0, 30));
        let sums = |kind: RankActivity| map.ranks[0].cells.iter().map(|cell| cell[kind as usize]).sum();
        let (compute, communication): (f32, f32) =
            (sums(RankActivity::Compute), sums(RankActivity::Communication));
        assert_eq!((compute, communication), (7.0, 3.0));
        let dominating = map.dominating();
        assert_eq!((dominating.len(), dominating[0]), (map.cells(), NOTHING));
        assert!(!map.has_gpus() && map.waiting_percent().iter().all(|percent| *percent == 0));
    }
}
