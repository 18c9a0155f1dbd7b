use super::call_recorder::{CallRecorder, CallRecording, ModelledCalls};
use super::conditions::{Network, PlantedExcess, RunConditions};
use super::program::Program;
use super::recorder::{RunRecorder, Unrecorded};
use super::scenario_kind::ScenarioKind;
use super::scenarios;
use super::simulation::{RunDurations, simulate};
use crate::synthetic::RandomSource;

/// Noise of a scenario without another one.
const USUAL_NOISE: f64 = 0.02;
/// Work of a step, ns.
const STEP_WORK_NS: u64 = 10_000_000;

/// Parameters of a scenario.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScenarioSize {
    /// Seed of the noise and of what else is drawn.
    pub seed: u64,
    /// Number of ranks.
    pub ranks: u32,
    /// Ranks of a node.
    pub ranks_per_node: u32,
    /// Number of steps.
    pub steps: u32,
    /// The rank with the excess.
    pub subject: u32,
    /// Work of a rank in a step, ns.
    pub work_ns: u64,
    /// Excess in a step, ns.
    pub excess_ns: u64,
    /// Noise of the work, as a share of it.
    pub noise: f64,
}

impl ScenarioSize {
    /// Draws the parameters of a scenario.
    pub fn drawn(kind: ScenarioKind, seed: u64) -> ScenarioSize {
        let mut random = RandomSource::new(&[seed, 1 + kind.number()]);
        let ranks = *random.pick(kind.rank_counts());
        let steps = 40 + 10 * random.index(5) as u32;
        let subject =
            random.between(i64::from(kind.first_subject()), i64::from(ranks - kind.left_out())) as u32;
        let noise = kind.noise().unwrap_or(USUAL_NOISE);
        let excess_ns = STEP_WORK_NS * kind.excess_percent() / 100;
        ScenarioSize {
            seed,
            ranks,
            ranks_per_node: 2,
            steps,
            subject,
            work_ns: STEP_WORK_NS,
            excess_ns,
            noise,
        }
    }

    /// Returns the excess of a rank if it is the one with the excess, ns.
    pub fn excess_of(&self, rank: u32) -> u64 {
        if rank == self.subject { self.excess_ns } else { 0 }
    }
}

/// What a report is to name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NamedCause {
    /// No rank and no node.
    Nobody,
    /// These ranks, in this order.
    Ranks(Vec<u32>),
    /// All ranks of a node.
    Node(u32),
    /// The network of a node, and no rank.
    Network(u32),
    /// The start-up.
    StartUp,
    /// Work that only this rank does: the gain is a limit.
    AtMost(u32),
}

/// When the cause acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CausePattern {
    /// In all steps.
    Steady,
    /// From a step to the one before another.
    Phase {
        /// The first.
        from: u32,
        /// The one after the last.
        to: u32,
    },
    /// Another rank in each step.
    Rotating,
    /// Nothing that a pattern describes.
    None,
}

/// The right answer to a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedAnswer {
    /// What is named.
    pub cause: NamedCause,
    /// Range in which the excess is.
    pub range: Option<&'static str>,
    /// When it acts.
    pub pattern: CausePattern,
    /// Whether "cannot tell" is right as well.
    pub may_be_unknown: bool,
    /// Why the work takes longer, as reports name it to machines; `None` if the records do not show it.
    pub work_cause: Option<&'static str>,
}

impl ExpectedAnswer {
    /// Returns the answer that one rank is the cause in all steps.
    pub fn rank(rank: u32, range: &'static str) -> ExpectedAnswer {
        let cause = NamedCause::Ranks(vec![rank]);
        ExpectedAnswer {
            cause,
            range: Some(range),
            pattern: CausePattern::Steady,
            ..ExpectedAnswer::nobody()
        }
    }

    /// Returns the answer that nothing is the cause.
    pub fn nobody() -> ExpectedAnswer {
        let (cause, pattern) = (NamedCause::Nobody, CausePattern::None);
        ExpectedAnswer { cause, range: None, pattern, may_be_unknown: false, work_cause: None }
    }
}

/// What the planted excess costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlantedCost {
    /// Length of the run, ns.
    pub length_ns: i64,
    /// How much shorter the run is without the excess, ns.
    pub gain_ns: i64,
    /// How much less all ranks wait without the excess, ns.
    pub waiting_ns: i64,
}

/// A program with a known cause of its waiting.
pub struct Scenario {
    /// Which it is.
    pub kind: ScenarioKind,
    /// Its parameters.
    pub size: ScenarioSize,
    /// The program.
    pub program: Program,
    /// The right answer.
    pub expected: ExpectedAnswer,
}

impl Scenario {
    /// Returns a scenario with the parameters of a seed.
    pub fn drawn(kind: ScenarioKind, seed: u64) -> Scenario {
        Scenario::sized(kind, ScenarioSize::drawn(kind, seed))
    }

    /// Returns a scenario with these parameters.
    pub fn sized(kind: ScenarioKind, size: ScenarioSize) -> Scenario {
        let (mut program, expected) = scenarios::build(kind, size);
        program.ranks_per_node = size.ranks_per_node;
        Scenario { kind, size, program, expected }
    }

    /// Returns the conditions of a run with this excess.
    pub fn conditions(&self, excess: PlantedExcess) -> RunConditions {
        let ScenarioSize { seed, noise, .. } = self.size;
        RunConditions { seed, noise, excess, network: Network::default() }
    }

    /// Runs the scenario.
    ///
    /// # Panics
    /// If its ranks wait for one another.
    pub fn run(&self, excess: PlantedExcess, recorder: &mut impl RunRecorder) -> RunDurations {
        let result = simulate(&self.program, &self.conditions(excess), recorder);
        result.unwrap_or_else(|error| panic!("{}: {error}", self.kind.name()))
    }

    /// Returns what the excess of all ranks costs.
    pub fn cost(&self) -> PlantedCost {
        self.cost_without(PlantedExcess::None)
    }

    /// Returns what the excess costs that is in the whole run, but not in this one.
    pub fn cost_without(&self, excess: PlantedExcess) -> PlantedCost {
        let with = self.run(PlantedExcess::All, &mut Unrecorded);
        let without = self.run(excess, &mut Unrecorded);
        PlantedCost {
            length_ns: with.length_ns,
            gain_ns: with.length_ns - without.length_ns,
            waiting_ns: with.all_waited_ns() as i64 - without.all_waited_ns() as i64,
        }
    }

    /// Returns the calls of the run with the excess.
    pub fn calls(&self, recording: &CallRecording) -> ModelledCalls {
        let mut recorder = CallRecorder::new(&self.program, recording);
        self.run(PlantedExcess::All, &mut recorder);
        recorder.finish(Network::default().far_latency_ns)
    }
}
