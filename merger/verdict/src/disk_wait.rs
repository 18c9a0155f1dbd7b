//! How long the named ranks were in uninterruptible waits, as for disks, and how much of their longer work that explains.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare, MIN_LIKELY};
use crate::finding_threads::{FindingThreads, MIN_KNOWN, UnknownWaits, steps_of};
use crate::lower_median::{lower_median, lower_median_by};
use crate::names::ranks_of;
use crate::sampled_share::SampledShare;
use crate::shown_time::{percent, points};
use rpd_calls::CallLabel;
use rpd_graph::JobFinding;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Uninterruptible waits of the named ranks, and how much of the longer work they explain.
#[derive(Clone, Copy, PartialEq, Debug)]
struct DiskWait {
    named: SampledShare,
    /// The same of another thread, in the median; `None` if it is known of no other.
    typical: Option<SampledShare>,
    /// Share of the excess of the work that the difference explains.
    explained: f64,
    explained_error: f64,
    /// The same as `explained` if the named threads were in such waits all the time of their calls for files or GPUs, which is
    /// not work.
    explained_outside_calls: f64,
    /// The same if the other threads were, and the named ones were not.
    explained_without_calls_of_others: f64,
}

/// Returns the evidence on uninterruptible waits.
pub(crate) fn disk_evidence(found: &AnalysedRun<'_>, finding: &JobFinding) -> CauseEvidence {
    let kind = CauseKind::DiskWait;
    let cpus = &found.calls.cpus;
    if cpus.iter().all(|cpus| cpus.blocked.is_empty()) {
        let has_waits = cpus.iter().any(|cpus| !cpus.waits.is_empty());
        let why = match has_waits {
            true => "uninterruptible waits, as for disks, are not recorded (by an older rpd-collect)",
            // The same option records both, and the reason for the waits for a CPU has it.
            false => "nor uninterruptible waits, as for disks",
        };
        return CauseEvidence::not_known(kind, why);
    }
    let waits = match DiskWait::of(found, finding) {
        Ok(waits) => waits,
        Err(unknown) => {
            let next = "a collector samples the first 16, and main threads up to 64 in all";
            let why = unknown.text("uninterruptible waits, as for disks,", next);
            return CauseEvidence::not_known(kind, why);
        }
    };
    let DiskWait { named, typical, explained_error, .. } = waits;
    let of_steps = || format!("{} ({}) of the steps", percent(named.share), points(named.error));
    if !waits.is_decided() {
        let why = format!(
            "too few samples show whether uninterruptible waits, as for disks, explain it: they take {}",
            of_steps()
        );
        return CauseEvidence::not_known(kind, why);
    }
    if waits.may_be_in_calls() {
        let why = format!(
            "whether uninterruptible waits, as for disks, explain it, as they may be in calls of MPI for files or in calls for \
             GPUs, which are no work: they take {}",
            of_steps()
        );
        return CauseEvidence::not_known(kind, why);
    }
    // Such calls are left out of what is named.
    let explained =
        if waits.explained < MIN_LIKELY { waits.explained } else { waits.explained_outside_calls };
    let is_one = ranks_of(found.calls, finding.subject.timelines()).len() == 1;
    let they = if is_one { "its thread with calls was" } else { "their threads with calls were" };
    let of_share = |of: SampledShare| format!("{} ({})", percent(of.share), points(of.error));
    let others = typical.map_or(String::new(), |typical| format!(", other ranks for {}", of_share(typical)));
    let fetched = FetchedBytes::of(found, finding);
    CauseEvidence {
        kind,
        explained: Ok(ExplainedShare { share: explained, error: Some(explained_error) }),
        facts: format!("{they} in such waits for {} of the steps{others}", of_share(named)),
        reason: String::new(),
        json: json!({
            "share": named.share,
            "share_error": named.error,
            "typical_share": typical.map(|typical| typical.share),
            "typical_share_error": typical.map(|typical| typical.error),
            "explained": explained,
            "explained_error": explained_error,
            "fetched_bytes_per_s": fetched.map(|fetched| fetched.named_per_s),
            "typical_fetched_bytes_per_s": fetched.and_then(|fetched| fetched.typical_per_s),
        }),
    }
}

