//! The CPUs of threads: how long they could have run, but had none, which they may use, and how long they were blocked; and how
//! fast their processes fetched bytes from storage. Collectors sample this.

use crate::blocked_shares::{BlockedShare, BlockedTime};
use crate::cpu_shares::{CpuShare, MAX_INTERVALS, in_few_intervals, in_order, time_between, values_between};
use crate::few_intervals::few_intervals;
use crate::unit_rows::RegionRow;
use rpd_console::Failure;
use rpd_run::{RowUnit, RunDatabase, UnitNames};
use rpd_shard::model::{IntColumn, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Counters of threads. These are the names for the main thread of a process; for others, the name of the thread follows.
const THREAD_COUNTERS: [(&str, ThreadCounter); 5] = [
    ("thread.cpu", ThreadCounter::Run),
    ("thread.cpu_wait", ThreadCounter::Wait),
    ("thread.disk_wait", ThreadCounter::DiskWait),
    ("thread.sleep", ThreadCounter::Sleep),
    ("thread.samples", ThreadCounter::Samples),
];
/// Maximum number of values of a unit that are read.
const MAX_VALUES: usize = 1 << 24;
/// Name of the counter of what the quotas of a process took.
const QUOTA_COUNTER: &str = "cgroup.cpu_throttled";
/// Maximum time that quotas take, as a share of a CPU.
const MAX_THROTTLED: f64 = 4096.0;
/// Name of the counter of what a process fetched from storage.
const FETCHED_COUNTER: &str = "process.disk_read";
/// Maximum rate at which a process fetches from storage, bytes per second.
const MAX_FETCHED: f64 = 1e15;
/// Maximum length of a list of CPUs.
const MAX_ALLOWED_BYTES: usize = 4096;

/// Recorded facts on the CPUs of a thread: its waits for them and for other things, quotas, affinity, and what its process
/// fetched from storage.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ThreadCpus {
    /// The share of its time in which it waited for a CPU, by time; empty if that is not recorded.
    pub waits: Vec<CpuShare>,
    /// The time that quotas took from the processes of its cgroups, as a share of a CPU, by time; empty if they have none,
    /// or that is not recorded.
    pub throttled: Vec<CpuShare>,
    /// How long it was blocked, and for what, by time; empty if that is not recorded.
    pub blocked: Vec<BlockedShare>,
    /// How fast its process fetched bytes from storage, by time; empty if that is not recorded.
    fetched: Vec<FetchRate>,
    /// The CPUs on which it may run, as `0,4-7`; empty if they are not known.
    pub allowed: String,
}

/// How fast a process fetched bytes from storage until the time of the next rate. The last one has no end and no meaning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct FetchRate {
    /// Start, ns in job time.
    start_ns: i64,
    bytes_per_s: f64,
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

    /// Returns how long the thread was blocked between two times, which include the waits inside of calls.
    pub fn blocked_between(&self, from_ns: i64, to_ns: i64) -> BlockedTime {
        BlockedShare::sum_between(&self.blocked, from_ns, to_ns)
    }

    /// Returns whether it is recorded how fast its process fetched bytes from storage.
    pub fn knows_fetched(&self) -> bool {
        self.fetched.len() > 1
    }

    /// Returns how many bytes its process fetched from storage between two times, and of how much of that time this is known,
    /// ns.
    pub fn fetched_between(&self, from_ns: i64, to_ns: i64) -> (f64, f64) {
        let rates = values_between(&self.fetched, |rate| rate.start_ns, from_ns, to_ns);
        rates.fold((0.0, 0.0), |(bytes, known), (rate, length_ns)| {
            (bytes + rate.bytes_per_s * length_ns / 1e9, known + length_ns)
        })
    }

    /// Returns how many bytes its lists take.
    pub(crate) fn bytes(&self) -> usize {
        let shares = size_of_val(&self.waits[..]) + size_of_val(&self.throttled[..]);
        shares + size_of_val(&self.blocked[..]) + size_of_val(&self.fetched[..]) + self.allowed.len()
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
            && BlockedShare::are_valid(&self.blocked)
            && self.fetched.len() <= MAX_INTERVALS
            && self.fetched.iter().all(|rate| (0.0..=MAX_FETCHED).contains(&rate.bytes_per_s))
            && self.fetched.is_sorted_by(|one, other| one.start_ns < other.start_ns)
            && self.allowed.len() <= MAX_ALLOWED_BYTES
    }
}

/// Counters of which the values are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum CpuCounter {
    /// A counter of the thread with this id.
    Thread(i64, ThreadCounter),
    /// Quotas of the process.
    Throttled,
    /// Bytes that the process fetched from storage.
    Fetched,
}

/// The quantity that a counter of a thread has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum ThreadCounter {
    /// Its time on a CPU.
    Run,
    /// Its waiting for a CPU.
    Wait,
    /// Share of the samples in an uninterruptible wait.
    DiskWait,
    /// Share of the samples in any other wait, but for a CPU.
    Sleep,
    /// Samples per second; as a share, per 10 ms.
    Samples,
}

