//! Decides which rank, node or ranks the others wait for, or why none is named.
//!
//! A thread is a suspect if it works longer than is typical, by more than the noise, in most steps or in a stretch of
//! them. Suspects are named if the job would gain by their typical work (the replay), and if the delay analysis
//! attributes the waiting to them: two methods that use different parts of the records.

use crate::analysis::WaitAnalysis;
use crate::delay_costs::{DelayCosts, LabelCost};
use crate::excess::StepExcess;
use crate::finding::JobFinding;
use crate::job_calls::JobCalls;
use crate::matched_share::{MIN_MATCHED, MatchedShare};
use crate::network_gain::NetworkFinding;
use crate::scenarios::{SCENARIOS_AT_ONCE, ScenarioTimes};
use crate::slow_network::SlowMessages;
use crate::suspects::{min_gain_ns, suspects};
use crate::usual_noise::UsualNoise;
use crate::what_if::{STANDARD_ERRORS, WhatIf, WhatIfGain};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The replay may be off by this share of the run.
const MAX_REPLAY_OFF: f64 = 0.05;
/// Maximum number of findings.
const MAX_FINDINGS: usize = 3;
/// Threads are a finding of their own if they have at least this share of the gain of all that are named.
const MIN_GROUP_SHARE: f64 = 1.0 / 3.0;
/// The excess of the next thread is then shorter by at least this share of the longest one.
const MIN_GROUP_GAP: f64 = 0.3;
/// A thread is the longest of this many by chance too seldom to matter.
const MAX_THREADS_OF_ONE_BY_CHANCE: usize = 32;
/// Up to this many suspects are tried one by one.
const MAX_TRIED: usize = 8;

/// What slows the job down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobVerdict {
    /// The first finding: work that takes longer on some ranks.
    Slow,
    /// The first finding: work that one rank alone does.
    Serial,
    /// Ranks work unequally, but no rank, node or small number of ranks stands out.
    NoSingleCause,
    /// Nothing could be gained by more equal work.
    Balanced,
    /// The records do not show it.
    CannotTell,
}

/// Why no rank is named.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DiagnosisLimit {
    /// No calls of several ranks.
    NoCalls,
    /// Processes that communicate in several threads.
    Threads {
        /// Number of such processes.
        processes: u32,
    },
    /// Messages and collectives that do not match.
    Unmatched {
        /// The operations, in words.
        what: &'static str,
        /// How many match.
        matched: u64,
        /// Number of all.
        all: u64,
    },
    /// The replay with the recorded durations has another length: dependencies are missing.
    ReplayOff {
        /// Recorded length less replayed length, divided by the recorded length.
        share: f64,
    },
    /// Too few steps to tell a slow rank from chance.
    FewSteps {
        /// Number of steps.
        steps: u32,
    },
    /// A rank is longer in calls than others, and what it waits for there is not known.
    LongCalls {
        /// By how much, as a share of the run.
        share: f64,
        /// Label of the function.
        label: u32,
    },
    /// Ranks pause between polls, for which they may wait.
    PollPauses {
        /// The longest pauses of a rank, as a share of the run.
        share: f64,
    },
    /// The replay and the delay analysis do not name the same ranks.
    MethodsDisagree,
}

/// Result of the analysis.
#[derive(Clone, PartialEq, Debug)]
pub struct JobDiagnosis {
    /// What slows the job down.
    pub verdict: JobVerdict,
    /// The causes that are named, the one with the longest excess first. The gain of each is what remains to be gained
    /// when those before it work as is typical.
    pub findings: Vec<JobFinding>,
    /// Gain if all work of all threads in the steps took as long as is typical.
    pub gain_of_all: WhatIfGain,
    /// Gain before the first step.
    pub gain_of_start_up: WhatIfGain,
    /// Gain after the last step.
    pub gain_of_ending: WhatIfGain,
    /// Messages that take longer than others, if the run would be shorter without that. None, if there are limits.
    pub network: Option<NetworkFinding>,
    /// Messages that seem to take longer, by less than clocks can be wrong about it.
    pub doubtful_network: Option<SlowMessages>,
    /// Why no rank is named.
    pub limits: Vec<DiagnosisLimit>,
}

