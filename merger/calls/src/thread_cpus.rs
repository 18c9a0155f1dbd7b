//! The CPUs of threads: how long they could have run, but had none, and which they may use. Collectors sample this.

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
const MAX_INTERVALS: usize = 512;

/// Name of the counter of what the quotas of a process took.
const QUOTA_COUNTER: &str = "cgroup.cpu_throttled";
/// Maximum time that quotas take, as a share of a CPU.
const MAX_THROTTLED: f64 = 4096.0;
/// Maximum length of a list of CPUs.
const MAX_ALLOWED_BYTES: usize = 4096;

/// A share of the time until the time of the next one. The last one has no end and no meaning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuShare {
    /// Start, ns in job time.
    pub start_ns: i64,
    /// The share: 1 is all of the time.
    pub share: f64,
}

/// Recorded facts on the CPUs of a thread: its waits, quotas and affinity.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ThreadCpus {
    /// The share of its time in which it waited for a CPU, by time; empty if that is not recorded.
    pub waits: Vec<CpuShare>,
    /// The time that quotas took from the processes of its cgroups, as a share of a CPU, by time; empty if they have none,
    /// or that is not recorded.
    pub throttled: Vec<CpuShare>,
    /// The CPUs on which it may run, as `0,4-7`; empty if they are not known.
    pub allowed: String,
}

impl ThreadCpus {
    /// Returns how long the thread waited for a CPU between two times, and of how much of that time this is known, ns.
    pub fn waited_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        time_between(&self.waits, from_ns, to_ns)
    }

    /// Returns how long quotas took a CPU from its cgroups between two times, and of how much of that time this is known, ns.
    pub fn throttled_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        time_between(&self.throttled, from_ns, to_ns)
    }

    /// Returns how many bytes its lists take.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.waits[..]) + size_of_val(&self.throttled[..]) + self.allowed.len()
    }

    /// Returns whether it is one that [`read_thread_cpus`] can make.
    pub(crate) fn is_valid(&self) -> bool {
        let are_valid = |shares: &[CpuShare], limit: f64| {
            shares.len() <= MAX_INTERVALS
                && shares.iter().all(|share| (0.0..=limit).contains(&share.share))
                && shares.is_sorted_by(|one, other| one.start_ns < other.start_ns)
        };
        are_valid(&self.waits, 1.0)
            && are_valid(&self.throttled, MAX_THROTTLED)
            && self.allowed.len() <= MAX_ALLOWED_BYTES
    }
}

/// Returns the time of shares between two times, and how much of that is known, ns.
fn time_between(shares: &[CpuShare], from: i64, to: i64) -> (f64, f64) {
    let (mut time_ns, mut known_ns) = (0.0, 0.0);
    for pair in shares.windows(2) {
        let (start, end) = (pair[0].start_ns.max(from), pair[1].start_ns.min(to));
        if start < end {
            known_ns += end.abs_diff(start) as f64;
            time_ns += pair[0].share * end.abs_diff(start) as f64;
        }
    }
    (time_ns, known_ns)
}

/// Counters of which the values are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum CpuCounter {
    /// Waiting of the thread with this id.
    Wait(i64),
    /// Quotas of the process.
    Throttled,
}

impl CpuCounter {
    /// Returns the counter of this name and thread, if its values are read.
    fn of(name: &str, tid: Option<i64>) -> Option<CpuCounter> {
        let is_wait = |rest: &str| rest.is_empty() || rest.starts_with(' ');
        match tid {
            Some(tid) => name.strip_prefix(COUNTER).is_some_and(is_wait).then_some(CpuCounter::Wait(tid)),
            None => (name == QUOTA_COUNTER).then_some(CpuCounter::Throttled),
        }
    }
}

