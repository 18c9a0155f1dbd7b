//! Phase 2: every rank reads its inputs once. Ids are assigned in the next phase.

use crate::agree::recorded_clocks::RecordedClocks;
use crate::budget::HeldMemory;
use crate::input::plan::share::share;
use crate::input::plan::{MergePlan, PlannedInput};
use crate::input::survey::{InputSurvey, survey};
use crate::input::{JobSchema, SetStrings};
use crate::options::{MergeArgs, TableLayout};
use crate::output::planned_size::PlannedContent;
use crate::strings::DistinctStrings;
use rayon::prelude::*;
use rpd_collectives::{CallSample, JobParticipant, ProcessCollectives};
use rpd_comm::Comm;
use rpd_console::{Failure, Progress};
use std::ops::Range;

/// Inputs that this rank reads.
struct RankInputs<'a> {
    inputs: &'a [PlannedInput],
    /// Contiguous runs of these inputs, as indices from this rank's first input.
    groups: Vec<Range<usize>>,
}

impl<'a> RankInputs<'a> {
    fn new(plan: &'a MergePlan, comm: &impl Comm) -> RankInputs<'a> {
        let readers = plan.readers(comm.size());
        let place = readers.iter().position(|reader| *reader == comm.rank());
        let groups = place.map_or(Vec::new(), |place| share(&plan.inputs, place, readers.len()));
        let first = groups.first().map_or(0, |g| g.start);
        let next = groups.last().map_or(first, |g| g.end);
        let groups = groups.iter().map(|g| g.start - first..g.end - first).collect();
        RankInputs { inputs: &plan.inputs[first..next], groups }
    }
}

/// Content that one rank read from its inputs.
pub(crate) struct SurveyedInputs {
    /// Survey of each input, in merge order.
    pub(crate) surveys: Vec<InputSurvey>,
    /// Contiguous runs of inputs in merge order, as indices from this rank's first input.
    pub(crate) groups: Vec<Range<usize>>,
    /// Total bytes of the inputs.
    pub(crate) bytes: u64,
    /// Tables of the output.
    pub(crate) schema: JobSchema,
    /// Selection of the collectives that are kept.
    pub(crate) sample: CallSample,
    /// Distinct strings. Phase 3 takes them to agree on string ids.
    pub(crate) strings: DistinctStrings,
    /// Clock records of the inputs. Phase 3 takes them to align the clocks.
    pub(crate) clocks: RecordedClocks,
    /// Memory that is held until the merge ends.
    pub(crate) memory: HeldMemory,
    /// Whether several ranks are merged.
    pub(crate) has_several_ranks: bool,
    /// Planned size of the output.
    pub(crate) content: PlannedContent,
}

impl SurveyedInputs {
    fn new(
        args: &MergeArgs,
        plan: &MergePlan,
        RankInputs { inputs, groups }: RankInputs<'_>,
    ) -> SurveyedInputs {
        SurveyedInputs {
            surveys: Vec::with_capacity(inputs.len()),
            groups,
            bytes: inputs.iter().map(|input| input.bytes).sum(),
            schema: JobSchema::new(&plan.schema, args.memory),
            sample: CallSample::new(args.memory.collectives()),
            strings: DistinctStrings::default(),
            clocks: RecordedClocks::default(),
            memory: HeldMemory::default(),
            has_several_ranks: plan.ranks.seen.len() > 1,
            content: PlannedContent::default(),
        }
    }

    /// Adds the survey of the next input. Keeps only those of its strings that are new.
    fn add(&mut self, mut survey: InputSurvey, layout: TableLayout) -> Result<(), Failure> {
        let largest = (survey.string_bytes() as u64).saturating_add(survey.longest_piece());
        self.memory.largest = self.memory.largest.max(largest);
        if layout == TableLayout::Partitioned {
            survey.set_strings = survey.hashes.iter().map(|hashes| SetStrings::new(hashes)).collect();
        }
        for hashes in std::mem::take(&mut survey.hashes) {
            self.strings.add_table(hashes.into_iter())?;
        }
        self.clocks.add(&survey);
        self.content.add(&survey);
        survey.texts.clear();
        survey.shrink();
        self.memory.inputs += survey.bytes() as u64;
        self.surveys.push(survey);
        Ok(())
    }

