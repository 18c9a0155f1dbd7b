//! Whether the GPU of the named ranks is slower than others at the same kernels, and whether by its clock.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare, MIN_LIKELY};
use crate::lower_median::lower_median;
use crate::names::ranks_of;
use crate::shown_time::percent;
use crate::work_amounts::{AmountComparison, ComparedAmount};
use rpd_calls::{COMMUNICATING, CallLabel};
use rpd_graph::JobFinding;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Kernels with a smaller share of the work of a GPU do not make it longer.
const MIN_WORK_SHARE: f64 = 0.01;
/// Number of kernels that must be slower alike: one or two may be slow by their data.
const MIN_KERNELS: usize = 3;
/// Kernels are slower alike if the interquartile range of their ratios is less than this share of the median ratio.
const MAX_RANGE: f64 = 0.1;
/// Maximum share of the longer work that kernels of other numbers, sizes or names may explain, so that they are the same:
/// the rest of what a certain cause explains.
const MAX_OTHER_WORK: f64 = 0.2;
/// GPUs work in about the same share of the time, if these differ by no more.
const MAX_BUSY_APART: f64 = 0.05;
/// Minimum share of the steps in which a clock is known.
const MIN_KNOWN: f64 = 0.8;

/// How much slower the kernels of the named GPUs are.
#[derive(Clone, Copy, PartialEq, Debug)]
struct KernelSlowdown {
    /// Number of kernels, by name, whose ratio is near the median ratio.
    kernels: usize,
    /// Median of the ratios of their mean durations to those of other GPUs, each with the weight of its work.
    ratio: f64,
    /// Interquartile range of these.
    range: f64,
    /// Duration of these kernels in the steps, ns.
    work_ns: f64,
    /// By how much those of them that take longer do so, ns.
    slower_ns: f64,
    /// Whether the sizes of all of them are known.
    has_sizes: bool,
}

impl KernelSlowdown {
    fn of(comparison: &AmountComparison) -> Option<KernelSlowdown> {
        let counts = |one: &&ComparedAmount| one.work_share >= MIN_WORK_SHARE;
        let counted: Vec<&ComparedAmount> = comparison.compared.iter().filter(counts).collect();
        let mut ratios: Vec<(f64, f64)> = counted.iter().map(|one| (one.slowness(), one.own.ns)).collect();
        ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
        let ratio = quantile(&ratios, 0.5)?;
        let is_near = |one: &&&ComparedAmount| (one.slowness() - ratio).abs() < MAX_RANGE / 2.0 * ratio;
        let near = counted.iter().filter(is_near);
        Some(KernelSlowdown {
            kernels: near.map(|one| one.label).collect::<BTreeSet<u32>>().len(),
            ratio,
            range: quantile(&ratios, 0.75)? - quantile(&ratios, 0.25)?,
            work_ns: counted.iter().map(|one| one.own.ns).sum(),
            slower_ns: counted.iter().map(|one| one.own.ns * (1.0 - 1.0 / one.slowness().max(1.0))).sum(),
            has_sizes: counted.iter().all(|one| one.size_ratio.is_some()),
        })
    }

    /// Returns the time by which the work is longer, if all of it takes so many times as long, ns.
    fn longer_ns(&self, ratio: f64) -> f64 {
        self.work_ns * (1.0 - 1.0 / ratio.max(1.0))
    }
}

/// Returns a quantile of figures with weights, which ascend: the least figure that, with all before it, has this share of the
/// weight. `None` if there are none.
fn quantile(ascending: &[(f64, f64)], share: f64) -> Option<f64> {
    let least = share * ascending.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut sum = 0.0;
    let reaches = ascending.iter().find(|(_, weight)| {
        sum += weight;
        sum >= least
    });
    reaches.or(ascending.last()).map(|(figure, _)| *figure)
}

