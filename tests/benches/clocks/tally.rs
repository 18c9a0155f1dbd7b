use rpd_clocks::{AlignMethod, DomainFit};
use rpd_tests::clocks::TrueMoment;

/// Errors and bars of one method over the moments of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// us.
    errors: Vec<f32>,
    /// us.
    bars: Vec<f32>,
    /// Errors within their bars.
    within: u64,
    /// Errors outside of hard bounds, and moments that have such bounds at all.
    pub(crate) hard_broken: u64,
    pub(crate) hard: u64,
}

impl Tally {
    /// Of the moments on the nodes that are `of` interest.
    pub(crate) fn new(fits: &[DomainFit], moments: &[TrueMoment], of: impl Fn(usize) -> bool) -> Tally {
        let mut tally = Tally::default();
        for moment in moments.iter().filter(|m| of(m.domain)) {
            let fit = &fits[moment.domain];
            if fit.method == AlignMethod::None {
                continue;
            }
            let off = moment.truth - fit.map.map(moment.local).ns();
            tally.errors.push(off.unsigned_abs() as f32 / 1e3);
            if let Some(bar) = fit.bar_at(moment.local) {
                tally.bars.push(bar as f32 / 1e3);
                tally.within += u64::from(off.abs() <= bar);
            }
            let after = fit.bars.partition_point(|b| b.local <= moment.local.0);
            let around = after
                .checked_sub(1)
                .and_then(|i| Some((fit.bars.get(i)?.certain_bounds?, fit.bars.get(after)?.certain_bounds?)));
            if let Some((a, b)) = around {
                tally.hard += 1;
                tally.hard_broken += u64::from(off < a.0.min(b.0) || off > a.1.max(b.1));
            }
        }
        tally
    }

    pub(crate) fn with(mut self, other: Tally) -> Tally {
        self.errors.extend(other.errors);
        self.bars.extend(other.bars);
        self.within += other.within;
        self.hard += other.hard;
        self.hard_broken += other.hard_broken;
        self
    }

    /// `None` if the method gave no map.
    pub(crate) fn figures(&mut self) -> Option<Figures> {
        self.errors.sort_unstable_by(f32::total_cmp);
        self.bars.sort_unstable_by(f32::total_cmp);
        let at =
            |values: &[f32], share: f64| values.get(((values.len() as f64 - 1.0) * share) as usize).copied();
        Some(Figures {
            p50: at(&self.errors, 0.5)?,
            p95: at(&self.errors, 0.95)?,
            max: at(&self.errors, 1.0)?,
            bar: at(&self.bars, 0.5),
            within: self.within,
            barred: self.bars.len() as u64,
        })
    }
}

/// us, except for counts.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Figures {
    pub(crate) p50: f32,
    pub(crate) p95: f32,
    pub(crate) max: f32,
    /// Median width of the bar, to one side.
    pub(crate) bar: Option<f32>,
    pub(crate) within: u64,
    pub(crate) barred: u64,
}

impl Figures {
    /// Share of errors within their bars.
    pub(crate) fn coverage(&self) -> Option<f64> {
        (self.barred > 0).then(|| self.within as f64 / self.barred as f64)
    }
}
