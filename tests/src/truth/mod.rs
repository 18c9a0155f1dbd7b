//! Programs of which it is known which rank makes the others wait, and what that costs.
//!
//! ```text
//! Scenario --program()--> Program --simulate()--> exact times of all calls and of all work
//!                                        |  RunRecorder
//!                                        v
//!                          JobCalls, shards of a run, damaged forms of both
//! ```
//!
//! The same program runs with and without its planted excess under the same noise, so the true gain is the difference
//! of the two lengths.

mod call_recorder;
mod clock_errors;
mod collectives;
mod conditions;
mod gpu_clocks;
mod gpu_recorder;
mod mailbox;
mod node_counters;
mod operation;
mod program;
mod python_samples;
mod random_program;
mod ranks;
mod recorder;
mod row_recorder;
mod run_shards;
mod scenario;
mod scenario_kind;
mod scenarios;
mod simulation;
mod stated_answer;
mod tally;
mod trial;

pub use call_recorder::{CallRecorder, CallRecording, DroppedCalls, LabelText, ModelledCalls};
pub use clock_errors::{ClockErrors, NodeClockError};
pub use conditions::{Network, PlantedExcess, RunConditions};
pub use operation::{Collective, CollectiveKind, Message, Operation, Peer, SendMode, Slot, WorkPiece};
pub use program::{ModelCommunicator, Program, RankPart, SlowNode, StepPart};
pub use python_samples::{PlantedSlowness, PythonProfile};
pub use random_program::{RandomProgramSize, random_program};
pub use recorder::{
    CallOperation, CalledCollective, CalledMessage, MessageStatus, ModelCall, RunRecorder, Unrecorded,
};
pub use run_shards::{
    write_scenario, write_scenario_in_python, write_scenario_with_counters, write_scenario_without_clocks,
};
pub use scenario::{CausePattern, ExpectedAnswer, NamedCause, PlantedCost, Scenario, ScenarioSize};
pub use scenario_kind::{CLEAN_NOISE, CleanProgram, GpuFault, ScenarioKind};
pub use simulation::{DeadlockError, RunDurations, simulate};
pub use stated_answer::{StatedAnswer, StatedFinding, StatedNetwork};
pub use tally::{AnswerTally, wilson_interval};
pub use trial::{AnswerVerdict, JudgedAnswer, RecordTreatment, judge, judge_shards};