/// Examines whether the GPUs of the named ranks are slower. `None` if the finding is not about kernels and copies that other
/// GPUs have as well. `comparison` is that of the work of streams.
pub(crate) fn gpu_speed_evidence(
    found: &AnalysedRun<'_>,
    finding: &JobFinding,
    comparison: &AmountComparison,
) -> Option<CauseEvidence> {
    let label = finding.label?;
    let Some(CallLabel::GpuWork(name)) = found.calls.labels.get(label as usize) else { return None };
    let name = name.to_lowercase();
    if COMMUNICATING.iter().any(|word| name.contains(word)) {
        let why = "why this GPU takes longer in a collective, as links between GPUs are not recorded";
        return Some(CauseEvidence::not_known(CauseKind::GpuSlower, why));
    }
    comparison.compared.iter().find(|one| one.label == label)?;
    let Some(excess_ns) = finding.excess_of_streams_ns() else {
        let why = "whether the GPU is slower, as its work in all is not longer than that of other GPUs";
        return Some(CauseEvidence::not_known(CauseKind::GpuSlower, why));
    };
    let slowness = KernelSlowdown::of(comparison)?;
    let other_work: f64 =
        comparison.compared.iter().map(|one| one.by_number_ns().abs() + one.by_size_ns().abs()).sum();
    let are_same = other_work + comparison.incomparable_ns <= excess_ns * MAX_OTHER_WORK;
    let is_alike = slowness.range < MAX_RANGE * slowness.ratio;
    let slower = GpuSpeed {
        slowness,
        excess_ns,
        is_one: ranks_of(found.calls, finding.subject.timelines()).len() == 1,
    };
    if !are_same {
        let why =
            "whether the GPU is slower, as other GPUs have other kernels, or another number or size of them";
        return Some(CauseEvidence::not_known(CauseKind::GpuSlower, why));
    }
    let is_by_some = slowness.slower_ns >= excess_ns * MIN_LIKELY
        && slowness.longer_ns(slowness.ratio) < excess_ns * MIN_LIKELY;
    if is_by_some {
        let why = format!(
            "whether the GPU is slower, as only some of {} take so much longer than those of other GPUs",
            slower.kernels()
        );
        return Some(CauseEvidence::not_known(CauseKind::GpuSlower, why));
    }
    if !is_alike {
        // A lower clock slows kernels by how much they compute.
        let [ratio, range] = [slowness.ratio, slowness.range].map(percent);
        let why = format!(
            "whether the GPU is slower, as {} take {ratio} of the time of those of other GPUs, but not alike: half of the \
             ratios span {range}",
            slower.kernels()
        );
        return Some(CauseEvidence::not_known(CauseKind::GpuSlower, why));
    }
    Some(slower.by_clock(GpuFigures::compare(found, finding)))
}

/// The figures of a GPU that is slower.
#[derive(Clone, Copy, Debug)]
struct GpuSpeed {
    slowness: KernelSlowdown,
    excess_ns: f64,
    is_one: bool,
}

impl GpuSpeed {
    /// Returns the words for the kernels of the named GPUs.
    fn kernels(&self) -> &'static str {
        if self.is_one { "its kernels" } else { "their kernels" }
    }

    /// Returns the evidence with the figures of the named GPUs and of others.
    fn by_clock(&self, figures: Result<ComparedFigures, &str>) -> CauseEvidence {
        let share = self.slowness.longer_ns(self.slowness.ratio) / self.excess_ns;
        let (kernels, ratio) = (self.kernels(), percent(self.slowness.ratio));
        let slower =
            format!("{kernels} take {ratio} of the time of those of other GPUs (median, weighted by work)");
        let by = |[named, typical]: [GpuClock; 2], of: fn(&GpuClock) -> f64| {
            self.slowness.longer_ns(of(&typical) / of(&named)) / self.excess_ns
        };
        // Where other GPUs are idle meanwhile, their mean clock is lower, and only the highest ones can be compared.
        let figures = figures.and_then(|figures| {
            let by_highest = by(figures.clocks, |clock| clock.highest_mhz);
            let by_mean = by(figures.clocks, |clock| clock.mean_mhz);
            if by_highest >= MIN_LIKELY {
                return Ok((figures, figures.clocks.map(|clock| clock.highest_mhz), by_highest));
            }
            match figures.are_busy_alike {
                true => Ok((figures, figures.clocks.map(|clock| clock.mean_mhz), by_mean)),
                false => {
                    Err("its clock cannot be compared, as the GPUs are idle for different shares of the time")
                }
            }
        });
        let clocks = figures.ok().map(|(_, [named, typical], _)| (named, typical));
        let by_clock = figures.ok().map(|(_, _, by_clock)| by_clock);
        let clock_text = |(named, typical): (f64, f64)| {
            format!(", at a shader clock of {named:.0} MHz, other GPUs {typical:.0} MHz")
        };
        let facts = slower + &clocks.map_or(String::new(), clock_text);
        // One kernel alone may be slow by its data, but not a lower clock.
        let (kind, share) = match by_clock {
            _ if share < MIN_LIKELY => (CauseKind::GpuSlower, share),
            Some(by_clock) if by_clock >= MIN_LIKELY => (CauseKind::GpuClock, by_clock.min(share)),
            Some(by_clock) => (CauseKind::GpuNotClock, share - by_clock),
            None => (CauseKind::GpuSlower, share),
        };
        let explained =
            match share >= MIN_LIKELY && self.slowness.kernels < MIN_KERNELS && kind != CauseKind::GpuClock {
                true => Err(format!(
                    "whether the GPU is slower, as fewer than {MIN_KERNELS} of its kernels are slower alike"
                )),
                false => Ok(ExplainedShare { share, error: None }),
            };
        let mut reason = match figures {
            Err(why) => format!("; {why}"),
            Ok((figures, ..)) => figures.text(),
        };
        if !self.slowness.has_sizes {
            reason += "; sizes of its kernels are not recorded";
        }
        let json = json!({
            "ratio": self.slowness.ratio,
            "interquartile_range": self.slowness.range,
            "kernels": self.slowness.kernels,
            "clock_mhz": clocks.map(|(named, _)| named),
            "typical_clock_mhz": clocks.map(|(_, typical)| typical),
            "explained": share,
        });
        CauseEvidence { kind, explained, facts, reason, json }
    }
}

