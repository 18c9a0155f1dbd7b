//! Joins the calls of all units to those of a run.

use crate::call_gaps::ProcessGaps;
use crate::communicators::RunCommunicators;
use crate::gpu_collectives::remove_unmatched;
use crate::gpu_metrics::{GpuMetrics, ProcessGpus};
use crate::labels::{LabelKey, LabelNumbers};
use crate::merged_metadata::MergedMetadata;
use crate::missing_calls::MissingCalls;
use crate::notes::missing_calls;
use crate::operations::ProcessNotes;
use crate::process_facts::{ProcessFacts, read_call_losses, read_process_facts};
use crate::python_stacks::{StackLimits, StackTreeBuilder};
use crate::read_options::ReadOptions;
use crate::region_names::RegionNames;
use crate::run_calls::{CallProcess, RunCalls};
use crate::run_numbers::RunNumbers;
use crate::step_ranges::StepRanges;
use crate::steps::find_steps;
use crate::thread_calls::ThreadTimeline;
use crate::unit_calls::{ProcessCalls, UnitCalls};
use rpd_console::Failure;
use rpd_graph::CallTimeline;
use rpd_run::RunDatabase;
use std::collections::{BTreeSet, HashMap};

/// Maximum sizes of the stacks of a run, of which ranks mostly have the same.
const STACK_LIMITS: StackLimits = StackLimits { nodes: 1 << 22, text_bytes: 1 << 26 };

/// Calls as they are joined to those of a job.
pub(crate) struct JoinedCalls<'a> {
    run: &'a RunDatabase,
    facts: HashMap<i64, ProcessFacts>,
    metadata: MergedMetadata,
    places: HashMap<i64, usize>,
    nodes: HashMap<i64, u32>,
    labels: LabelNumbers,
    /// Names of GPU work.
    gpu_work: Vec<String>,
    gpu_work_numbers: HashMap<String, u32>,
    communicators: RunCommunicators,
    stacks: StackTreeBuilder,
    /// Recorded metrics of GPUs, by the key of their node and PCI address.
    gpu_metrics: HashMap<(i64, String), GpuMetrics>,
    calls: RunCalls,
    step_ranges: Vec<Vec<StepRanges>>,
    notes: Vec<ProcessNotes>,
    gaps: Vec<ProcessGaps>,
    /// Processes of which it is not known which messages are in the window.
    displaced: BTreeSet<u32>,
    unusable_regions: u64,
}

