//! How long threads could have run, but had no CPU: counters that collectors sample.

use crate::unit_rows::RegionRow;
use rpd_console::Failure;
use rpd_run::{RowUnit, RunDatabase, UnitNames};
use rpd_shard::model::{IntColumn, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Name of the counter of the main thread of a process; for other threads, the name of the thread follows.
const COUNTER: &str = "thread.cpu_wait";
/// Maximum number of values of a unit that are read.
const MAX_VALUES: usize = 1 << 24;
/// Number of intervals of a thread from which on neighbours are joined.
pub(crate) const MAX_INTERVALS: usize = 512;

/// The share of its time in which a thread waited for a CPU, until the time of the next one. The last one has no end and
/// no meaning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuWait {
    /// Start, ns in job time.
    pub start_ns: i64,
    /// Share of the time, from 0 to 1.
    pub share: f64,
}

/// Reads the waits of the threads with these regions, by the key of the thread. A unit of several processes has none.
pub(crate) fn read_cpu_waits(
    run: &RunDatabase,
    unit: &RowUnit,
    names: &UnitNames,
    regions: &[RegionRow],
) -> Result<BTreeMap<i64, Vec<CpuWait>>, Failure> {
    let counters: Vec<Option<i64>> = names
        .counters
        .iter()
        .map(|counter| {
            counter.tid.filter(|_| {
                counter
                    .name
                    .strip_prefix(COUNTER)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
        })
        .collect();
    if unit.is_unclaimed || counters.iter().all(Option::is_none) {
        return Ok(BTreeMap::new());
    }
    let values =
        read_values(run, unit, |counter| counters.get(names.counters.place(counter)? as usize).copied()?)?;
    let mut waits: HashMap<i64, Vec<CpuWait>> = HashMap::new();
    let ids = unit.ids(rocpd::SAMPLE);
    let pieces = run.tables.pieces_with(rocpd::SAMPLE, ids)?;
    let wanted = &["timestamp", "event_id"];
    run.tables.read_pieces(rocpd::SAMPLE, &pieces, ids, wanted, &mut |_, rows, places| {
        let [times, events] = wanted.map(|column| IntColumn::of(rows.column(column)));
        for i in places {
            let Some((start_ns, event)) = times.at(i).zip(events.at(i)) else { continue };
            for (tid, percent) in values.get(&event).into_iter().flatten() {
                let share = (percent / 100.0).clamp(0.0, 1.0);
                waits.entry(*tid).or_default().push(CpuWait { start_ns, share });
            }
        }
        Ok(())
    })?;
    let threads: BTreeSet<i64> = regions.iter().map(|region| region.thread).collect();
    let of_thread = |key: i64| {
        let tid = names.threads.at(names.threads.place(Some(key)))?.tid;
        Some((key, in_few_intervals(waits.remove(&tid)?)))
    };
    Ok(threads.into_iter().filter_map(of_thread).collect())
}

/// Thread id and value of each event, by its id.
type ValuesByEvent = HashMap<i64, Vec<(i64, f64)>>;

/// Reads the values of the counters for which `thread_of` returns a thread id.
fn read_values(
    run: &RunDatabase,
    unit: &RowUnit,
    thread_of: impl Fn(Option<i64>) -> Option<i64>,
) -> Result<ValuesByEvent, Failure> {
    let mut values = ValuesByEvent::new();
    let mut count = 0;
    let ids = unit.ids(rocpd::PMC_EVENT);
    let pieces = run.tables.pieces_with(rocpd::PMC_EVENT, ids)?;
    let wanted = &["event_id", "pmc_id", "value"];
    run.tables.read_pieces(rocpd::PMC_EVENT, &pieces, ids, wanted, &mut |_, rows, places| {
        let [events, counters] = ["event_id", "pmc_id"].map(|column| IntColumn::of(rows.column(column)));
        let cells = rows.column("value");
        for i in places {
            let Some((event, tid)) = events.at(i).zip(thread_of(counters.at(i))) else { continue };
            let value = match cells.get(i) {
                Value::Real(value) if value.is_finite() => value,
                Value::Int(value) => value as f64,
                _ => continue,
            };
            if count < MAX_VALUES {
                count += 1;
                values.entry(event).or_default().push((tid, value));
            }
        }
        Ok(())
    })?;
    Ok(values)
}

/// Orders intervals by time, and joins neighbours until there are few. Their sum stays the same.
fn in_few_intervals(mut waits: Vec<CpuWait>) -> Vec<CpuWait> {
    waits.sort_by(|one, other| one.start_ns.cmp(&other.start_ns).then(one.share.total_cmp(&other.share)));
    waits.dedup_by_key(|wait| wait.start_ns);
    while waits.len() > MAX_INTERVALS {
        let last = waits.pop();
        let ends: Vec<i64> = waits.iter().skip(1).chain(&last).map(|wait| wait.start_ns).collect();
        let joined = waits.chunks(2).zip(ends.chunks(2)).map(|(waits, ends)| {
            let start_ns = waits[0].start_ns;
            let part = |(wait, end): (&CpuWait, &i64)| wait.share * end.abs_diff(wait.start_ns) as f64;
            let sum: f64 = waits.iter().zip(ends).map(part).sum();
            let length = ends.last().map_or(0, |end| end.abs_diff(start_ns));
            CpuWait { start_ns, share: (sum / length.max(1) as f64).min(1.0) }
        });
        waits = joined.chain(last).collect();
    }
    waits.shrink_to_fit();
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_intervals_keep_their_sum() {
        let mut waits: Vec<CpuWait> =
            (0..5001).map(|at: i64| CpuWait { start_ns: at * at, share: (at % 7) as f64 / 10.0 }).collect();
        let sum = |waits: &[CpuWait]| -> f64 {
            waits.windows(2).map(|pair| pair[0].share * (pair[1].start_ns - pair[0].start_ns) as f64).sum()
        };
        let expected = sum(&waits);
        waits.reverse();
        let few = in_few_intervals(waits);
        assert!(few.len() <= MAX_INTERVALS && few.len() > MAX_INTERVALS / 2, "{}", few.len());
        assert_eq!((few[0].start_ns, few.last().unwrap().start_ns), (0, 25_000_000));
        assert!((sum(&few) / expected - 1.0).abs() < 1e-9, "{} instead of {expected}", sum(&few));
    }
}