/// Recorded shader clock of a GPU in the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct GpuClock {
    /// Mean, MHz.
    mean_mhz: f64,
    /// The clock that is not exceeded in nine tenths of the time, MHz.
    highest_mhz: f64,
}

/// Recorded metrics of a GPU in the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct GpuFigures {
    clock: GpuClock,
    /// Share of the time in which it works, or runs a kernel that waits for other GPUs.
    busy: f64,
    /// Mean power, W.
    power_w: Option<f64>,
    /// Mean of the power that it must not exceed, W.
    power_cap_w: Option<f64>,
    /// Mean junction temperature, degrees Celsius.
    temperature_c: Option<f64>,
}

/// Figures of the named GPUs, and of others.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ComparedFigures {
    clocks: [GpuClock; 2],
    /// Whether they work in about the same share of the time: the clock of an idle GPU is lower.
    are_busy_alike: bool,
    power_w: Option<[f64; 2]>,
    /// Power that they must not exceed, W.
    power_cap_w: Option<[f64; 2]>,
    temperature_c: Option<[f64; 2]>,
}

impl ComparedFigures {
    /// Continues a sentence with what was recorded beside the clock.
    fn text(self) -> String {
        let figure = |name: &str, unit: &str, of: Option<[f64; 2]>, caps: Option<[f64; 2]>| {
            let cap = |place: usize| {
                caps.map_or_else(String::new, |caps| format!(" of at most {:.0} {unit}", caps[place]))
            };
            of.map(|[named, typical]| {
                format!("; {name} {named:.0} {unit}{}, of other GPUs {typical:.0} {unit}{}", cap(0), cap(1))
            })
        };
        let figures = [
            figure("power", "W", self.power_w, self.power_cap_w),
            figure("junction temperature", "\u{b0}C", self.temperature_c, None),
        ];
        figures.into_iter().flatten().collect()
    }
}

impl GpuFigures {
    /// Compares the median figures of the named GPUs with those of the others; else, why they are not known.
    fn compare(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<ComparedFigures, &'static str> {
        const NOT_RECORDED: &str = "its clock is not recorded for most steps (rpd-collect --trace system)";
        let job = &found.calls.job;
        let process_of = |timeline: &u32| job.timelines[*timeline as usize].process;
        let named: BTreeSet<u32> = finding.subject.timelines().iter().map(process_of).collect();
        let several =
            |process: &u32| found.calls.gpus.get(*process as usize).is_some_and(|gpus| gpus.count > 1);
        if named.iter().any(several) {
            return Err("its clock is not known, as the rank uses several GPUs");
        }
        let mut timelines: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, timeline) in job.timelines.iter().enumerate() {
            timelines.entry(timeline.process).or_default().push(number);
        }
        let (mut of_named, mut of_others) = (Vec::new(), Vec::new());
        for (process, timelines) in &timelines {
            match (figures_of(found, *process, timelines), named.contains(process)) {
                (Some(figures), true) => of_named.push(figures),
                (Some(figures), false) => of_others.push(figures),
                (None, true) => return Err(NOT_RECORDED),
                (None, false) => {}
            }
        }
        let all = [&of_named, &of_others];
        let of = |figure: fn(&GpuFigures) -> Option<f64>| -> Option<[f64; 2]> {
            let [named, typical] = all.map(|all| lower_median(all.iter().filter_map(figure).collect()));
            Some([named?, typical?])
        };
        let mean = of(|one| Some(one.clock.mean_mhz)).ok_or(NOT_RECORDED)?;
        let highest = of(|one| Some(one.clock.highest_mhz)).ok_or(NOT_RECORDED)?;
        let [named_busy, typical_busy] = of(|one| Some(one.busy)).ok_or(NOT_RECORDED)?;
        Ok(ComparedFigures {
            clocks: [0, 1].map(|place| GpuClock { mean_mhz: mean[place], highest_mhz: highest[place] }),
            are_busy_alike: (named_busy - typical_busy).abs() <= MAX_BUSY_APART,
            power_w: of(|one| one.power_w),
            power_cap_w: of(|one| one.power_cap_w),
            temperature_c: of(|one| one.temperature_c),
        })
    }
}

