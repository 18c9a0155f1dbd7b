//! Whether the GPU of the named ranks is slower than others at the same kernels, and whether by its clock.

use crate::analysed_run::AnalysedRun;
use crate::cause_evidence::{CauseEvidence, CauseKind, ExplainedShare, MIN_LIKELY};
use crate::names::ranks_of;
use crate::shown_time::percent;
use crate::work_amounts::{AmountComparison, ComparedAmount, median};
use rpd_calls::{COMMUNICATING, CallLabel};
use rpd_graph::JobFinding;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Kernels with a smaller share of the work of a GPU do not make it longer.
const MIN_WORK_SHARE: f64 = 0.01;
/// Number of kernels that must be slower alike: one or two may be slow by their data.
const MIN_KERNELS: usize = 3;
/// Kernels are slower alike if the interquartile range of their ratios is less than this share of the median ratio.
const MAX_RANGE: f64 = 0.1;
/// Maximum share of the longer work that kernels of other numbers, sizes or names may explain, so that they are the same:
/// the rest of what a certain cause explains.
const MAX_OTHER_WORK: f64 = 0.2;
/// Minimum share of the steps in which a clock is known.
const MIN_KNOWN: f64 = 0.8;

/// How much slower the kernels of the named GPUs are.
#[derive(Clone, Copy, PartialEq, Debug)]
struct KernelSlowdown {
    /// Number of kernels, by name.
    kernels: usize,
    /// Median of the ratios of their mean durations to those of other GPUs.
    ratio: f64,
    /// Interquartile range of these.
    range: f64,
    /// Duration of these kernels in the steps, ns.
    work_ns: f64,
}

impl KernelSlowdown {
    fn of(comparison: &AmountComparison) -> Option<KernelSlowdown> {
        let all_ns: f64 = comparison.compared.iter().map(|one| one.own.ns).sum();
        let counts = |one: &&ComparedAmount| one.own.ns >= all_ns * MIN_WORK_SHARE;
        let counted: Vec<&ComparedAmount> = comparison.compared.iter().filter(counts).collect();
        let mut ratios: Vec<f64> = counted.iter().map(|one| one.slowness()).collect();
        ratios.sort_by(f64::total_cmp);
        let kernels = counted.iter().map(|one| one.label).collect::<BTreeSet<u32>>().len();
        let range = quantile(&ratios, 0.75)? - quantile(&ratios, 0.25)?;
        let work_ns = counted.iter().map(|one| one.own.ns).sum();
        Some(KernelSlowdown { kernels, ratio: quantile(&ratios, 0.5)?, range, work_ns })
    }

    /// Returns the time by which the work is longer, if all of it takes so many times as long, ns.
    fn longer_ns(&self, ratio: f64) -> f64 {
        self.work_ns * (1.0 - 1.0 / ratio.max(1.0))
    }
}

/// Returns a quantile of figures, which ascend; between two of them by their distance. `None` if there are none.
fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let place = share * ascending.len().checked_sub(1)? as f64;
    let (low, high) = (ascending.get(place.floor() as usize)?, ascending.get(place.ceil() as usize)?);
    Some(low + (high - low) * place.fract())
}