/// Bytes fetched from storage must be known for this share of the steps: their rate is a mean. Collectors read them once a
/// second, from a second after the first event on, so that of short runs little is known.
const MIN_FETCHED: f64 = 0.5;

/// How fast processes fetched bytes from storage in the steps. These take equally long for all ranks, so the rates compare
/// amounts.
#[derive(Clone, Copy, PartialEq, Debug)]
struct FetchedBytes {
    /// Mean of the named processes, bytes per second.
    named_per_s: f64,
    /// Lower median of the others; `None` if it is known of none.
    typical_per_s: Option<f64>,
}

impl FetchedBytes {
    /// `None` if it is not known of all named processes, for half of the steps.
    fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> Option<FetchedBytes> {
        let job = &found.calls.job;
        let process_of = |timeline: u32| job.timelines[timeline as usize].process;
        let named: BTreeSet<u32> =
            finding.subject.timelines().iter().map(|timeline| process_of(*timeline)).collect();
        // Each thread of a process has the rate of the process.
        let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
        for timeline in 0..job.timelines.len() as u32 {
            let process = process_of(timeline);
            if !rates.contains_key(&process)
                && let Some(rate) = fetched_per_s(found, timeline)
            {
                let _ = rates.insert(process, rate);
            }
        }
        let of_named: Option<Vec<f64>> = named.iter().map(|process| rates.get(process).copied()).collect();
        let of_named = of_named.filter(|rates| !rates.is_empty())?;
        let others = rates.iter().filter(|(process, _)| !named.contains(process));
        Some(FetchedBytes {
            named_per_s: of_named.iter().sum::<f64>() / of_named.len() as f64,
            typical_per_s: lower_median(others.map(|(_, rate)| *rate).collect()),
        })
    }
}

/// Returns how fast the process of a thread fetched bytes from storage in the steps, bytes per second. `None` if that is known
/// for too small a part of them.
fn fetched_per_s(found: &AnalysedRun<'_>, timeline: u32) -> Option<f64> {
    let cpus = found.calls.cpus.get(timeline as usize).filter(|cpus| cpus.knows_fetched())?;
    let (from, to) = steps_of(found, timeline);
    let (bytes, known_ns) = cpus.fetched_between(from, to);
    (known_ns > 0.0 && known_ns >= from.abs_diff(to) as f64 * MIN_FETCHED).then(|| bytes / known_ns * 1e9)
}

/// Estimates the share of the time in uninterruptible waits from samples, and from the share of time in which the thread was
/// blocked, which is exact.
///
/// The exact time makes the error small for a thread that waits for nothing else: only for what it waits while it is blocked
/// is left to chance. It is used if that agrees with the share of all samples: a thread that sleeps for microseconds wakes up
/// with the sampler, which then finds it running too often. `samples` are all samples of its state.
fn disk_wait_share(blocked: f64, disk_samples: f64, sleep_samples: f64, samples: f64) -> SampledShare {
    let of = |samples: f64| {
        let share = if samples > 0.0 { (disk_samples / samples).min(1.0) } else { 0.0 };
        SampledShare::of_samples(share, samples)
    };
    let (of_all, of_blocked) = (of(samples), of(disk_samples + sleep_samples));
    let scaled = SampledShare { share: blocked * of_blocked.share, error: blocked * of_blocked.error };
    let agrees = (scaled.share - of_all.share).abs() <= of_all.error;
    if agrees && scaled.error < of_all.error { scaled } else { of_all }
}