/// Returns the figures of the only GPU of a process in the steps, of which these are the threads and streams; `None` if its
/// clock is not known for most of them.
fn figures_of(found: &AnalysedRun<'_>, process: u32, timelines: &[usize]) -> Option<GpuFigures> {
    let metrics = &found.calls.gpus.get(process as usize).filter(|gpus| gpus.count == 1)?.metrics;
    let first = *timelines.first()?;
    let length_ns = found.analysis.times_in_steps(first, 0..found.calls.job.steps).length_ns;
    let from_ns = found.analysis.step_start_ns(first, 0);
    let to_ns = from_ns.saturating_add_unsigned(length_ns);
    let is_known = |known_ns: f64| known_ns > 0.0 && known_ns >= length_ns as f64 * MIN_KNOWN;
    let known = |(mean, known_ns): (f64, f64)| is_known(known_ns).then_some(mean);
    let (highest_mhz, known_ns) = metrics.highest_shader_clock_between(from_ns, to_ns);
    let mean_mhz = known(metrics.shader_clock_between(from_ns, to_ns)).filter(|clock| *clock > 0.0)?;
    let busy_ns: f64 = timelines.iter().map(|timeline| busy_ns(found, *timeline)).sum();
    Some(GpuFigures {
        clock: GpuClock { mean_mhz, highest_mhz: known((highest_mhz, known_ns))?.max(mean_mhz) },
        busy: (busy_ns / length_ns as f64).min(1.0),
        power_w: known(metrics.power_between(from_ns, to_ns)),
        power_cap_w: known(metrics.power_cap_between(from_ns, to_ns)).filter(|cap| *cap > 0.0),
        temperature_c: known(metrics.temperature_between(from_ns, to_ns)),
    })
}

