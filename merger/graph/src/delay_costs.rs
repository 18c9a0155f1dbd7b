//! Which thread and which of its work made others wait, directly and by way of others.
//!
//! After Boehme, Geimer, Arnold, Voigtlaender, Wolf: *Identifying the Root Causes of Wait States in Large-Scale
//! Parallel Applications*, ACM TOPC 3(2), 2016. A thread waits for another because the other did more since the two
//! last synchronised (a *delay*), or because it waited itself. The waiting is divided among both in proportion. What
//! is due to waiting is passed on to the causes of that waiting, from the last wait of the job to the first, so that
//! each wait is visited once.

use crate::label_times::{LabelTimes, SLOTS};
use crate::replay::ReplayTimes;
use crate::wait_causes::{WaitCause, each_cause_backwards};
use crate::waits::CallWait;

/// Waiting that the work of one thread under one label caused, ns.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DelayCost {
    /// Of threads that waited for this one.
    pub direct_ns: f64,
    /// Of threads that waited for a thread that waited for this one, over any number of steps.
    pub propagated_ns: f64,
}

impl DelayCost {
    /// Returns all waiting that was caused, ns.
    pub fn total_ns(self) -> f64 {
        self.direct_ns + self.propagated_ns
    }

    pub(crate) fn add(&mut self, other: DelayCost) {
        self.direct_ns += other.direct_ns;
        self.propagated_ns += other.propagated_ns;
    }
}

/// Waiting that the work of a thread under a label caused.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LabelCost {
    /// Label; `None` for all labels without a slot.
    pub label: Option<u32>,
    /// The waiting.
    pub cost: DelayCost,
}

/// The causes of all waiting.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DelayCosts {
    /// Costs of each timeline by label, the largest first.
    pub by_label: Vec<Vec<LabelCost>>,
    /// Direct waiting for a timeline by the function in which the others waited: timeline, label of the function, ns.
    pub waited_in: Vec<(u32, u32, f64)>,
    /// Time waited, ns.
    pub waited_ns: u64,
    /// Waiting whose cause is not in the calls and the work, ns.
    pub unexplained_ns: f64,
}

impl DelayCosts {
    /// Returns the waiting that a timeline caused.
    pub fn of_timeline(&self, timeline: usize) -> DelayCost {
        let mut sum = DelayCost::default();
        self.by_label[timeline].iter().for_each(|label| sum.add(label.cost));
        sum
    }
}

/// Factors of the waits of one thread that later waits pass on, while the waits are visited from the last one.
#[derive(Clone, Debug, Default)]
struct PassedOn {
    /// Changes at calls that are not visited yet, which ascend: of the sum, and of the number of factors in it. Most are
    /// added near the end, where the next ones are taken.
    changes: Vec<(u32, f64, i64)>,
    sum: f64,
    factors: i64,
}

impl PassedOn {
    /// Adds a factor to the waits in the calls from `first` and before `to`.
    fn add(&mut self, first: u32, to: u32, factor: f64) {
        if first >= to {
            return;
        }
        let mut change = |call: u32, factor: f64, count: i64| {
            let place = self.changes.partition_point(|(known, ..)| *known < call);
            match self.changes.get_mut(place) {
                Some((known, sum, factors)) if *known == call => {
                    (*sum, *factors) = (*sum + factor, *factors + count);
                }
                _ => self.changes.insert(place, (call, factor, count)),
            }
        };
        change(to - 1, factor, 1);
        if let Some(before) = first.checked_sub(1) {
            change(before, -factor, -1);
        }
    }

    /// Returns the sum of the factors of the wait in a call. The calls descend from one use to the next.
    fn at(&mut self, call: u32) -> f64 {
        while let Some((_, factor, count)) = self.changes.pop_if(|(at, ..)| *at >= call) {
            self.factors += count;
            // What is left of the sum of no factors is rounding.
            self.sum = if self.factors == 0 { 0.0 } else { self.sum + factor };
        }
        self.sum
    }
}

/// Attributes the selected waits to their causes. That a thread and a GPU of one process wait for each other costs others
/// nothing by itself, but passes on the waits of others.
pub(crate) fn delay_costs(
    waits: &[CallWait],
    times: &LabelTimes<'_>,
    replayed: &ReplayTimes<1>,
    is_selected: impl Fn(&CallWait) -> bool + Sync,
) -> DelayCosts {
    let count = times.job().timelines.len();
    let mut costs = vec![[DelayCost::default(); SLOTS]; count];
    let mut passed_on = vec![PassedOn::default(); count];
    let mut waited_in: Vec<Vec<(u32, f64)>> = vec![Vec::new(); count];
    let (mut waited_ns, mut unexplained_ns) = (0u64, 0.0);
    each_cause_backwards(waits, times, replayed, is_selected, |found| {
        let WaitCause { wait, delays, delayed_ns, waited_before_ns } = found;
        let CallWait { timeline, call, cause, cause_call, ns, .. } = wait;
        let received_ns = ns as f64 * passed_on[timeline as usize].at(call);
        let process_of = |timeline: u32| times.job().timelines[timeline as usize].process;
        let ns = if process_of(timeline) == process_of(cause) { 0 } else { ns };
        let own_ns = ns as f64;
        let total_ns = delayed_ns.saturating_add(waited_before_ns) as f64;
        waited_ns = waited_ns.saturating_add(ns);
        if total_ns == 0.0 {
            unexplained_ns += own_ns + received_ns;
            return;
        }
        let direct = (own_ns / total_ns).min(1.0);
        let propagated = received_ns / total_ns;
        unexplained_ns += (own_ns - direct * total_ns).max(0.0);
        for (slot, delay) in delays {
            let delay = *delay as f64;
            let cost = DelayCost { direct_ns: direct * delay, propagated_ns: propagated * delay };
            costs[cause as usize][usize::from(*slot)].add(cost);
        }
        if waited_before_ns > 0 {
            passed_on[cause as usize].add(wait.first_call_of_cause(), cause_call, direct + propagated);
        }
        if ns == 0 {
            return;
        }
        let function = times.job().timelines[timeline as usize].calls[call as usize].label;
        let functions = &mut waited_in[cause as usize];
        let direct_ns = direct * delayed_ns as f64;
        match functions.iter_mut().find(|(known, _)| *known == function) {
            Some((_, ns)) => *ns += direct_ns,
            None => functions.push((function, direct_ns)),
        }
    });
    let of_cause = |(cause, functions): (u32, Vec<(u32, f64)>)| {
        functions.into_iter().map(move |(function, ns)| (cause, function, ns))
    };
    let mut waited_in: Vec<(u32, u32, f64)> = (0u32..).zip(waited_in).flat_map(of_cause).collect();
    waited_in.sort_by_key(|(cause, function, _)| (*cause, *function));
    let by_label = costs.iter().map(|costs| {
        let found = costs.iter().enumerate().filter(|(_, cost)| cost.total_ns() > 0.0);
        let mut found: Vec<LabelCost> =
            found.map(|(slot, cost)| LabelCost { label: times.label(slot), cost: *cost }).collect();
        found.sort_by(|one, other| other.cost.total_ns().total_cmp(&one.cost.total_ns()));
        found
    });
    DelayCosts { by_label: by_label.collect(), waited_in, waited_ns, unexplained_ns }
}
