//! Finds steps without marks in a job whose collectives do not repeat: the messages of each process do.

use crate::repetition::{beginnings, find_period};
use crate::steps::StepTimes;
use rpd_graph::{CallTimeline, JobCalls, MessageEnd, MessageRole};
use std::collections::HashMap;

/// Steps are not shorter on average, ns: their number would say nothing.
const MIN_MEAN_NS: i64 = 100_000;
/// Messages of more kinds do not repeat.
const MAX_KINDS: usize = 4096;

/// The values that equal messages of one function share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessageForm {
    PeerAndTag,
    Peer,
    Function,
}

/// Finds the steps of each process, and the label of the call that begins them in the first process.
///
/// The messages of a process repeat in a way of its own, as those at a border have fewer neighbours. A step begins at the
/// message with the longest median time since the call before. All processes must have equally many steps, so that the n-th
/// of one is that of all.
pub(crate) fn repeated_messages(job: &JobCalls) -> Option<(u32, Vec<StepTimes>)> {
    let timelines: Option<Vec<&CallTimeline>> =
        (0..job.processes).map(|process| sending_timeline(job, process)).collect();
    let timelines = timelines?;
    [MessageForm::PeerAndTag, MessageForm::Peer, MessageForm::Function].into_iter().find_map(|form| {
        let mut label = None;
        let mut all: Vec<StepTimes> = Vec::with_capacity(timelines.len());
        for timeline in &timelines {
            let (of_process, times) = message_steps(timeline, form)?;
            label.get_or_insert(of_process);
            if all.first().is_some_and(|first| first.len() != times.len()) {
                return None;
            }
            all.push(times);
        }
        Some((label?, all))
    })
}

/// Returns the thread of a process with most messages.
fn sending_timeline(job: &JobCalls, process: u32) -> Option<&CallTimeline> {
    let of_process = job.timelines.iter().filter(|timeline| timeline.process == process);
    let found = of_process.max_by_key(|timeline| timeline.message_ends.len());
    found.filter(|timeline| !timeline.message_ends.is_empty())
}

/// Returns the label of the call that begins the steps of a thread, and their beginnings.
fn message_steps(timeline: &CallTimeline, form: MessageForm) -> Option<(u32, StepTimes)> {
    let ends = &timeline.message_ends;
    let symbols = symbols(timeline, form)?;
    let (period, stretch) = find_period(&symbols)?;
    let exit_before = |end: &MessageEnd| match (end.call as usize).checked_sub(1) {
        Some(before) => timeline.calls.get(before).map(|call| call.exit_ns()),
        None => Some(timeline.start_ns),
    };
    let gap = |place: usize| -> Option<i64> {
        let end = ends.get(place)?;
        Some(timeline.calls.get(end.call as usize)?.enter_ns - exit_before(end)?)
    };
    let median_gap = |phase: usize| {
        let mut gaps: Vec<i64> = stretch.clone().skip(phase).step_by(period).filter_map(gap).collect();
        gaps.sort_unstable();
        gaps.get(gaps.len().saturating_sub(1) / 2).copied()
    };
    let phase = (0..period).max_by_key(|phase| (median_gap(*phase), std::cmp::Reverse(*phase)))?;
    let starts = beginnings(&symbols, &stretch, period, phase);
    let starts: Vec<&MessageEnd> = starts.iter().filter_map(|place| ends.get(*place)).collect();
    let times: StepTimes = starts.iter().map(|end| exit_before(end)).collect::<Option<_>>()?;
    let lasted = times.last()?.saturating_sub(*times.first()?);
    // Beyond the last beginning is the end of the last step.
    let is_usable = times.len() > JobCalls::MIN_STEPS
        && times.is_sorted()
        && lasted >= MIN_MEAN_NS.saturating_mul(times.len() as i64 - 1);
    let label = timeline.calls.get(starts.first()?.call as usize)?.label;
    is_usable.then_some((label, times))
}

