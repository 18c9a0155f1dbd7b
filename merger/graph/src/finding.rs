//! What is said about the threads that are named: which of their work is longer, when, and what it costs.

use crate::analysis::WaitAnalysis;
use crate::delay_costs::{DelayCost, DelayCosts};
use crate::excess::{StepExcess, StepPattern};
use crate::label_times::SLOTS;
use crate::what_if::WhatIfGain;

/// What a finding is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FindingSubject {
    /// Threads, the one with the longest excess first.
    Timelines(Vec<u32>),
    /// All threads of a node.
    Node {
        /// The node.
        node: u32,
        /// Its threads.
        timelines: Vec<u32>,
    },
}

impl FindingSubject {
    /// Returns the threads.
    pub fn timelines(&self) -> &[u32] {
        match self {
            FindingSubject::Timelines(timelines) | FindingSubject::Node { timelines, .. } => timelines,
        }
    }
}

/// A cause of waiting.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFinding {
    /// The threads that work longer.
    pub subject: FindingSubject,
    /// Label of the work that differs most; `None` if it is one of the labels without a slot.
    pub label: Option<u32>,
    /// Mean of this work of a process in a step, ns.
    pub label_ns: f64,
    /// Typical mean of this work in a step, ns.
    pub typical_ns: f64,
    /// By how much all work of these threads in all steps is longer than is typical, ns.
    pub excess_ns: i64,
    /// The part of it that is work of streams of GPUs, ns.
    excess_of_streams_ns: i64,
    /// What the job would gain if the work took as long as is typical.
    pub gain: WhatIfGain,
    /// Whether the gain is an upper limit, because one or two ranks alone do this work.
    pub is_at_most: bool,
    /// Whether no other thread does this work.
    pub is_exclusive: bool,
    /// In which steps.
    pub pattern: StepPattern,
    /// Share of the steps in which the work is longer.
    pub share_of_steps: f64,
    /// The waiting that it caused.
    pub cost: DelayCost,
}

/// Work of a thread under one label.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepWork {
    /// Label; `None` for all labels without a slot.
    pub label: Option<u32>,
    /// Mean in a step, ns.
    pub step_ns: f64,
    /// Typical mean in a step, ns.
    pub typical_ns: f64,
}

impl StepWork {
    /// Returns by how much the work is longer than is typical, ns.
    pub fn excess_ns(&self) -> f64 {
        self.step_ns - self.typical_ns
    }
}

impl JobFinding {
    /// Returns by how much the work of the threads without streams is longer than is typical, ns; `None` if it is not.
    pub fn excess_of_threads_ns(&self) -> Option<f64> {
        let ns = self.excess_ns.saturating_sub(self.excess_of_streams_ns);
        (ns > 0).then_some(ns as f64)
    }

    /// Returns by how much the work of the streams is longer than is typical, ns; `None` if it is not.
    pub fn excess_of_streams_ns(&self) -> Option<f64> {
        (self.excess_of_streams_ns > 0).then_some(self.excess_of_streams_ns as f64)
    }
}