impl CpuCounter {
    /// Returns the counter of this name and thread, if its values are read.
    fn of(name: &str, tid: Option<i64>) -> Option<CpuCounter> {
        let base = name.split(' ').next()?;
        match tid {
            Some(tid) => {
                let counter = THREAD_COUNTERS.into_iter().find(|(name, _)| *name == base);
                counter.map(|(_, counter)| CpuCounter::Thread(tid, counter))
            }
            None if name == QUOTA_COUNTER => Some(CpuCounter::Throttled),
            None => (name == FETCHED_COUNTER).then_some(CpuCounter::Fetched),
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
    let place = |counter| counters.get(names.counters.place(counter)? as usize).copied()?;
    let mut values = read_counters(run, unit, place)?;
    let fetched = fetch_rates(values.remove(&CpuCounter::Fetched).unwrap_or_default());
    let mut shares = |counter: CpuCounter| -> Vec<CpuShare> {
        let limit = if counter == CpuCounter::Throttled { MAX_THROTTLED } else { 1.0 };
        let of_percent = |(start_ns, percent): (i64, f64)| CpuShare {
            start_ns,
            share: (percent / 100.0).clamp(0.0, limit),
        };
        in_order(values.remove(&counter).into_iter().flatten().map(of_percent).collect())
    };
    let throttled = in_few_intervals(shares(CpuCounter::Throttled), MAX_INTERVALS);
    let threads: BTreeSet<i64> = regions.iter().map(|region| region.thread).collect();
    let of_thread = |key: i64| {
        let tid = names.threads.at(names.threads.place(Some(key)))?.tid;
        let mut of = |counter| shares(CpuCounter::Thread(tid, counter));
        let [runs, waits] = [ThreadCounter::Run, ThreadCounter::Wait].map(&mut of);
        let [disk_waits, sleeps] = [ThreadCounter::DiskWait, ThreadCounter::Sleep].map(&mut of);
        if waits.is_empty() {
            return None;
        }
        let samples = of(ThreadCounter::Samples);
        let blocked = BlockedShare::join([&runs, &waits, &disk_waits, &sleeps, &samples]);
        let mut waits = in_few_intervals(waits, MAX_INTERVALS);
        // The mean of shares can exceed the largest one by its rounding.
        waits.iter_mut().for_each(|wait| wait.share = wait.share.min(1.0));
        let allowed = allowed.get(&tid).copied().unwrap_or_default().to_owned();
        let (throttled, fetched) = (throttled.clone(), fetched.clone());
        Some((key, ThreadCpus { waits, throttled, blocked, fetched, allowed }))
    };
    Ok(threads.into_iter().filter_map(of_thread).collect())
}

/// Orders rates by time, in few intervals.
fn fetch_rates(mut values: Vec<(i64, f64)>) -> Vec<FetchRate> {
    values.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
    values.dedup_by_key(|(start_ns, _)| *start_ns);
    let intervals = values.into_iter().map(|(start_ns, rate)| (start_ns, [rate.clamp(0.0, MAX_FETCHED)]));
    let few = few_intervals(intervals.collect(), MAX_INTERVALS, [1.0]).into_iter();
    // The mean of rates can exceed the largest one by its rounding.
    few.map(|(start_ns, [rate])| FetchRate { start_ns, bytes_per_s: rate.min(MAX_FETCHED) }).collect()
}

/// Reads the times of the samples of a unit and their values of the counters that `counter_of` returns.
pub(crate) fn read_counters<C: Copy + Eq + Hash>(
    run: &RunDatabase,
    unit: &RowUnit,
    counter_of: impl Fn(Option<i64>) -> Option<C>,
) -> Result<HashMap<C, Vec<(i64, f64)>>, Failure> {
    let values = read_values(run, unit, counter_of)?;
    let mut samples: HashMap<C, Vec<(i64, f64)>> = HashMap::new();
    let ids = unit.ids(rocpd::SAMPLE);
    let pieces = run.tables.pieces_with(rocpd::SAMPLE, ids)?;
    let wanted = &["timestamp", "event_id"];
    run.tables.read_pieces(rocpd::SAMPLE, &pieces, ids, wanted, &mut |_, rows, places| {
        let [times, events] = wanted.map(|column| IntColumn::of(rows.column(column)));
        for i in places {
            let Some((start_ns, event)) = times.at(i).zip(events.at(i)) else { continue };
            for (counter, value) in values.get(&event).into_iter().flatten() {
                samples.entry(*counter).or_default().push((start_ns, *value));
            }
        }
        Ok(())
    })?;
    Ok(samples)
}

/// Counters and values of each event, by its id.
type ValuesByEvent<C> = HashMap<i64, Vec<(C, f64)>>;

/// Reads the values of the counters that `counter_of` returns.
fn read_values<C>(
    run: &RunDatabase,
    unit: &RowUnit,
    counter_of: impl Fn(Option<i64>) -> Option<C>,
) -> Result<ValuesByEvent<C>, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rates_by_the_time_in_which_they_are_known() {
        let second = 1_000_000_000;
        let fetched = fetch_rates(vec![(2 * second, 10.0), (second, 4.0), (4 * second, -1.0), (second, 6.0)]);
        let cpus = ThreadCpus { fetched, ..ThreadCpus::default() };
        assert!(cpus.is_valid());
        assert_eq!(cpus.fetched_between(0, 3 * second), (14.0, 2e9));
        assert_eq!(cpus.fetched_between(3 * second, 9 * second), (10.0, 1e9));
        let rates = (0..2000).map(|at| (at * second, if at % 2 == 0 { 1e15 } else { 1e18 })).collect();
        let many = ThreadCpus { fetched: fetch_rates(rates), ..ThreadCpus::default() };
        assert!(many.is_valid() && many.fetched.len() > MAX_INTERVALS / 2);
        let wrong = FetchRate { start_ns: 0, bytes_per_s: f64::NAN };
        assert!(!ThreadCpus { fetched: vec![wrong], ..ThreadCpus::default() }.is_valid());
    }
}
