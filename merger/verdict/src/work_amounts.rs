//! How much work threads and GPUs have under their labels in the steps: ranges, kernels and copies, with their sizes.

use crate::analysed_run::AnalysedRun;
use crate::lower_median::lower_median;
use rayon::prelude::*;
use rpd_calls::CallLabel;
use rpd_graph::JobFinding;
use std::collections::{BTreeSet, HashMap};

/// Number of labels that are compared: those under which the named processes work longest.
const MAX_COMPARED: usize = 64;
/// Processes with less work under a label than this share of the longest are not compared, as for what is typical.
const MIN_COMPARED: f64 = 0.1;

/// Work of a process under a label in the steps.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct LabelAmount {
    /// Number of ranges that began, or of kernels and copies.
    pub(crate) count: f64,
    /// Duration, ns.
    pub(crate) ns: f64,
    /// Work-items of kernels, or bytes of copies; `None` if they are not known of all.
    pub(crate) size: Option<f64>,
}

impl LabelAmount {
    /// Returns the mean duration of a range or kernel, ns.
    fn each_ns(&self) -> f64 {
        self.ns / self.count
    }

    /// Returns the mean size of a kernel.
    fn each_size(&self) -> Option<f64> {
        self.size.map(|size| size / self.count)
    }
}

/// Work under a label of a named process beside that of the other ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ComparedAmount {
    /// The label.
    pub(crate) label: u32,
    /// That of the named process.
    pub(crate) own: LabelAmount,
    /// Median number of the others.
    pub(crate) typical_count: f64,
    /// Median of the mean durations of the others, ns.
    typical_each_ns: f64,
    /// Mean size of one of them divided by the median of the others; `None` if sizes are not known.
    pub(crate) size_ratio: Option<f64>,
    /// Share of the work of the named process that is compared.
    pub(crate) work_share: f64,
}

impl ComparedAmount {
    /// Kernels of the same size as those of the others, for tests.
    #[cfg(test)]
    pub(crate) fn of_kernels(
        label: u32,
        own: LabelAmount,
        typical_count: f64,
        typical_each_ns: f64,
        work_share: f64,
    ) -> ComparedAmount {
        ComparedAmount { label, own, typical_count, typical_each_ns, size_ratio: Some(1.0), work_share }
    }

    /// Returns the time that a larger number takes, if each takes as long as is typical, ns.
    pub(crate) fn by_number_ns(&self) -> f64 {
        (self.own.count - self.typical_count) * self.typical_each_ns
    }

    /// Returns the time that larger ones take, if their time goes by their size, ns.
    pub(crate) fn by_size_ns(&self) -> f64 {
        self.size_ratio.map_or(0.0, |ratio| (ratio - 1.0) * self.own.count * self.typical_each_ns)
    }

    /// Returns how much of the longer work under the label a larger number and size explain, ns. Work that is no longer
    /// needs no explanation.
    pub(crate) fn explained_ns(&self) -> f64 {
        let longer_ns = self.own.ns - self.typical_count * self.typical_each_ns;
        (self.by_number_ns() + self.by_size_ns()).clamp(longer_ns.min(0.0), longer_ns.max(0.0))
    }

    /// Returns how much longer one of them takes than is typical of one of its size, as a ratio.
    pub(crate) fn slowness(&self) -> f64 {
        self.own.each_ns() / (self.typical_each_ns * self.size_ratio.unwrap_or(1.0))
    }
}

/// Work of the processes of a finding under all labels.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct AmountComparison {
    /// The labels of each named process that others have as well.
    pub(crate) compared: Vec<ComparedAmount>,
    /// Work of the named processes under labels that no other process has, ns.
    pub(crate) incomparable_ns: f64,
}

impl AmountComparison {
    /// Compares the work of threads, or of streams, of the named processes with that of the others.
    pub(crate) fn of(found: &AnalysedRun<'_>, finding: &JobFinding, are_streams: bool) -> AmountComparison {
        let job = &found.calls.job;
        let process_of = |timeline: u32| job.timelines[timeline as usize].process;
        let named: BTreeSet<u32> =
            finding.subject.timelines().iter().map(|timeline| process_of(*timeline)).collect();
        let mut timelines: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, timeline) in (0u32..).zip(&job.timelines) {
            if timeline.is_stream == are_streams {
                timelines.entry(timeline.process).or_default().push(number);
            }
        }
        let of_process = |process: u32| timelines.get(&process).map_or(&[][..], Vec::as_slice);
        // Other streams of a named process may work more without delaying anything.
        let named_timelines = finding.subject.timelines().iter().copied();
        let is_of_kind = |timeline: &u32| job.timelines[*timeline as usize].is_stream == are_streams;
        let labels = longest_labels(found, named_timelines.filter(is_of_kind));
        let amounts = |process: u32| amounts_of(found, of_process(process), &labels);
        let others: Vec<Vec<LabelAmount>> = (0..job.processes)
            .into_par_iter()
            .filter(|process| !named.contains(process))
            .map(amounts)
            .collect();
        let mut comparison = AmountComparison::default();
        for own in named.iter().map(|process| amounts(*process)) {
            let mut of_process: Vec<ComparedAmount> = Vec::new();
            for (place, (label, own)) in labels.iter().zip(own).enumerate() {
                let of_others = others.iter().filter_map(|amounts| amounts.get(place)).copied();
                match compare(*label, own, of_others.collect()) {
                    Some(compared) => of_process.push(compared),
                    None => comparison.incomparable_ns += own.ns,
                }
            }
            let all_ns: f64 = of_process.iter().map(|one| one.own.ns).sum();
            let with_share = |one: ComparedAmount| ComparedAmount { work_share: one.own.ns / all_ns, ..one };
            comparison.compared.extend(of_process.into_iter().map(with_share));
        }
        comparison
    }
}