impl WaitAnalysis<'_> {
    /// Returns the work of a thread in the steps by label, the one that exceeds the typical work most first.
    pub fn step_work(&self, timeline: u32) -> Vec<StepWork> {
        let (table, steps) = (&self.table, f64::from(self.graph.job.steps.max(1)));
        let mean = |ns: &dyn Fn(usize) -> u64| table.step_blocks().map(ns).sum::<u64>() as f64 / steps;
        let of_slot = |slot| StepWork {
            label: self.times.label(slot),
            step_ns: mean(&|block| table.ns(timeline as usize, block, slot)),
            typical_ns: mean(&|block| table.typical_ns(timeline as usize, block, slot)),
        };
        let mut work: Vec<StepWork> = (0..SLOTS).map(of_slot).filter(|work| work.step_ns > 0.0).collect();
        work.sort_by(|one, other| other.excess_ns().total_cmp(&one.excess_ns()));
        work
    }

    /// Describes the threads that are named, the one with the longest excess first.
    pub(crate) fn finding(&self, costs: &DelayCosts, named: &[u32], gain: WhatIfGain) -> JobFinding {
        let (table, steps) = (&self.table, f64::from(self.graph.job.steps));
        let cells = || {
            let of = |timeline: u32| table.step_blocks().map(move |block| (timeline as usize, block));
            let all = named.iter().copied().flat_map(of);
            all.filter(|(timeline, block)| !table.is_lacking(*timeline, *block))
        };
        let excess = |slot: usize| -> i64 {
            let of = |(timeline, block)| {
                table.ns(timeline, block, slot) as i64 - table.typical_ns(timeline, block, slot) as i64
            };
            cells().map(of).fold(0, i64::saturating_add)
        };
        let slot = (0..SLOTS).max_by_key(|slot| (excess(*slot), std::cmp::Reverse(*slot))).unwrap_or(0);
        let processes = self.graph.job.processes_of(named).len();
        let in_a_step = |ns: u64| ns as f64 / steps / processes as f64;
        let of_all: i64 = (0..SLOTS).map(|slot| excess(slot).max(0)).fold(0, i64::saturating_add);
        let rare = (0..SLOTS).filter(|slot| !table.is_compared(*slot));
        let of_rare: i64 = rare.map(|slot| excess(slot).max(0)).fold(0, i64::saturating_add);
        let of_timelines = |timelines: &[u32], block: usize| -> Option<i64> {
            timelines.iter().map(|t| table.excess_ns(*t as usize, block)).sum()
        };
        let of_block = |block: usize| of_timelines(named, block);
        let is_stream = |timeline: &u32| self.graph.job.timelines[*timeline as usize].is_stream;
        let streams: Vec<u32> = named.iter().copied().filter(is_stream).collect();
        let compared = || table.step_blocks().filter(|block| of_block(*block).is_some());
        let excess_of = |timelines: &[u32]| {
            compared().filter_map(|block| of_timelines(timelines, block)).fold(0, i64::saturating_add)
        };
        let by_step = StepExcess::new(table.step_blocks().map(of_block), false);
        let mut cost = DelayCost::default();
        named.iter().for_each(|timeline| cost.add(costs.of_timeline(*timeline as usize)));
        JobFinding {
            subject: self.subject(named),
            label: self.times.label(slot),
            label_ns: in_a_step(cells().map(|(timeline, block)| table.ns(timeline, block, slot)).sum()),
            typical_ns: in_a_step(
                cells().map(|(timeline, block)| table.typical_ns(timeline, block, slot)).sum(),
            ),
            excess_ns: excess_of(named),
            excess_of_streams_ns: excess_of(&streams),
            gain,
            is_at_most: of_rare > of_all / 2,
            is_exclusive: table.holders[slot] == 1 && !table.is_compared(slot),
            pattern: by_step.pattern().of_blocks(table.steps_in_block as u32, self.graph.job.steps),
            share_of_steps: by_step.share_of_steps(),
            cost,
        }
    }

    /// Returns the node if the timelines are of all processes of one node, else the timelines.
    fn subject(&self, named: &[u32]) -> FindingSubject {
        let job = self.graph.job;
        let node_of = |timeline: u32| job.timelines[timeline as usize].node;
        let node = node_of(named[0]);
        let of_node: Vec<u32> =
            (0..job.timelines.len() as u32).filter(|other| node_of(*other) == node).collect();
        let (processes, on_node) = (job.processes_of(named), job.processes_of(&of_node));
        let is_node = processes == on_node && processes.len() > 1 && of_node.len() < job.timelines.len();
        match is_node {
            true => FindingSubject::Node { node, timelines: of_node },
            false => FindingSubject::Timelines(named.to_vec()),
        }
    }
}
