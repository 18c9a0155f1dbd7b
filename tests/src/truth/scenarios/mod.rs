//! The programs of the scenarios.

mod collectives;
pub(super) mod gpus;
mod masters;
mod messages;

use super::program::Program;
use super::scenario::{ExpectedAnswer, ScenarioSize};
use super::scenario_kind::{CleanProgram, ScenarioKind};
use messages::HaloExchange;

/// Returns the program of a scenario and the right answer.
pub(super) fn build(kind: ScenarioKind, size: ScenarioSize) -> (Program, ExpectedAnswer) {
    match kind {
        ScenarioKind::Chain => messages::chain(size),
        ScenarioKind::Displaced => messages::displaced(size),
        ScenarioKind::Stencil => messages::stencil(size, HaloExchange::Requests),
        ScenarioKind::SendReceive => messages::stencil(size, HaloExchange::SendReceive),
        ScenarioKind::Persistent => messages::stencil(size, HaloExchange::Persistent),
        ScenarioKind::LateReceiver => messages::stencil(size, HaloExchange::Large),
        ScenarioKind::OverlapAbove => messages::overlap(size, size.excess_ns * 3),
        ScenarioKind::OverlapBelow => messages::overlap(size, size.excess_ns / 5),
        ScenarioKind::Pipeline => messages::pipeline(size),
        ScenarioKind::Master => masters::equal_tasks(size, true),
        ScenarioKind::MasterUnknown => masters::equal_tasks(size, false),
        ScenarioKind::OnDemand => masters::on_demand(size),
        ScenarioKind::SlowMaster => masters::slow_master(size),
        ScenarioKind::LateRoot => collectives::late_root(size),
        ScenarioKind::ReduceBroadcast => collectives::reduce_broadcast(size),
        ScenarioKind::StartUp => collectives::start_up(size),
        ScenarioKind::SlowNode => collectives::slow_node(size),
        ScenarioKind::Alternating => collectives::alternating(size),
        ScenarioKind::Grid => collectives::grid(size),
        ScenarioKind::Halves => collectives::halves(size),
        ScenarioKind::Nested => collectives::nested(size),
        ScenarioKind::SlowNetwork => messages::slow_network(size),
        ScenarioKind::MoreRows => collectives::more_rows(size),
        ScenarioKind::TwoStragglers => collectives::two_stragglers(size),
        ScenarioKind::Phase => collectives::phase(size),
        ScenarioKind::Gpu(fault) => gpus::training(size, fault),
        ScenarioKind::Clean(program, _) => {
            let (program, _) = match program {
                CleanProgram::Allreduce => collectives::allreduce(size),
                CleanProgram::Stencil => messages::stencil(size, HaloExchange::Requests),
                CleanProgram::Ring => messages::ring(size),
                CleanProgram::Grid => collectives::grid(size),
                CleanProgram::OnDemand => masters::on_demand(size),
                CleanProgram::Pipeline => messages::pipeline(size),
            };
            (program, ExpectedAnswer::nobody())
        }
    }
}