/// Compares the work of a process under a label with that of the others; `None` if one of them has none.
fn compare(label: u32, own: LabelAmount, mut others: Vec<LabelAmount>) -> Option<ComparedAmount> {
    let longest_ns = others.iter().map(|other| other.ns).fold(0.0, f64::max);
    others.retain(|other| other.count > 0.0 && other.ns >= longest_ns * MIN_COMPARED);
    if own.count == 0.0 || own.ns == 0.0 {
        return None;
    }
    let typical_size: Option<Vec<f64>> = others.iter().map(LabelAmount::each_size).collect();
    let size_ratio =
        own.each_size().zip(typical_size.and_then(lower_median)).map(|(own, typical)| own / typical);
    Some(ComparedAmount {
        label,
        own,
        typical_count: lower_median(others.iter().map(|other| other.count).collect())?,
        typical_each_ns: lower_median(others.iter().map(LabelAmount::each_ns).collect())
            .filter(|ns| *ns > 0.0)?,
        size_ratio,
        work_share: 0.0,
    })
}

/// Returns the segments of work of a timeline in the steps.
fn segments_in_steps(found: &AnalysedRun<'_>, timeline: u32) -> std::ops::Range<usize> {
    let calls = &found.calls.job.timelines[timeline as usize];
    let steps = &calls.first_call_of_step;
    let segment = |call: Option<&u32>| calls.first_work.get(*call? as usize).map(|place| *place as usize);
    let range = segment(steps.first()).zip(segment(steps.last()));
    range.map_or(0..0, |(from, to)| from..to.clamp(from, calls.work.len()))
}

/// Returns the labels of ranges or of GPU work under which timelines work longest.
fn longest_labels(found: &AnalysedRun<'_>, timelines: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ns: HashMap<u32, u64> = HashMap::new();
    for timeline in timelines {
        let work = &found.calls.job.timelines[timeline as usize].work;
        for segment in &work[segments_in_steps(found, timeline)] {
            let sum = ns.entry(segment.label).or_insert(0);
            *sum = sum.saturating_add(segment.ns);
        }
    }
    let is_counted = |label: &u32| {
        let label = found.calls.labels.get(*label as usize);
        matches!(label, Some(CallLabel::Range(_) | CallLabel::GpuWork(_)))
    };
    let mut labels: Vec<(u32, u64)> = ns.into_iter().filter(|(label, _)| is_counted(label)).collect();
    labels.sort_unstable_by_key(|(label, ns)| (std::cmp::Reverse(*ns), *label));
    labels.truncate(MAX_COMPARED);
    labels.into_iter().map(|(label, _)| label).collect()
}

/// Returns the work of timelines under each of these labels.
fn amounts_of(found: &AnalysedRun<'_>, timelines: &[u32], labels: &[u32]) -> Vec<LabelAmount> {
    let mut amounts = vec![LabelAmount { size: Some(0.0), ..LabelAmount::default() }; labels.len()];
    let places: HashMap<u32, usize> = labels.iter().copied().zip(0..).collect();
    for timeline in timelines {
        let calls = &found.calls.job.timelines[*timeline as usize];
        let recorded = found.calls.amounts.get(*timeline as usize);
        for number in segments_in_steps(found, *timeline) {
            let segment = calls.work[number];
            let Some(place) = places.get(&{ segment.label }) else { continue };
            let sum = &mut amounts[*place];
            sum.ns += segment.ns as f64;
            let size = recorded.and_then(|amounts| amounts.size(number)).filter(|_| calls.is_stream);
            sum.size = sum.size.zip(size).map(|(sum, size)| sum + f64::from(size));
            sum.count += match calls.is_stream {
                true => 1.0,
                false => recorded.map_or(0.0, |amounts| f64::from(amounts.ranges(number))),
            };
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(count: f64, ns: f64, size: Option<f64>) -> LabelAmount {
        LabelAmount { count, ns, size }
    }

    #[test]
    fn numbers_and_sizes_explain_what_is_longer_and_no_more() {
        let others = vec![amount(10.0, 1_000.0, Some(40.0)); 3];
        let explained = |own: LabelAmount| compare(0, own, others.clone()).unwrap().explained_ns().round();
        assert_eq!(explained(amount(12.0, 1_200.0, Some(48.0))), 200.0);
        assert_eq!(explained(amount(10.0, 1_200.0, Some(40.0))), 0.0, "each takes longer");
        assert_eq!(explained(amount(10.0, 1_200.0, Some(48.0))), 200.0, "each is larger");
        assert_eq!(explained(amount(20.0, 1_000.0, Some(80.0))), 0.0, "more and shorter ones");
        assert_eq!(explained(amount(12.0, 1_400.0, Some(48.0))), 200.0, "more and longer ones");
        assert_eq!(explained(amount(8.0, 800.0, Some(32.0))), -200.0);
        assert_eq!(explained(amount(12.0, 1_200.0, None)), 200.0, "sizes are not known");
        let slowness = compare(0, amount(10.0, 1_500.0, Some(48.0)), others.clone()).unwrap().slowness();
        assert!((slowness - 1.25).abs() < 1e-9, "of kernels of the same size: {slowness}");
        assert!(compare(0, amount(1.0, 1.0, None), Vec::new()).is_none());
        assert!(compare(0, LabelAmount::default(), others).is_none());
    }
}