    /// Takes the collectives of this rank's processes out of the surveys, in merge order.
    pub(super) fn take_collectives(&mut self) -> Vec<(JobParticipant, ProcessCollectives)> {
        let sources = self.surveys.iter_mut().flat_map(|survey| &mut survey.sources);
        let takes_part =
            |calls: &ProcessCollectives| !calls.is_empty() || calls.alone > 0 || calls.is_singleton;
        let some = sources.filter(|source| takes_part(&source.collectives));
        some.map(|source| {
            let process = &source.process;
            let calls = &mut source.collectives;
            let began = calls.calls.iter().map(|call| call.enter).min().unwrap_or(process.first_seen);
            let last_exit = calls.calls.iter().filter_map(|call| call.exit).max().unwrap_or(began);
            // `first_seen` is 0 in files that do not record the start of a process.
            let first_seen = if process.first_seen > 0 { process.first_seen.min(began) } else { began };
            let last_seen = process.last_seen.unwrap_or(last_exit).max(last_exit);
            calls.untimed.close(last_seen);
            let participant = JobParticipant {
                rank: process.rank,
                worker: process.worker,
                began,
                first_seen,
                seen_ns: last_seen.saturating_sub(first_seen),
                initialized: calls.mpi.initialized(),
                initialization_ns: calls.mpi.initialization_ns(),
                finalization_ns: calls.untimed.finalization_ns,
                poll_gaps_ns: calls.mpi.poll_gaps_ns(),
                lacks_calls: calls.lacks_calls,
                is_cut: calls.is_cut,
                hides_messages: calls.hides_messages,
                is_in_threads: calls.is_in_threads,
                is_singleton: calls.is_singleton,
                pid: process.pid,
                host: process.node.hostname.clone(),
                domain: process.domain.clone(),
            };
            (participant, std::mem::take(calls))
        })
        .collect()
    }
}

/// Surveys the inputs of this rank, in parallel as far as threads and memory allow.
///
/// # Errors
/// If an input cannot be read or memory does not suffice. Vanished inputs are reported after all others were read.
pub(super) fn survey_inputs(
    comm: &impl Comm,
    args: &MergeArgs,
    plan: &MergePlan,
    progress: &mut Progress,
) -> Result<SurveyedInputs, Failure> {
    let rank_inputs = RankInputs::new(plan, comm);
    let mut left = rank_inputs.inputs;
    let mut inputs = SurveyedInputs::new(args, plan, rank_inputs);
    progress.phase_of_bytes("read", inputs.bytes);
    let mut bytes_read = 0;
    let mut vanished = Vec::new();
    while !left.is_empty() {
        let memory = args.memory.without(inputs.memory);
        let at_once = memory.threads(rayon::current_num_threads(), inputs.memory.largest);
        let (some, rest) = left.split_at(at_once.min(left.len()));
        left = rest;
        let survey_one = |planned: &PlannedInput| {
            let surveyed = survey(planned, &inputs.schema, &plan.host_clocks, &inputs.sample);
            progress.add(planned.bytes);
            surveyed
        };
        let surveyed: Vec<Result<InputSurvey, Failure>> = some.par_iter().map(survey_one).collect();
        for surveyed in surveyed {
            match surveyed {
                Ok(survey) => inputs.add(survey, args.layout)?,
                Err(failure) => vanished.extend(failure.into_vanished_inputs()?),
            }
        }
        args.memory.check_stacks(inputs.schema.stacks.wanted())?;
        args.memory.check_row(inputs.schema.rows.longest())?;
        bytes_read += some.iter().map(|input| input.bytes).sum::<u64>();
        inputs.memory.strings = inputs.strings.len();
        args.memory.check(inputs.memory, (bytes_read, inputs.bytes))?;
    }
    if vanished.is_empty() { Ok(inputs) } else { Err(Failure::inputs_vanished(vanished)) }
}
