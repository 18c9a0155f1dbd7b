//! Runs that real collectors recorded on emulated nodes: one kernel, so that the true offsets of their clocks are known.

use rpd_clocks::{AlignChoice, AlignMethod, DomainFit, align};
use rpd_console::Failure;
use rpd_merge::MergeArgs;
use rpd_merge::{JobObservations, job_observations};
use rpd_shard::model::LocalNs;
use rpd_shard::record::ClockDomain;
use std::path::Path;

/// Moments of each clock that are looked at, spread evenly over what was recorded of it.
const MOMENTS: i64 = 400;
/// Offsets of emulated nodes are whole seconds.
const SECOND: i64 = 1_000_000_000;

/// What collectors observed of the clocks of one run, and the truth.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    recorded: JobObservations,
    /// BOOTTIME of the reference minus that of each domain, ns; `None` where no clock set says it.
    truth: Vec<Option<i64>>,
}

/// How one clock of a run was aligned, against the truth.
#[derive(Clone, Debug)]
pub struct JudgedClock {
    /// By what.
    pub method: AlignMethod,
    /// Absolute errors at moments of the run, ns.
    pub errors: Vec<i64>,
    /// The error bounds at the same moments, ns.
    pub bounds: Vec<i64>,
    /// Moments at which a certain bound did not hold.
    pub broken: usize,
    /// Jumps that the merge saw. There are none in truth.
    pub jumps: usize,
}

impl RecordedRun {
    /// Reads the shards of a run folder.
    ///
    /// # Errors
    /// If a merge could not read them.
    pub fn open(run: &Path) -> Result<RecordedRun, Failure> {
        let output = Some(run.join("not-written.db"));
        let args = MergeArgs { inputs: vec![run.to_owned()], output, quiet: true, ..MergeArgs::default() };
        let recorded = job_observations(&args)?;
        let anchors: Vec<Option<i64>> = recorded
            .observations
            .sets
            .iter()
            .map(|sets| {
                let best = sets.iter().min_by_key(|set| set.bracket)?;
                Some(best.realtime - best.boottime)
            })
            .collect();
        let reference = anchors.get(recorded.observations.reference).copied().flatten();
        let whole = |ns: i64| (ns + SECOND / 2).div_euclid(SECOND) * SECOND;
        let truth = anchors.iter().map(|own| Some(whole((*own)? - reference?))).collect();
        Ok(RecordedRun { recorded, truth })
    }

    /// BOOTTIME of the reference minus that of a clock domain, ns.
    pub fn truth_of(&self, domain: &ClockDomain) -> Option<i64> {
        let place = self.recorded.observations.domains.iter().position(|known| known == domain)?;
        self.truth.get(place).copied().flatten()
    }
}

/// Aligns the clocks of a run and compares each but the reference with the truth.
pub fn judge(run: &RecordedRun, by: AlignChoice) -> Vec<JudgedClock> {
    let fits = align(&run.recorded.observations, by);
    let all = fits.iter().zip(&run.truth).zip(&run.recorded.spans);
    let others = all.filter(|((fit, _), _)| fit.method != AlignMethod::Reference);
    others.filter_map(|((fit, truth), span)| Some(judged(fit, (*truth)?, (*span)?))).collect()
}

fn judged(fit: &DomainFit, truth: i64, (first, last): (i64, i64)) -> JudgedClock {
    let mut judged = JudgedClock {
        method: fit.method,
        errors: Vec::new(),
        bounds: Vec::new(),
        broken: 0,
        jumps: fit.steps.len(),
    };
    for part in 0..=MOMENTS {
        let local =
            first + ((i128::from(last) - i128::from(first)) * i128::from(part) / i128::from(MOMENTS)) as i64;
        let off = local + truth - fit.map.map(LocalNs(local)).ns();
        judged.errors.push(off.abs());
        judged.bounds.push(fit.bar_at(LocalNs(local)).unwrap_or(i64::MAX));
        let is_broken = fit.certain_bound_at(LocalNs(local)).is_some_and(|hard| off.abs() > hard);
        judged.broken += usize::from(is_broken);
    }
    judged
}

impl JudgedClock {
    /// Whether at least 95 of 100 errors are within their bounds.
    pub fn is_covered(&self) -> bool {
        self.coverage() >= 0.95
    }

    /// Share of the errors that are within their bounds.
    pub fn coverage(&self) -> f64 {
        let within = self.errors.iter().zip(&self.bounds).filter(|(error, bound)| error <= bound).count();
        within as f64 / self.errors.len().max(1) as f64
    }
}
