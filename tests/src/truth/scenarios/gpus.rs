//! A training job: each process launches kernels on its GPU, all GPUs reduce, and each process waits for its GPU.
//!
//! The GPUs are ranks of the model after the processes. Messages between a process and its GPU are launches, and the end
//! of the work of a step.

use super::super::operation::{Collective, CollectiveKind, Message, Operation, SendMode, WorkPiece};
use super::super::program::{ModelCommunicator, Program};
use super::super::scenario::{ExpectedAnswer, ScenarioSize};
use super::super::scenario_kind::GpuFault;

/// Name of the communicator of the GPUs.
const RCCL: &str = "nccl-5eed0123456789ab";
/// Communicator of the GPUs.
const GPUS: u32 = 1;
/// Kernels with the share of the work of a step that each takes, percent.
const KERNELS: [(&str, u64); 3] = [("Cijk_Alik_Bljk_gemm", 60), ("fmha_forward", 25), ("adam_step", 10)];
/// Kernel of the reductions.
pub(in super::super) const REDUCTION: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";
/// Work of a process before it launches, percent of the work of a step.
const INPUT_PERCENT: u64 = 20;

pub(super) fn training(size: ScenarioSize, fault: GpuFault) -> (Program, ExpectedAnswer) {
    let excess = move |rank: u32, of: GpuFault| if fault == of { size.excess_of(rank) } else { 0 };
    let mut program = Program::of_steps(2 * size.ranks, size.steps, move |rank, _, out| {
        let gpu = rank + size.ranks;
        match rank.checked_sub(size.ranks) {
            None => {
                let input = size.work_ns * INPUT_PERCENT / 100;
                out.push(WorkPiece::operation("input", input, excess(rank, GpuFault::LateLaunch)));
                let launches = KERNELS.len() + 1 + usize::from(excess(rank, GpuFault::MoreKernels) > 0);
                for _ in 0..launches {
                    out.push(WorkPiece::operation("launch", size.work_ns / 1_000, 0));
                    out.push(Operation::Send(Message::with(gpu, 0, 0), SendMode::Buffered));
                }
                out.push(Operation::Receive(Message::with(gpu, 1, 0)));
            }
            Some(process) => {
                let launched = || Operation::Receive(Message::with(process, 0, 0));
                let [gemm, attention, update] =
                    KERNELS.map(|(name, percent)| (name, size.work_ns * percent / 100));
                let kernel =
                    |(name, ns): (&'static str, u64), excess_ns| WorkPiece::operation(name, ns, excess_ns);
                out.extend([launched(), kernel(gemm, excess(process, GpuFault::SlowKernel))]);
                let more = excess(process, GpuFault::MoreKernels);
                if more > 0 {
                    out.extend([launched(), kernel((gemm.0, 0), more)]);
                }
                out.extend([launched(), kernel(attention, 0), launched()]);
                out.push(Operation::Collective(Collective::of_all(CollectiveKind::Allreduce, GPUS)));
                out.push(kernel((REDUCTION, 0), excess(process, GpuFault::SlowLink)));
                out.extend([launched(), kernel(update, 0)]);
                out.push(Operation::Send(Message::with(process, 1, 0), SendMode::Buffered));
            }
        }
    });
    program.gpus = size.ranks;
    program.communicators.push(ModelCommunicator::of(RCCL, "ncclCommInitRank", size.ranks..2 * size.ranks));
    let label = match fault {
        GpuFault::None => return (program, ExpectedAnswer::nobody()),
        GpuFault::LateLaunch => "input",
        GpuFault::SlowKernel | GpuFault::MoreKernels => KERNELS[0].0,
        GpuFault::SlowLink => REDUCTION,
    };
    (program, ExpectedAnswer::rank(size.subject, label))
}