impl<'a> JoinedCalls<'a> {
    /// Joins the calls of all units.
    pub(crate) fn of(run: &'a RunDatabase, mut units: Vec<UnitCalls>) -> Result<JoinedCalls<'a>, Failure> {
        let mut joined = JoinedCalls {
            run,
            facts: read_process_facts(run)?,
            metadata: MergedMetadata::read(run),
            places: (0..).zip(&run.processes).map(|(place, process)| (process.info.id, place)).collect(),
            nodes: HashMap::new(),
            labels: LabelNumbers::default(),
            gpu_work: Vec::new(),
            gpu_work_numbers: HashMap::new(),
            communicators: RunCommunicators::new(),
            stacks: StackTreeBuilder::new(STACK_LIMITS),
            gpu_metrics: HashMap::new(),
            calls: RunCalls::default(),
            step_ranges: Vec::new(),
            notes: Vec::new(),
            gaps: Vec::new(),
            displaced: BTreeSet::new(),
            unusable_regions: 0,
        };
        for (unit, row_unit) in units.iter_mut().zip(&run.units) {
            let node = joined.node_of(row_unit.processes.first().copied());
            for (pci, metrics) in std::mem::take(&mut unit.gpus.metrics) {
                let _ = joined.gpu_metrics.entry((node, pci)).or_insert(metrics);
            }
        }
        for (unit, row_unit) in units.into_iter().zip(&run.units) {
            joined.unusable_regions = joined.unusable_regions.saturating_add(unit.unusable_regions);
            let first = row_unit.processes.first().copied().unwrap_or(0) as usize;
            joined.add_unit(unit, first, row_unit.is_unclaimed);
        }
        Ok(joined)
    }

    /// Returns the key of the node of a process, by its index in the run.
    fn node_of(&self, process: Option<u32>) -> i64 {
        let process = process.and_then(|place| self.run.processes.get(place as usize));
        process.and_then(|process| self.facts.get(&process.info.id)).map_or(0, |facts| facts.node)
    }

    /// Returns the GPUs on which a process of a node has work.
    fn process_gpus(&self, used: &[String], node: i64) -> ProcessGpus {
        let metrics = match used {
            [pci] => self.gpu_metrics.get(&(node, pci.clone())).cloned(),
            _ => None,
        };
        ProcessGpus { count: used.len(), metrics: metrics.unwrap_or_default() }
    }

    /// Adds a unit. `only_process` is the index of its process if it is of a single one.
    fn add_unit(&mut self, mut unit: UnitCalls, only_process: usize, is_of_several: bool) {
        let labels: Vec<u32> = unit.labels.iter().map(|key| self.label(*key, &unit.gpu_work)).collect();
        let stacks = self.stacks.add(&unit.python_stacks);
        for found in std::mem::take(&mut unit.processes) {
            let place = match is_of_several {
                true => self.places.get(&found.process).copied(),
                false => Some(only_process),
            };
            let Some(of_run) = place.and_then(|place| self.run.processes.get(place)) else { continue };
            let info = &of_run.info;
            let process = self.calls.processes.len() as u32;
            let facts = self.facts.get(&info.id).copied().unwrap_or_default();
            let title = match info.rank {
                Some(rank) => format!("rank {rank}"),
                None => format!("process {}", info.pid),
            };
            let mut communicators = self.communicators.add_names(&unit, process, &title);
            communicators.extend(self.communicators.add_gpu(&found.gpu_communicators, process));
            self.communicators.add_members(&found.memberships, &communicators, process);
            if let Some(rank) = info.rank {
                self.communicators.add_rank(&facts, rank, process);
            }
            self.calls.processes.push(CallProcess {
                rank: info.rank,
                host: info.host.clone(),
                gpu: unit.gpu.clone(),
                is_python: of_run.is_python,
                failure: of_run.failure.clone(),
                ended_ns: of_run.ended_ns,
                run_process: place.unwrap_or(0),
            });
            let used = if is_of_several { &[][..] } else { &unit.gpus.used[..] };
            self.calls.gpus.push(self.process_gpus(used, facts.node));
            let first_timeline = self.calls.job.timelines.len() as u32;
            let (labels, stacks, communicators) = (&labels[..], &stacks[..], &communicators[..]);
            let numbers = RunNumbers { labels, stacks, communicators, first_timeline };
            self.add_timelines(found, facts, process, numbers);
        }
    }

    /// Returns the number in the run of a label of a unit with these names of GPU work.
    fn label(&mut self, key: LabelKey, gpu_work: &[String]) -> u32 {
        let LabelKey::GpuWork(number) = key else { return self.labels.number(key) };
        let name = gpu_work.get(number as usize).cloned().unwrap_or_default();
        let number = *self.gpu_work_numbers.entry(name).or_insert_with_key(|name| {
            self.gpu_work.push(name.clone());
            self.gpu_work.len() as u32 - 1
        });
        self.labels.number(LabelKey::GpuWork(number))
    }

    fn add_timelines(
        &mut self,
        found: ProcessCalls,
        facts: ProcessFacts,
        process: u32,
        numbers: RunNumbers<'_>,
    ) {
        let next_node = self.nodes.len() as u32;
        let node = *self.nodes.entry(facts.node).or_insert(next_node);
        let rank = self.calls.processes.get(process as usize).and_then(|process| process.rank);
        let error_bounds = self.metadata.error_bounds_of(rank);
        for timeline in found.timelines {
            let ThreadTimeline {
                is_stream,
                start,
                end,
                calls,
                region_ids,
                work,
                first_work,
                amounts,
                poll_pauses,
                is_open,
                operations,
                local_dependencies,
                step_ranges,
                cpus,
                python_samples,
                ..
            } = timeline;
            self.calls.job.timelines.push(CallTimeline {
                process,
                is_stream,
                node,
                start_ns: start,
                end_ns: end,
                error_bound_ns: facts.error_bound_ns,
                error_bounds: error_bounds.clone(),
                poll_pauses_ns: poll_pauses,
                is_open,
                lacks_calls: false,
                gaps: None,
                calls: numbers.calls(calls),
                work: numbers.work(work),
                first_work,
                message_ends: numbers.message_ends(operations.message_ends),
                entries: numbers.entries(operations.entries),
                completions: numbers.completions(operations.completions),
                local_dependencies: numbers.local_dependencies(local_dependencies),
                first_call_of_step: Vec::new(),
            });
            self.calls.region_ids.push(region_ids);
            self.calls.amounts.push(amounts);
            self.calls.cpus.push(cpus);
            self.calls.python.samples.push(numbers.samples(python_samples));
            self.step_ranges.push(step_ranges);
        }
        self.calls.job.messages_before.extend(numbers.messages_before(&found.earlier_ends, process));
        if found.earlier_ends.are_displaced {
            self.displaced.insert(process);
        }
        self.notes.push(found.notes);
        self.gaps.push(found.gaps.in_run(numbers.communicators));
    }

    /// Completes the calls, which were read with these options.
    pub(crate) fn finish(mut self, names: &RegionNames, options: &ReadOptions) -> Result<RunCalls, Failure> {
        let key =
            |process: &CallProcess| self.run.processes.get(process.run_process).map(|found| found.info.id);
        let numbers = (0u32..).zip(&self.calls.processes);
        let numbers = numbers.filter_map(|(number, process)| Some((key(process)?, number))).collect();
        self.communicators.add_merged(&self.metadata.communicators, &numbers);
        let strings = &self.run.strings;
        let (members, unknown_members) = self.communicators.finish();
        let mut calls = self.calls;
        calls.communicators = self.communicators.names;
        calls.python.stacks = self.stacks.finish();
        calls.job.communicators = members;
        calls.job.processes = calls.processes.len() as u32;
        calls.job.is_part = options.window_ns.is_some();
        calls.job.labels = self.labels.keys().len() as u32;
        calls.labels = self.labels.texts(names, strings, &self.gpu_work);
        let unmatched_kernels = remove_unmatched(&mut calls.job, &self.communicators.by_order);
        let losses = read_call_losses(self.run);
        let (unavailable, lacking) =
            missing_calls(&calls, &self.notes, &losses, unknown_members, self.unusable_regions);
        for timeline in &mut calls.job.timelines {
            let process = timeline.process as usize;
            let Some((places, gaps)) = lacking.get(process).copied().zip(self.gaps.get(process)) else {
                continue;
            };
            if timeline.is_stream {
                continue;
            }
            (timeline.lacks_calls, timeline.gaps) = places.of_process(gaps);
            if self.displaced.contains(&timeline.process) {
                (timeline.lacks_calls, timeline.gaps) = (true, None);
            }
        }
        calls.unavailable = unavailable;
        let unusable = self.notes.iter().map(ProcessNotes::unusable_operations);
        calls.job.unusable_operations = unusable.fold(unmatched_kernels, u64::saturating_add);
        let class_name = |class| names.class_name(class, strings);
        let label_name = |label: u32| match self.labels.keys().get(label as usize) {
            Some(LabelKey::Function(function)) => names.function_name(*function).to_owned(),
            Some(LabelKey::GpuWork(name)) => self.gpu_work.get(*name as usize).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        calls.steps = find_steps(&mut calls.job, &self.step_ranges, options, class_name, label_name);
        if calls.steps.is_none() {
            calls.unavailable.push(MissingCalls::NoSteps);
        }
        Ok(calls)
    }
}