impl DiskWait {
    /// Examines a finding.
    fn of(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<DiskWait, UnknownWaits> {
        let threads = FindingThreads::of(found, finding)?;
        let is_sampled = |timeline: u32| {
            found.calls.cpus.get(timeline as usize).is_some_and(|cpus| !cpus.blocked.is_empty())
        };
        let waits = threads.waits(is_sampled, |timeline| share_in_steps(found, timeline))?;
        let by_share = |one: &SampledShare, other: &SampledShare| one.share.total_cmp(&other.share);
        let typical = lower_median_by(waits.others.iter().map(|other| other.share).collect(), by_share);
        // Without calls that may wait for a disk themselves.
        let typical_outside_calls = lower_median(waits.others.iter().map(StepShare::outside_calls).collect());
        let sum = |of: fn(&StepShare) -> f64| waits.named.iter().map(of).sum::<f64>();
        let all_ns = sum(|own| own.length_ns);
        let named = SampledShare {
            share: sum(|own| own.share.share * own.length_ns) / all_ns,
            error: sum(|own| own.share.error * own.length_ns) / all_ns,
        };
        let (typical_share, typical_error) =
            typical.map_or((0.0, 0.0), |typical| (typical.share, typical.error));
        // Unlike a wait for a CPU, such a wait belongs to work, if not to calls for files or GPUs: others poll, or sleep until
        // a message comes.
        let lost = |share: f64| share * all_ns / threads.excess_ns;
        let in_calls = sum(|own| own.calls_ns) / all_ns;
        let longer = (named.share - typical_share).max(0.0);
        Ok(DiskWait {
            named,
            typical,
            explained: lost(longer),
            explained_error: lost(named.error.hypot(typical_error)),
            explained_outside_calls: lost((longer - in_calls).max(0.0)),
            explained_without_calls_of_others: lost(
                (named.share - typical_outside_calls.unwrap_or(0.0)).max(0.0),
            ),
        })
    }

    /// Returns whether calls for files or GPUs decide whether these waits explain most of the longer work.
    fn may_be_in_calls(&self) -> bool {
        match self.explained >= MIN_LIKELY {
            true => self.explained_outside_calls - self.explained_error < MIN_LIKELY,
            false => self.explained_without_calls_of_others + self.explained_error >= MIN_LIKELY,
        }
    }

    /// Returns whether the samples show that the waits explain most of the longer work, or that they do not: half of it must be
    /// outside the interval.
    fn is_decided(&self) -> bool {
        let is_excluded = self.explained + self.explained_error < MIN_LIKELY;
        is_excluded || self.explained - self.explained_error >= MIN_LIKELY
    }
}

/// Returns the duration of the calls of a thread in the steps in which it may be in uninterruptible waits, ns: those of MPI for
/// files, and those to drivers of GPUs.
fn waiting_calls_ns(found: &AnalysedRun<'_>, timeline: u32) -> f64 {
    let own = &found.calls.job.timelines[timeline as usize];
    let may_wait = |label: u32| {
        let label = found.calls.labels.get(label as usize);
        matches!(label, Some(CallLabel::Function(name)) if name.starts_with("MPI_File_") || !name.starts_with("MPI_"))
    };
    let calls = found.analysis.calls_in_steps(timeline as usize, 0..found.calls.job.steps);
    let calls = own.calls.get(calls).unwrap_or_default();
    calls.iter().filter(|call| may_wait(call.label)).map(|call| call.duration_ns as f64).sum()
}

/// Uninterruptible waits of a thread in the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct StepShare {
    /// Share of the time of the steps.
    share: SampledShare,
    /// The time of the steps, ns.
    length_ns: f64,
    /// Duration of the calls in which it may be in such waits, ns.
    calls_ns: f64,
}

impl StepShare {
    /// Returns the share if it was in such waits all the time of these calls.
    fn outside_calls(&self) -> f64 {
        (self.share.share - self.calls_ns / self.length_ns).max(0.0)
    }
}