impl WaitAnalysis<'_> {
    /// Decides what slows the job down.
    pub fn diagnose(&self) -> JobDiagnosis {
        let what_if = self.what_if();
        let mut diagnosis = self.diagnose_by(&what_if, &self.costs);
        if diagnosis.limits.is_empty()
            && let Some(limit) = self.doubt(&diagnosis)
        {
            diagnosis.verdict = JobVerdict::CannotTell;
            diagnosis.findings.clear();
            diagnosis.limits.push(limit);
        }
        self.add_network(&what_if, &mut diagnosis);
        diagnosis
    }

    fn diagnose_by(&self, what_if: &WhatIf<'_>, costs: &DelayCosts) -> JobDiagnosis {
        let gain_of_all = what_if.gain_over(&self.recorded, &self.scenarios.typical_steps);
        let mut diagnosis = JobDiagnosis {
            verdict: JobVerdict::CannotTell,
            findings: Vec::new(),
            gain_of_all,
            gain_of_start_up: self.gain_of_block(what_if, 0, &self.scenarios.typical_start_up),
            gain_of_ending: self.gain_of_block(
                what_if,
                self.table.step_blocks().end,
                &self.scenarios.typical_ending,
            ),
            network: None,
            doubtful_network: None,
            limits: self.limits(),
        };
        if !diagnosis.limits.is_empty() {
            return diagnosis;
        }
        let min_gain = self.min_gain_ns();
        let suspects = suspects(self.graph.job, &self.table, min_gain);
        if gain_of_all.ns < min_gain {
            diagnosis.verdict = JobVerdict::Balanced;
            return diagnosis;
        }
        diagnosis.verdict = JobVerdict::NoSingleCause;
        let Some((named, gain)) = self.named(what_if, &suspects, min_gain) else { return diagnosis };
        diagnosis.findings = self.findings(what_if, costs, &named, gain);
        diagnosis.verdict = match diagnosis.findings.first() {
            Some(first) if first.is_exclusive && first.subject.timelines().len() == 1 => JobVerdict::Serial,
            Some(_) => JobVerdict::Slow,
            None => {
                diagnosis.limits.push(DiagnosisLimit::MethodsDisagree);
                JobVerdict::CannotTell
            }
        };
        diagnosis
    }

    /// Describes the named threads. Those with a longer excess than the rest come first, in a finding of their own: the
    /// waiting for them hides the delays of the rest, which the delay analysis of the replay without them shows. The
    /// findings end at the first whose threads that analysis does not confirm.
    fn findings(
        &self,
        what_if: &WhatIf<'_>,
        costs: &DelayCosts,
        named: &[u32],
        gain_of_all: WhatIfGain,
    ) -> Vec<JobFinding> {
        let mut findings = Vec::new();
        let mut before = Vec::new();
        let mut rest = named;
        while !rest.is_empty() && findings.len() < MAX_FINDINGS {
            let (group, smaller) = rest.split_at(self.first_group(what_if, &before, rest));
            let without = (!before.is_empty()).then(|| self.delay_costs_without(what_if, &before));
            let costs = without.as_ref().unwrap_or(costs);
            // The others may wait for the last stage of a pipeline only at the end of the run.
            let is_confirmed = self.are_first_causes(costs, group)
                || before.is_empty()
                    && group.len() == 1
                    && self.are_first_causes(&self.costs_to_end(), group);
            if !is_confirmed {
                break;
            }
            let gain = match group.len() == named.len() {
                true => gain_of_all,
                false => what_if.gain_of_timelines(group, &before),
            };
            let gain = self.with_chance(what_if, gain, group, &before);
            let error_bound_ns = gain.error_bound_ns.saturating_add(self.kernel_clock_error_ns(group));
            let gain = WhatIfGain { error_bound_ns, ..gain };
            before.extend_from_slice(group);
            findings.push(self.finding(costs, group, gain));
            rest = smaller;
        }
        findings
    }

    /// Adds to the error bound of a gain what typical work shortens by chance: a step in which these threads happen to be the
    /// longest lasts as long in a run without their excess, but not in the replay. Another replay, in which their typical work
    /// differs from step to step as that of usual threads does, shows how much that is. Twice that is added, as the work of
    /// these threads may differ more. Where they are few among all, it is small and not measured.
    fn with_chance(
        &self,
        what_if: &WhatIf<'_>,
        gain: WhatIfGain,
        group: &[u32],
        before: &[u32],
    ) -> WhatIfGain {
        let job = self.graph.job;
        if group.len() * MAX_THREADS_OF_ONE_BY_CHANCE < job.timelines.len() {
            return gain;
        }
        let all = [group, before].concat();
        let Some(noise) = UsualNoise::new(job, &self.table, &all) else { return gain };
        let by_chance = (gain.ns - what_if.gain_with_noise(group, before, noise).ns).max(0);
        WhatIfGain { error_bound_ns: gain.error_bound_ns.saturating_add(by_chance.saturating_mul(2)), ..gain }
    }

    /// Returns how many of the threads, the one with the longest excess first, are a finding of their own: the next has
    /// a much shorter excess, and these have a large part of the gain of all, where the work of those before is typical
    /// already.
    fn first_group(&self, what_if: &WhatIf<'_>, before: &[u32], timelines: &[u32]) -> usize {
        let excess = |timeline: u32| -> f64 {
            let of = |block| self.table.excess_ns(timeline as usize, block).unwrap_or(0) as f64;
            self.table.step_blocks().map(of).sum()
        };
        let (all, longest) = (timelines.len(), timelines.first().map_or(0.0, |first| excess(*first)));
        let is_longer = |count: &usize| {
            let gap = excess(timelines[*count - 1]) - excess(timelines[*count]);
            gap >= longest * MIN_GROUP_GAP
        };
        let mut counts: Vec<usize> = (1..all.min(MAX_TRIED)).filter(is_longer).collect();
        if counts.is_empty() {
            return all;
        }
        counts.push(all);
        let groups: Vec<Vec<u32>> = counts.iter().map(|count| timelines[..*count].to_vec()).collect();
        let gains = what_if.gains_of_groups(&groups, before);
        let of_all = gains.last().map_or(0, |gain| gain.ns) as f64;
        let found = counts.iter().zip(&gains).find(|(_, gain)| gain.ns as f64 >= of_all * MIN_GROUP_SHARE);
        found.map_or(all, |(count, _)| *count)
    }

    /// Returns the gain by typical work in the block before the first step or after the last one. It happens once, so its
    /// error bound is estimated from the noise of the work in the steps, and from that of the clocks that compare the starts
    /// of nodes.
    fn gain_of_block(&self, what_if: &WhatIf<'_>, block: usize, replayed: &ScenarioTimes) -> WhatIfGain {
        let timelines = &self.graph.job.timelines;
        let gain = what_if.gain_over(&self.recorded, replayed);
        let mut work: Vec<u64> =
            (0..timelines.len()).map(|timeline| self.table.all_ns(timeline, block)).collect();
        work.sort_unstable();
        let [typical, longest] = [work.len().saturating_sub(1) / 2, work.len().saturating_sub(1)]
            .map(|place| work.get(place).copied().unwrap_or(0) as f64);
        let of_work = STANDARD_ERRORS * self.table.noise_share(timelines.len()) * typical.hypot(longest);
        let is_of_one_node = timelines.iter().all(|timeline| timeline.node == timelines[0].node);
        let bounds = timelines.iter().filter_map(|timeline| timeline.error_bound_at(timeline.start_ns));
        let of_clocks = if is_of_one_node { 0 } else { bounds.max().unwrap_or(0).saturating_mul(2) };
        let error = gain.error_bound_ns as f64 + of_work + of_clocks as f64;
        WhatIfGain { error_bound_ns: error.round() as i64, ..gain }
    }

    /// Returns the thread that works longest before the first step, its work, and that of the next other one, ns.
    pub fn longest_at_start(&self) -> Option<(u32, u64, u64)> {
        self.longest_in(0)
    }

    /// The same after the last step.
    pub fn longest_at_end(&self) -> Option<(u32, u64, u64)> {
        self.longest_in(self.table.step_blocks().end)
    }

    fn longest_in(&self, block: usize) -> Option<(u32, u64, u64)> {
        let timelines = (0u32..).zip(&self.graph.job.timelines).filter(|(_, timeline)| !timeline.is_stream);
        let mut work: Vec<(u64, u32)> =
            timelines.map(|(number, _)| (self.table.all_ns(number as usize, block), number)).collect();
        work.sort_unstable_by_key(|(ns, number)| (std::cmp::Reverse(*ns), *number));
        let (ns, timeline) = *work.first()?;
        let process = |timeline: u32| self.graph.job.timelines[timeline as usize].process;
        let next = work.iter().find(|(_, other)| process(*other) != process(timeline))?;
        Some((timeline, ns, next.0))
    }

    /// Returns the minimum gain of a finding, ns.
    fn min_gain_ns(&self) -> i64 {
        min_gain_ns(self.replayed_ns())
    }

    /// Returns what forbids to name a rank.
    fn limits(&self) -> Vec<DiagnosisLimit> {
        let job = self.graph.job;
        let mut limits = Vec::new();
        let mut threads: BTreeMap<u32, u32> = BTreeMap::new();
        for timeline in job.timelines.iter().filter(|timeline| !timeline.calls.is_empty()) {
            *threads.entry(timeline.process).or_default() += u32::from(!timeline.is_stream);
        }
        if threads.len() < 2 {
            return vec![DiagnosisLimit::NoCalls];
        }
        let processes = threads.values().filter(|threads| **threads > 1).count() as u32;
        if processes > 0 {
            // Other limits follow, as it is not known which thread takes which message.
            return vec![DiagnosisLimit::Threads { processes }];
        }
        let found = self.matched_share();
        if found.share() < MIN_MATCHED {
            let MatchedShare { what, matched, all } = found;
            limits.push(DiagnosisLimit::Unmatched { what, matched, all });
        }
        let recorded = self.recorded_ns().max(1) as f64;
        let share = (recorded - self.replayed_ns() as f64) / recorded;
        if share.abs() > MAX_REPLAY_OFF {
            limits.push(DiagnosisLimit::ReplayOff { share });
        }
        if (job.steps as usize) < JobCalls::MIN_STEPS {
            limits.push(DiagnosisLimit::FewSteps { steps: job.steps });
        }
        limits
    }

    /// Returns the suspects without which the job would be shorter, the longest excess first, and the gain of all of
    /// them; `None` if these are too many to stand out.
    fn named(
        &self,
        what_if: &WhatIf<'_>,
        suspects: &[(u32, StepExcess)],
        min_gain: i64,
    ) -> Option<(Vec<u32>, WhatIfGain)> {
        let mut named: Vec<u32> = suspects.iter().map(|(timeline, _)| *timeline).collect();
        if named.is_empty() {
            return None;
        }
        let mut all = match &self.scenarios.typical_suspects {
            Some((suspects, replayed)) if *suspects == named => what_if.gain_over(&self.recorded, replayed),
            _ => what_if.gain_of_timelines(&named, &[]),
        };
        if all.ns < min_gain {
            return None;
        }
        // Threads that hold up nobody are left out, from the one with the smallest excess on.
        let tried: Vec<u32> = suspects.iter().rev().take(MAX_TRIED).map(|(timeline, _)| *timeline).collect();
        let mut left = &tried[..];
        while !left.is_empty() {
            let some = &left[..left.len().min(SCENARIOS_AT_ONCE)];
            let without = |timeline: &u32| named.iter().copied().filter(|other| other != timeline).collect();
            let groups: Vec<Vec<u32>> = some.iter().map(without).collect();
            let gains = what_if.gains_of_groups(&groups, &[]);
            // The gains after this one are those with the thread that is left out.
            let found = gains.iter().position(|gain| all.ns - gain.ns < min_gain / 2);
            if let Some(place) = found {
                (named, all) = (groups[place].clone(), gains[place]);
            }
            left = &left[found.map_or(some.len(), |place| place + 1)..];
        }
        let processes = self.graph.job.processes_of(&named).len();
        (!named.is_empty() && processes * 2 <= self.graph.job.processes as usize).then_some((named, all))
    }

    /// Returns whether the delay analysis attributes more waiting to each of these threads than to all others but one.
    /// For a single thread, only the share of each thread's work that exceeds the typical work counts.
    ///
    /// Work that all threads do alike causes most of the waiting in a pipeline or for a master, but no thread can
    /// shorten it.
    fn are_first_causes(&self, costs: &DelayCosts, named: &[u32]) -> bool {
        let cost_of = |(timeline, labels): (usize, &Vec<LabelCost>)| {
            let of_label = |found: &LabelCost| {
                let slot = found.label.map_or(self.times.used_slots() - 1, |label| self.times.slot(label));
                let share = if named.len() == 1 { self.table.excess_share(timeline, slot) } else { 1.0 };
                found.cost.total_ns() * share
            };
            (timeline as u32, labels.iter().map(of_label).sum::<f64>())
        };
        let mut by_cost: Vec<(u32, f64)> = costs.by_label.par_iter().enumerate().map(cost_of).collect();
        by_cost.retain(|(_, cost)| *cost > 0.0);
        by_cost.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        by_cost.truncate(named.len() + 1);
        named.iter().all(|timeline| by_cost.iter().any(|(first, _)| first == timeline))
    }

    /// Returns single threads with the gain of each, the largest first: of the threads that work longer than is typical,
    /// and of those that caused the most waiting. None, if the records forbid to name a rank.
    pub fn largest_gains(&self, costs: &DelayCosts) -> Vec<(u32, WhatIfGain)> {
        if !self.limits().is_empty() {
            return Vec::new();
        }
        let (what_if, suspects) = (self.what_if(), suspects(self.graph.job, &self.table, self.min_gain_ns()));
        let mut by_cost: Vec<u32> = (0..self.graph.job.timelines.len() as u32).collect();
        let cost = |timeline: &u32| costs.of_timeline(*timeline as usize).total_ns();
        by_cost.sort_by(|one, other| cost(other).total_cmp(&cost(one)).then(one.cmp(other)));
        let mut tried: Vec<u32> =
            suspects.iter().take(MAX_TRIED / 2).map(|(timeline, _)| *timeline).collect();
        for timeline in by_cost {
            if tried.len() < MAX_TRIED && !tried.contains(&timeline) {
                tried.push(timeline);
            }
        }
        let groups: Vec<Vec<u32>> = tried.iter().map(|timeline| vec![*timeline]).collect();
        let gains = what_if.gains_of_groups(&groups, &[]);
        let mut gains: Vec<(u32, WhatIfGain)> = tried.into_iter().zip(gains).collect();
        gains.sort_by_key(|(timeline, gain)| (std::cmp::Reverse(gain.ns), *timeline));
        gains
    }
}