/// Reads what is recorded about the CPUs of the threads with these regions, by the key of the thread. A unit of several
/// processes has nothing of it.
pub(crate) fn read_thread_cpus(
    run: &RunDatabase,
    unit: &RowUnit,
    names: &UnitNames,
    regions: &[RegionRow],
) -> Result<BTreeMap<i64, ThreadCpus>, Failure> {
    let counters: Vec<Option<CpuCounter>> =
        names.counters.iter().map(|counter| CpuCounter::of(&counter.name, counter.tid)).collect();
    if unit.is_unclaimed || counters.iter().all(Option::is_none) {
        return Ok(BTreeMap::new());
    }
    let allowed: HashMap<i64, &str> = names
        .counters
        .iter()
        .filter(|counter| (1..=MAX_ALLOWED_BYTES).contains(&counter.cpus.len()))
        .filter_map(|counter| Some((counter.tid?, counter.cpus.as_str())))
        .collect();
    let values =
        read_values(run, unit, |counter| counters.get(names.counters.place(counter)? as usize).copied()?)?;
    let mut shares: HashMap<CpuCounter, Vec<CpuShare>> = HashMap::new();
    let ids = unit.ids(rocpd::SAMPLE);
    let pieces = run.tables.pieces_with(rocpd::SAMPLE, ids)?;
    let wanted = &["timestamp", "event_id"];
    run.tables.read_pieces(rocpd::SAMPLE, &pieces, ids, wanted, &mut |_, rows, places| {
        let [times, events] = wanted.map(|column| IntColumn::of(rows.column(column)));
        for i in places {
            let Some((start_ns, event)) = times.at(i).zip(events.at(i)) else { continue };
            for (counter, percent) in values.get(&event).into_iter().flatten() {
                let limit = if *counter == CpuCounter::Throttled { MAX_THROTTLED } else { 1.0 };
                let share = (percent / 100.0).clamp(0.0, limit);
                shares.entry(*counter).or_default().push(CpuShare { start_ns, share });
            }
        }
        Ok(())
    })?;
    let throttled = in_few_intervals(shares.remove(&CpuCounter::Throttled).unwrap_or_default());
    let threads: BTreeSet<i64> = regions.iter().map(|region| region.thread).collect();
    let of_thread = |key: i64| {
        let tid = names.threads.at(names.threads.place(Some(key)))?.tid;
        let mut waits = in_few_intervals(shares.remove(&CpuCounter::Wait(tid))?);
        // The mean of shares can exceed the largest one by its rounding.
        waits.iter_mut().for_each(|wait| wait.share = wait.share.min(1.0));
        let allowed = allowed.get(&tid).copied().unwrap_or_default().to_owned();
        Some((key, ThreadCpus { waits, throttled: throttled.clone(), allowed }))
    };
    Ok(threads.into_iter().filter_map(of_thread).collect())
}

/// Counters and values of each event, by its id.
type ValuesByEvent = HashMap<i64, Vec<(CpuCounter, f64)>>;

/// Reads the values of the counters that `counter_of` returns.
fn read_values(
    run: &RunDatabase,
    unit: &RowUnit,
    counter_of: impl Fn(Option<i64>) -> Option<CpuCounter>,
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
            let Some((event, counter)) = events.at(i).zip(counter_of(counters.at(i))) else { continue };
            let value = match cells.get(i) {
                Value::Real(value) if value.is_finite() => value,
                Value::Int(value) => value as f64,
                _ => continue,
            };
            if count < MAX_VALUES {
                count += 1;
                values.entry(event).or_default().push((counter, value));
            }
        }
        Ok(())
    })?;
    Ok(values)
}

/// Orders intervals by time, and joins neighbours until there are few. Their sum stays the same.
fn in_few_intervals(mut waits: Vec<CpuShare>) -> Vec<CpuShare> {
    waits.sort_by(|one, other| one.start_ns.cmp(&other.start_ns).then(one.share.total_cmp(&other.share)));
    waits.dedup_by_key(|wait| wait.start_ns);
    while waits.len() > MAX_INTERVALS {
        let last = waits.pop();
        let ends: Vec<i64> = waits.iter().skip(1).chain(&last).map(|wait| wait.start_ns).collect();
        let joined = waits.chunks(2).zip(ends.chunks(2)).map(|(waits, ends)| {
            let start_ns = waits[0].start_ns;
            let part = |(wait, end): (&CpuShare, &i64)| wait.share * end.abs_diff(wait.start_ns) as f64;
            let sum: f64 = waits.iter().zip(ends).map(part).sum();
            let length = ends.last().map_or(0, |end| end.abs_diff(start_ns));
            CpuShare { start_ns, share: sum / length.max(1) as f64 }
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
        let mut waits: Vec<CpuShare> =
            (0..5001).map(|at: i64| CpuShare { start_ns: at * at, share: (at % 7) as f64 / 10.0 }).collect();
        let sum = |waits: &[CpuShare]| -> f64 {
            waits.windows(2).map(|pair| pair[0].share * (pair[1].start_ns - pair[0].start_ns) as f64).sum()
        };
        let expected = sum(&waits);
        waits.reverse();
        let few = in_few_intervals(waits);
        assert!(few.len() <= MAX_INTERVALS && few.len() > MAX_INTERVALS / 2, "{}", few.len());
        assert_eq!((few[0].start_ns, few.last().unwrap().start_ns), (0, 25_000_000));
        assert!((sum(&few) / expected - 1.0).abs() < 1e-9, "{} instead of {expected}", sum(&few));
    }

    #[test]
    fn shares_count_where_they_are_known() {
        let waits = [(100, 0.5), (200, 0.0), (300, 1.0), (400, 0.0)];
        let waits = waits.map(|(start_ns, share)| CpuShare { start_ns, share });
        assert_eq!(time_between(&waits, 0, 1000), (150.0, 300.0));
        assert_eq!(time_between(&waits, 150, 310), (35.0, 160.0));
        assert_eq!(time_between(&waits, 400, 500), (0.0, 0.0));
        assert_eq!(time_between(&[], 0, 500), (0.0, 0.0));
    }
}