/// Returns the waits of a thread; `None` if they are known for too small a part of the steps.
fn share_in_steps(found: &AnalysedRun<'_>, timeline: u32) -> Option<StepShare> {
    let cpus = found.calls.cpus.get(timeline as usize)?;
    let times = found.analysis.times_in_steps(timeline as usize, 0..found.calls.job.steps);
    let (from, to) = steps_of(found, timeline);
    let blocked = cpus.blocked_between(from, to);
    let length_ns = times.length_ns as f64;
    if blocked.known_ns == 0.0 || blocked.known_ns < length_ns * MIN_KNOWN {
        return None;
    }
    let share = disk_wait_share(
        blocked.blocked_ns / blocked.known_ns,
        blocked.disk_samples,
        blocked.sleep_samples,
        blocked.samples,
    );
    Some(StepShare { share, length_ns, calls_ns: waiting_calls_ns(found, timeline) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_nothing_else_has_a_small_error() {
        let only_disk = disk_wait_share(0.4, 62.0, 0.0, 150.0);
        assert!((only_disk.share - 0.4).abs() < 1e-9 && only_disk.error < 0.03, "{only_disk:?}");
        let half = disk_wait_share(1.0, 50.0, 50.0, 100.0);
        assert!((half.share - 0.5).abs() < 1e-9 && (0.09..0.11).contains(&half.error), "{half:?}");
        let never = disk_wait_share(0.02, 0.0, 0.0, 1000.0);
        assert!(never.share == 0.0 && never.error < 0.005, "{never:?}");
        let unknown = disk_wait_share(0.9, 0.0, 0.0, 0.0);
        assert!(unknown.share == 0.0 && unknown.error > 0.7, "{unknown:?}");
    }

    #[test]
    fn sleep_that_samples_miss_is_no_wait_for_a_disk() {
        // 20 % of the time in disk waits, 60 % asleep, of which samples see a tenth.
        let found = disk_wait_share(0.8, 40.0, 12.0, 200.0);
        assert!((found.share - 0.2).abs() < 1e-9 && (0.05..0.07).contains(&found.error), "{found:?}");
    }

    #[test]
    fn the_intervals_contain_the_true_share_as_often_as_they_say() {
        // A thread is blocked in 60 % of its time, some of it in uninterruptible waits, by a generator of its own.
        let mut state = 7u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        for share in [0.05, 0.3, 0.55] {
            let mut covered = 0;
            for _ in 0..2000 {
                let (mut disk, mut sleep) = (0.0, 0.0);
                for _ in 0..200 {
                    let drawn = uniform();
                    disk += f64::from(drawn < share);
                    sleep += f64::from((share..0.6).contains(&drawn));
                }
                let found = disk_wait_share(0.6, disk, sleep, 200.0);
                covered += u32::from((found.share - share).abs() <= found.error);
            }
            assert!(covered >= 1860, "{covered} of 2000 at {share}");
        }
    }

    /// Waits that explain so much: with all calls, without those of the named threads, and without those of others.
    fn waits(
        [explained, explained_outside_calls, explained_without_calls_of_others]: [f64; 3],
        explained_error: f64,
    ) -> DiskWait {
        DiskWait {
            named: SampledShare { share: 0.1, error: 0.01 },
            typical: None,
            explained,
            explained_error,
            explained_outside_calls,
            explained_without_calls_of_others,
        }
    }

    #[test]
    fn calls_that_may_wait_themselves_decide_within_the_error() {
        let of = |explained, error| waits(explained, error).may_be_in_calls();
        assert_eq!([of([0.9; 3], 0.2), of([0.2; 3], 0.2)], [false, false], "no such calls");
        assert_eq!([of([0.9, 0.8, 0.9], 0.2), of([0.9, 0.6, 0.9], 0.2)], [false, true]);
        assert_eq!([of([0.2, 0.1, 0.3], 0.1), of([0.2, 0.1, 0.45], 0.1)], [false, true]);
    }

    #[test]
    fn a_cause_is_decided_if_the_samples_are_enough() {
        let of = |explained, error| waits([explained; 3], error).is_decided();
        assert_eq!([of(0.9, 0.2), of(0.1, 0.1)], [true, true]);
        assert_eq!([of(0.4, 0.2), of(0.6, 0.7), of(0.6, 0.2)], [false; 3]);
    }
}