/// Examines whether the GPUs of the named ranks are slower. `None` if the finding is not about kernels and copies that other
/// GPUs have as well.
pub(crate) fn gpu_speed_evidence(found: &AnalysedRun<'_>, finding: &JobFinding) -> Option<CauseEvidence> {
    let label = finding.label?;
    let Some(CallLabel::GpuWork(name)) = found.calls.labels.get(label as usize) else { return None };
    let name = name.to_lowercase();
    if COMMUNICATING.iter().any(|word| name.contains(word)) {
        let why = "why this GPU takes longer in a collective, as links between GPUs are not recorded";
        return Some(CauseEvidence::not_known(CauseKind::GpuSlower, why));
    }
    let comparison = AmountComparison::of(found, finding, true);
    comparison.compared.iter().find(|one| one.label == label)?;
    let excess_ns = (finding.excess_ns > 0).then_some(finding.excess_ns as f64)?;
    let slowness = KernelSlowdown::of(&comparison)?;
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
        return Some(
            slower.excluded("other GPUs have other kernels, or another number or size of them".to_owned()),
        );
    }
    if !is_alike {
        let [ratio, range] = [slowness.ratio, slowness.range].map(percent);
        return Some(slower.excluded(format!("{} take {ratio} of the time of those of other GPUs, but not alike: half of the ratios span {range}", slower.kernels())));
    }
    Some(slower.by_clock(named_and_typical(found, finding)))
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

    fn excluded(&self, facts: String) -> CauseEvidence {
        let explained = Ok(ExplainedShare { share: 0.0, error: None });
        CauseEvidence {
            kind: CauseKind::GpuSlower,
            explained,
            facts,
            reason: String::new(),
            json: Json::Null,
        }
    }

    /// Returns the evidence with the figures of the named GPUs and of others.
    fn by_clock(&self, figures: Result<[GpuFigures; 2], &str>) -> CauseEvidence {
        let share = self.slowness.longer_ns(self.slowness.ratio) / self.excess_ns;
        let (kernels, ratio) = (self.kernels(), percent(self.slowness.ratio));
        let slower = format!("{kernels} take {ratio} of the time of those of other GPUs (median by name)");
        let clocks = figures.ok().map(|[named, typical]| (named.clock_mhz, typical.clock_mhz));
        let by_clock =
            clocks.map(|(named, typical)| self.slowness.longer_ns(typical / named) / self.excess_ns);
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
        let explained = match self.slowness.kernels < MIN_KERNELS && kind != CauseKind::GpuClock {
            true => Err(format!(
                "whether the GPU is slower, as it has less than {MIN_KERNELS} kernels to compare"
            )),
            false => Ok(ExplainedShare { share, error: None }),
        };
        let reason = match figures {
            Err(why) => format!("; {why}"),
            Ok(figures) => GpuFigures::text(figures),
        };
        let clock = |place: usize| figures.ok().map(|figures| figures[place].clock_mhz);
        let json = json!({
            "ratio": self.slowness.ratio,
            "interquartile_range": self.slowness.range,
            "kernels": self.slowness.kernels,
            "clock_mhz": clock(0),
            "typical_clock_mhz": clock(1),
            "explained": share,
        });
        CauseEvidence { kind, explained, facts, reason, json }
    }
}

/// Recorded metrics of a GPU, as means over the steps.
#[derive(Clone, Copy, PartialEq, Debug)]
struct GpuFigures {
    /// Shader clock, MHz.
    clock_mhz: f64,
    /// Power, W.
    power_w: Option<f64>,
    /// Junction temperature, degrees Celsius.
    temperature_c: Option<f64>,
}

impl GpuFigures {
    /// Returns the median of each figure.
    fn median(all: &[GpuFigures]) -> Option<GpuFigures> {
        let of = |figure: fn(&GpuFigures) -> Option<f64>| median(all.iter().filter_map(figure).collect());
        Some(GpuFigures {
            clock_mhz: of(|one| Some(one.clock_mhz))?,
            power_w: of(|one| one.power_w),
            temperature_c: of(|one| one.temperature_c),
        })
    }

    /// Continues a sentence with what was recorded beside the clock.
    fn text([named, typical]: [GpuFigures; 2]) -> String {
        let figure = |name: &str, unit: &str, of: fn(&GpuFigures) -> Option<f64>| {
            let (named, typical) = of(&named).zip(of(&typical))?;
            Some(format!("; {name} {named:.0} {unit}, of other GPUs {typical:.0} {unit}"))
        };
        let figures = [
            figure("power", "W", |one| one.power_w),
            figure("junction temperature", "\u{b0}C", |one| one.temperature_c),
        ];
        figures.into_iter().flatten().collect()
    }
}