/// Returns how long a stream works in the steps, or runs kernels of collectives, ns.
fn busy_ns(found: &AnalysedRun<'_>, timeline: usize) -> f64 {
    let calls = &found.calls.job.timelines[timeline];
    if !calls.is_stream {
        return 0.0;
    }
    let busy = |call: usize| {
        let in_call = if calls.is_collective_kernel(call) { calls.calls[call].duration_ns } else { 0 };
        calls.work_ns_before(call).saturating_add(in_call) as f64
    };
    found.analysis.calls_in_steps(timeline, 0..found.calls.job.steps).map(busy).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::work_amounts::LabelAmount;

    /// Slowdown of kernels, each of a duration of its own and a ratio.
    fn slowdown(kernels: &[(f64, f64)]) -> KernelSlowdown {
        let all_ns: f64 = kernels.iter().map(|(ns, _)| ns).sum();
        let of = |(label, (ns, ratio)): (u32, &(f64, f64))| {
            let own = LabelAmount { count: 10.0, ns: *ns, size: Some(10.0) };
            ComparedAmount::of_kernels(label, own, 10.0, ns / 10.0 / ratio, ns / all_ns)
        };
        let compared = (0..).zip(kernels).map(of).collect();
        KernelSlowdown::of(&AmountComparison { compared, incomparable_ns: 0.0 }).unwrap()
    }

    #[test]
    fn kernels_count_by_their_work() {
        // A lower clock slows what computes, which is most of the work, and not the many kernels that load.
        let mut kernels = vec![(200.0, 1.2); 3];
        kernels.extend([(15.0, 1.0); 10]);
        let found = slowdown(&kernels);
        assert_eq!((found.ratio, found.kernels), (1.2, 3));
        assert!(found.range.abs() < 1e-9 && (found.slower_ns - 100.0).abs() < 1e-6, "{found:?}");
        // One kernel alone may take longer by its data, whatever its work.
        let found = slowdown(&[(900.0, 1.5), (40.0, 1.0), (30.0, 1.0), (30.0, 1.0)]);
        assert_eq!((found.ratio, found.kernels), (1.5, 1));
        let found = slowdown(&[(300.0, 2.0), (400.0, 1.0), (300.0, 1.0)]);
        assert_eq!((found.ratio, found.kernels), (1.0, 2));
        assert!((found.slower_ns - 150.0).abs() < 1e-6, "{found:?}");
    }

    fn speed(kernels: usize, ratio: f64) -> GpuSpeed {
        let slower_ns = 1_000.0 * (1.0 - 1.0 / ratio);
        let slowness =
            KernelSlowdown { kernels, ratio, range: 0.01, work_ns: 1_000.0, slower_ns, has_sizes: true };
        GpuSpeed { slowness, excess_ns: slower_ns, is_one: true }
    }

    /// Figures of GPUs that always work.
    fn figures(clocks: [f64; 2]) -> Result<ComparedFigures, &'static str> {
        Ok(ComparedFigures {
            clocks: clocks.map(|mhz| GpuClock { mean_mhz: mhz, highest_mhz: mhz }),
            are_busy_alike: true,
            power_w: Some([500.0; 2]),
            power_cap_w: Some([750.0, 800.0]),
            temperature_c: None,
        })
    }

    #[test]
    fn a_clock_is_the_cause_if_it_is_lower_by_as_much_as_the_kernels_are_slower() {
        let found = |clocks| {
            let evidence = speed(5, 1.25).by_clock(figures(clocks));
            (evidence.kind, (evidence.share() * 100.0).round() as i64)
        };
        assert_eq!(found([1_600.0, 2_000.0]), (CauseKind::GpuClock, 100));
        assert_eq!(found([1_700.0, 2_000.0]), (CauseKind::GpuClock, 75));
        assert_eq!(found([2_000.0, 2_000.0]), (CauseKind::GpuNotClock, 100));
        assert_eq!(found([2_100.0, 2_000.0]), (CauseKind::GpuNotClock, 100));
        // A clock that is lower than the kernels are slower explains no more than they are.
        assert_eq!(found([1_000.0, 2_000.0]), (CauseKind::GpuClock, 100));
        let text = speed(5, 1.25).by_clock(figures([1_600.0, 2_000.0])).naming_text(true);
        let expected = "a lower clock of the GPU: its kernels take 125 % of the time of those of other GPUs (median, weighted by work), at \
                        a shader clock of 1600 MHz, other GPUs 2000 MHz; this explains 100 % of the longer work; power 500 W of \
                        at most 750 W, of other GPUs 500 W of at most 800 W";
        assert_eq!(text, expected);
    }

    #[test]
    fn idle_gpus_have_a_lower_mean_clock() {
        // The named GPU always works, the others for 70 % of the time.
        let with = |highest: [f64; 2], mean: [f64; 2]| {
            let clocks = [0, 1].map(|place| GpuClock { mean_mhz: mean[place], highest_mhz: highest[place] });
            let figures = ComparedFigures {
                clocks,
                are_busy_alike: false,
                power_w: None,
                power_cap_w: None,
                temperature_c: None,
            };
            speed(5, 1.43).by_clock(Ok(figures))
        };
        let throttled = with([1_400.0, 2_000.0], [1_400.0, 1_440.0]);
        assert_eq!((throttled.kind, throttled.is_shown()), (CauseKind::GpuClock, true));
        let unknown = with([2_000.0, 2_000.0], [2_000.0, 1_440.0]);
        assert_eq!((unknown.kind, unknown.is_shown()), (CauseKind::GpuSlower, false));
        assert!(unknown.naming_text(false).ends_with(
            "; its clock cannot be compared, as the GPUs are idle for different shares of the time"
        ));
    }

    #[test]
    fn without_clocks_or_with_few_kernels_less_is_known() {
        let evidence = speed(5, 1.25).by_clock(Err("its clock is not recorded"));
        assert_eq!((evidence.kind, evidence.is_shown()), (CauseKind::GpuSlower, false));
        assert!(evidence.naming_text(false).ends_with("; its clock is not recorded"));
        assert!(speed(2, 1.25).by_clock(figures([2_000.0, 2_000.0])).explained.is_err());
        assert!(speed(2, 1.25).by_clock(figures([1_600.0, 2_000.0])).is_shown());
    }

    #[test]
    fn quantiles_go_by_the_weights() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[(7.0, 3.0)], 0.25), Some(7.0));
        let of = |figures: &[(f64, f64)]| [0.25, 0.5, 0.75].map(|share| quantile(figures, share).unwrap());
        assert_eq!(of(&[(1.0, 2.0), (2.0, 2.0), (4.0, 2.0)]), [1.0, 2.0, 4.0]);
        assert_eq!(of(&[(1.0, 1.0), (2.0, 18.0), (9.0, 1.0)]), [2.0; 3]);
    }
}
