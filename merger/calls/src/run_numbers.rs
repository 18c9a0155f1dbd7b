//! Replaces the numbers of a unit in its calls by those of the run.

use crate::communicators::run_number;
use crate::python_samples::WorkSample;
use crate::python_stacks::NO_STACK;
use crate::window_ends::EarlierEnds;
use rpd_graph::{
    Call, CollectiveEntry, Completion, LocalDependency, MessageEnd, MessagesBefore, WorkSegment,
};

/// The numbers of a run that replace those of a process in its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunNumbers<'a> {
    /// Number of each label of the unit.
    pub(crate) labels: &'a [u32],
    /// Number of each stack of the unit.
    pub(crate) stacks: &'a [u32],
    /// Number of each communicator of the unit.
    pub(crate) communicators: &'a [u32],
    /// Number of the first timeline of the process.
    pub(crate) first_timeline: u32,
}

impl RunNumbers<'_> {
    fn label(&self, label: u32) -> u32 {
        self.labels.get(label as usize).copied().unwrap_or(0)
    }

    pub(crate) fn calls(&self, calls: Vec<Call>) -> Vec<Call> {
        map_all(calls, |call| Call { label: self.label(call.label), ..call })
    }

    pub(crate) fn work(&self, work: Vec<WorkSegment>) -> Vec<WorkSegment> {
        map_all(work, |segment| WorkSegment { label: self.label(segment.label), ..segment })
    }

    pub(crate) fn samples(&self, samples: Vec<WorkSample>) -> Vec<WorkSample> {
        let stack = |stack: u32| self.stacks.get(stack as usize).copied().unwrap_or(NO_STACK);
        map_all(samples, |sample| WorkSample {
            stack: stack(sample.stack),
            label: self.label(sample.label),
            ..sample
        })
    }

    pub(crate) fn message_ends(&self, ends: Vec<MessageEnd>) -> Vec<MessageEnd> {
        let communicator = |end: MessageEnd| run_number(self.communicators, end.communicator);
        map_all(ends, |end| MessageEnd { communicator: communicator(end), ..end })
    }

    /// Returns the numbers of messages of a process before the window.
    pub(crate) fn messages_before(&self, ends: &EarlierEnds, process: u32) -> Vec<MessagesBefore> {
        let counts = ends.counts.iter().map(|(&(communicator, peer, tag, is_send), &count)| {
            let communicator = run_number(self.communicators, communicator);
            MessagesBefore { process, communicator, peer, tag, is_send, count }
        });
        counts.collect()
    }

    pub(crate) fn entries(&self, entries: Vec<CollectiveEntry>) -> Vec<CollectiveEntry> {
        let communicator = |entry: CollectiveEntry| run_number(self.communicators, entry.communicator);
        map_all(entries, |entry| CollectiveEntry { communicator: communicator(entry), ..entry })
    }

    pub(crate) fn completions(&self, completions: Vec<Completion>) -> Vec<Completion> {
        let begun_on = |completion: Completion| completion.begun_on + self.first_timeline;
        map_all(completions, |completion| Completion { begun_on: begun_on(completion), ..completion })
    }

    pub(crate) fn local_dependencies(&self, found: Vec<LocalDependency>) -> Vec<LocalDependency> {
        let awaited = |found: LocalDependency| found.awaited_timeline.saturating_add(self.first_timeline);
        map_all(found, |found| LocalDependency { awaited_timeline: awaited(found), ..found })
    }
}

/// Changes all elements in place.
fn map_all<T: Copy>(mut all: Vec<T>, change: impl Fn(T) -> T) -> Vec<T> {
    all.iter_mut().for_each(|one| *one = change(*one));
    all
}