/// Returns the figures of the named GPUs and of the others, or why they are not known.
fn named_and_typical(found: &AnalysedRun<'_>, finding: &JobFinding) -> Result<[GpuFigures; 2], &'static str> {
    const NOT_RECORDED: &str = "its clock is not recorded for most steps (rpd-collect --trace system)";
    let job = &found.calls.job;
    let process_of = |timeline: &u32| job.timelines[*timeline as usize].process;
    let named: BTreeSet<u32> = finding.subject.timelines().iter().map(process_of).collect();
    let several = |process: &u32| found.calls.gpus.get(*process as usize).is_some_and(|gpus| gpus.count > 1);
    if named.iter().any(several) {
        return Err("its clock is not known, as the rank uses several GPUs");
    }
    let others = (0..job.processes).filter(|process| !named.contains(process));
    let others: Vec<GpuFigures> = others.filter_map(|process| figures_of(found, process)).collect();
    let named: Option<Vec<GpuFigures>> = named.iter().map(|process| figures_of(found, *process)).collect();
    let named = named.and_then(|named| GpuFigures::median(&named));
    named.zip(GpuFigures::median(&others)).map(|(named, typical)| [named, typical]).ok_or(NOT_RECORDED)
}

/// Returns the figures of the only GPU of a process in the steps; `None` if its clock is not known for most of them.
fn figures_of(found: &AnalysedRun<'_>, process: u32) -> Option<GpuFigures> {
    let metrics = &found.calls.gpus.get(process as usize).filter(|gpus| gpus.count == 1)?.metrics;
    let mut timelines = found.calls.job.timelines.iter();
    let timeline = timelines.position(|timeline| timeline.process == process)?;
    let length_ns = found.analysis.times_in_steps(timeline, 0..found.calls.job.steps).length_ns;
    let from_ns = found.analysis.step_start_ns(timeline, 0);
    let to_ns = from_ns.saturating_add_unsigned(length_ns);
    let known = |(mean, known_ns): (f64, f64)| {
        (known_ns > 0.0 && known_ns >= length_ns as f64 * MIN_KNOWN).then_some(mean)
    };
    Some(GpuFigures {
        clock_mhz: known(metrics.shader_clock_between(from_ns, to_ns)).filter(|clock| *clock > 0.0)?,
        power_w: known(metrics.power_between(from_ns, to_ns)),
        temperature_c: known(metrics.temperature_between(from_ns, to_ns)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(kernels: usize, ratio: f64) -> GpuSpeed {
        let slowness = KernelSlowdown { kernels, ratio, range: 0.01, work_ns: 1_000.0 };
        GpuSpeed { slowness, excess_ns: 1_000.0 * (1.0 - 1.0 / ratio), is_one: true }
    }

    fn figures(clocks: [f64; 2]) -> Result<[GpuFigures; 2], &'static str> {
        Ok(clocks.map(|clock_mhz| GpuFigures { clock_mhz, power_w: Some(500.0), temperature_c: None }))
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
        let text = speed(5, 1.25).by_clock(figures([1_600.0, 2_000.0])).naming_text();
        let expected = "a lower clock of the GPU: its kernels take 125 % of the time of those of other GPUs (median by name), at \
                        a shader clock of 1600 MHz, other GPUs 2000 MHz; this explains 100 % of the longer work; power 500 W, \
                        of other GPUs 500 W";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_clocks_or_with_few_kernels_less_is_known() {
        let evidence = speed(5, 1.25).by_clock(Err("its clock is not recorded"));
        assert_eq!((evidence.kind, evidence.is_certain()), (CauseKind::GpuSlower, true));
        assert!(evidence.naming_text().ends_with("; its clock is not recorded"));
        assert!(speed(2, 1.25).by_clock(figures([2_000.0, 2_000.0])).explained.is_err());
        assert!(speed(2, 1.25).by_clock(figures([1_600.0, 2_000.0])).is_certain());
    }

    #[test]
    fn quantiles_are_between_figures() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.25), Some(7.0));
        assert_eq!(
            [0.25, 0.5, 0.75].map(|share| quantile(&[1.0, 2.0, 4.0], share)),
            [Some(1.5), Some(2.0), Some(3.0)]
        );
    }
}