/// Returns a number for each end of a message; equal numbers mean equal ones. `None` if there are too many kinds.
fn symbols(timeline: &CallTimeline, form: MessageForm) -> Option<Vec<u32>> {
    let mut known: HashMap<(u32, MessageRole, u32, i32, i32), u32> = HashMap::new();
    let symbol = |end: &MessageEnd| {
        let label = timeline.calls.get(end.call as usize)?.label;
        let peer = if form == MessageForm::Function { 0 } else { end.peer };
        let tag = if form == MessageForm::PeerAndTag { end.tag } else { 0 };
        let next = known.len() as u32;
        let number = *known.entry((label, end.role, end.communicator, peer, tag)).or_insert(next);
        (known.len() <= MAX_KINDS).then_some(number)
    };
    timeline.message_ends.iter().map(symbol).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::steps::{StepKind, mark_steps_without_ranges};
    use rpd_graph::Call;

    const MS: i64 = 1_000_000;

    /// Processes in a row without a ring, of which each sends to and receives from its neighbours after some work in each
    /// step. `extra` adds a message to one process after its steps.
    fn row_of_processes(processes: i32, steps: i32, tag: impl Fn(i32) -> i32, extra: bool) -> JobCalls {
        let timeline = |process: i32| {
            let mut timeline = CallTimeline { process: process as u32, ..CallTimeline::default() };
            let mut now = 0;
            let mut message = |work: i64, label: u32, role, peer: i32, tag: i32| {
                let call = timeline.calls.len() as u32;
                now += work;
                timeline.calls.push(Call { enter_ns: now, duration_ns: MS as u64 / 10, label });
                now += MS / 10;
                let end = MessageEnd { call, communicator: 0, peer, tag, bytes: 8, role, is_blocking: true };
                timeline.message_ends.push(end);
            };
            for step in 0..steps {
                let neighbours = [process - 1, process + 1];
                let mut neighbours = neighbours.into_iter().filter(|peer| (0..processes).contains(peer));
                let first = neighbours.next().unwrap();
                message(5 * MS + i64::from(process) * MS / 50, 1, MessageRole::Send, first, tag(step));
                message(MS / 100, 2, MessageRole::Receive, first, tag(step));
                for peer in neighbours {
                    message(MS / 50, 1, MessageRole::Send, peer, tag(step));
                    message(MS / 100, 2, MessageRole::Receive, peer, tag(step));
                }
            }
            if extra && process == 1 {
                (0..3).for_each(|_| message(6 * MS, 1, MessageRole::Send, 0, 99));
            }
            timeline.end_ns = now;
            timeline
        };
        let timelines = (0..processes).map(timeline).collect();
        JobCalls { timelines, processes: processes as u32, labels: 3, ..JobCalls::default() }
    }

    #[test]
    fn steps_of_messages_are_found_whatever_their_tags() {
        let constant = |_| 7;
        let of_step = |step| step;
        for (processes, steps) in (2..7).zip([12, 30, 64, 100, 257]) {
            for job in [
                row_of_processes(processes, steps, constant, false),
                row_of_processes(processes, steps, of_step, false),
            ] {
                let (label, times) = repeated_messages(&job).unwrap();
                assert_eq!(label, 1);
                for (timeline, times) in job.timelines.iter().zip(times) {
                    assert_eq!(times.len() as i32, steps, "{processes} processes");
                    let of_messages = timeline.calls.len() / steps as usize;
                    let begins = (0..steps as usize).map(|step| (step * of_messages).checked_sub(1));
                    let begins =
                        begins.map(|before| before.map_or(0, |before| timeline.calls[before].exit_ns()));
                    assert_eq!(times, begins.collect::<StepTimes>());
                }
            }
        }
    }

    #[test]
    fn processes_with_different_numbers_of_steps_have_none() {
        let mut job = row_of_processes(4, 40, |_| 7, false);
        let last = job.timelines[2].calls.len() - 8;
        job.timelines[2].calls.truncate(last);
        job.timelines[2].message_ends.truncate(last);
        assert!(repeated_messages(&job).is_none());
        let kind = mark_steps_without_ranges(&mut job);
        assert!(!matches!(kind, Some(StepKind::Repetition)), "{kind:?}");
    }

    #[test]
    fn other_messages_after_the_steps_do_not_hide_them() {
        let job = row_of_processes(3, 40, |_| 7, true);
        let (_, times) = repeated_messages(&job).unwrap();
        assert!(
            times.iter().all(|times| times.len() == 40),
            "{:?}",
            times.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}
