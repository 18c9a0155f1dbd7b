//! Work that the cause of a wait did beyond that of the waiting thread since the two last synchronised.

use crate::label_times::{LabelTimes, SlotTimes};
use crate::replay::ReplayTimes;
use crate::waits::{CallWait, NO_CALL};
use rayon::prelude::*;

/// Number of waits that one thread of rpd measures at a time.
const WAITS_OF_THREAD: usize = 1024;

/// Work that the cause of a wait did beyond that of the waiting thread since the two last synchronised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitCause<'a> {
    pub(crate) wait: CallWait,
    /// Slots of labels, and by how much longer the cause spent under them, ns.
    pub(crate) delays: &'a [(u8, u64)],
    /// Sum of the delays, ns.
    pub(crate) delayed_ns: u64,
    /// Time that the cause waited itself, ns.
    pub(crate) waited_before_ns: u64,
}

/// Causes of waits, in a compact form.
#[derive(Clone, Debug, Default)]
struct CausesOfWaits {
    /// Each wait, with the end of its delays in `delays`, and the time that the cause waited itself, ns.
    waits: Vec<(CallWait, u32, u64)>,
    delays: Vec<(u8, u64)>,
}

impl CausesOfWaits {
    fn add(&mut self, times: &LabelTimes<'_>, replayed: &ReplayTimes<1>, wait: CallWait) {
        let CallWait { timeline, call, cause, cause_call, synchronised, cause_synchronised, .. } = wait;
        let start = |call: u32| (call != NO_CALL).then_some(call as usize);
        let of_cause = times.between(cause as usize, start(cause_synchronised), cause_call as usize);
        let of_own = times.between(timeline as usize, start(synchronised), call as usize);
        let delays = of_cause.iter().zip(of_own).map(|(of_cause, own)| of_cause.saturating_sub(own));
        let delays = (0u8..).zip(delays).take(times.used_slots()).filter(|(_, delay)| *delay > 0);
        self.delays.extend(delays);
        let waited_before_ns = waited_before(times, replayed, &wait, &of_cause);
        self.waits.push((wait, self.delays.len() as u32, waited_before_ns));
    }

    fn iter(&self) -> impl Iterator<Item = WaitCause<'_>> {
        let mut first = 0;
        self.waits.iter().map(move |(wait, end, waited_before_ns)| {
            let delays = &self.delays[std::mem::replace(&mut first, *end as usize)..*end as usize];
            let delayed_ns = delays.iter().fold(0u64, |sum, (_, delay)| sum.saturating_add(*delay));
            WaitCause { wait: *wait, delays, delayed_ns, waited_before_ns: *waited_before_ns }
        })
    }
}

/// Passes the causes of the selected waits to `take`, the last first. While it takes some, other threads of rpd measure the
/// next.
pub(crate) fn each_cause_backwards(
    waits: &[CallWait],
    times: &LabelTimes<'_>,
    replayed: &ReplayTimes<1>,
    is_selected: impl Fn(&CallWait) -> bool + Sync,
    mut take: impl FnMut(WaitCause<'_>) + Send,
) {
    let measure = |some: &[CallWait]| -> Vec<CausesOfWaits> {
        let of_thread = |some: &[CallWait]| {
            let mut found = CausesOfWaits::default();
            some.iter()
                .rev()
                .filter(|wait| is_selected(wait))
                .for_each(|wait| found.add(times, replayed, *wait));
            found
        };
        some.par_rchunks(WAITS_OF_THREAD).map(of_thread).collect()
    };
    let at_once = WAITS_OF_THREAD * 4 * rayon::current_num_threads();
    let mut parts = waits.rchunks(at_once);
    let mut measured = parts.next().map(&measure);
    while let Some(some) = measured {
        let take_all = || some.iter().flat_map(CausesOfWaits::iter).for_each(&mut take);
        let next = parts.next();
        (_, measured) = rayon::join(take_all, || next.map(&measure));
    }
}

/// Returns how long the cause of a wait had waited itself since the two threads synchronised, ns: the time from its
/// first call after that to the call that it entered last, without what is in `of_cause`, its work and transfers.
pub(crate) fn waited_before(
    times: &LabelTimes<'_>,
    replayed: &ReplayTimes<1>,
    wait: &CallWait,
    of_cause: &SlotTimes,
) -> u64 {
    let CallWait { cause, cause_call, cause_synchronised, is_at_entry, .. } = *wait;
    let first = wait.first_call_of_cause();
    if first >= cause_call {
        return 0;
    }
    let lasted = replayed.enter_ns(cause, cause_call).saturating_sub(replayed.enter_ns(cause, first));
    // The times in `of_cause` begin at the call at which the two synchronised.
    let before = match cause_synchronised {
        _ if is_at_entry => 0,
        NO_CALL => times.job().timelines[cause as usize].work_ns_before(0),
        call => {
            let transfer_ns = times.transfer_ns(cause as usize, call as usize);
            times.job().timelines[cause as usize].work_ns_before(first as usize).saturating_add(transfer_ns)
        }
    };
    let known = of_cause.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
    u64::try_from(lasted).unwrap_or(0).saturating_add(before).saturating_sub(known)
}
