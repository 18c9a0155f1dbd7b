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
const KERNELS: [(&str, u64); 3] = [(GEMM, 5), ("fmha_forward", 25), ("adam_step", 10)];
/// The kernel that is slow, or of which there are more, and its number in a step.
const GEMM: &str = "Cijk_Alik_Bljk_gemm";
const GEMMS: u64 = 12;
/// Share of the work of a step that all kernels but those of reductions take, percent.
const KERNELS_PERCENT: u64 = 95;
/// Shader clock of a GPU, MHz.
const CLOCK_MHZ: f64 = 2100.0;
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
                // Those of the reduction, and of the kernels after it.
                let launches = GEMMS + 3 + u64::from(excess(rank, GpuFault::MoreKernels) > 0);
                for _ in 0..launches {
                    out.push(WorkPiece::operation("launch", size.work_ns / 1_000, 0));
                    out.push(Operation::Send(Message::with(gpu, 0, 0), SendMode::Buffered));
                }
                out.push(Operation::Receive(Message::with(gpu, 1, 0)));
            }
            Some(process) => {
                let launched = || Operation::Receive(Message::with(process, 0, 0));
                let slower = excess(process, GpuFault::LowClock) + excess(process, GpuFault::SameClock);
                let kernel = |(name, percent): (&'static str, u64), excess_ns| {
                    let alike_ns = slower * percent / KERNELS_PERCENT;
                    WorkPiece::operation(name, size.work_ns * percent / 100, alike_ns + excess_ns)
                };
                let [gemm, attention, update] = KERNELS;
                let slow_ns = excess(process, GpuFault::SlowKernel) / GEMMS;
                out.extend((0..GEMMS).flat_map(|_| [launched(), kernel(gemm, slow_ns)]));
                let more = excess(process, GpuFault::MoreKernels);
                if more > 0 {
                    out.extend([launched(), WorkPiece::operation(GEMM, 0, more)]);
                }
                out.extend([launched(), kernel(attention, 0), launched()]);
                out.push(Operation::Collective(Collective::of_all(CollectiveKind::Allreduce, GPUS)));
                out.push(WorkPiece::operation(REDUCTION, 0, excess(process, GpuFault::SlowLink)));
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
        GpuFault::SlowKernel | GpuFault::LowClock | GpuFault::SameClock | GpuFault::MoreKernels => GEMM,
        GpuFault::SlowLink => REDUCTION,
    };
    let work_cause = match fault {
        GpuFault::LowClock => Some("gpu_clock"),
        GpuFault::SameClock => Some("gpu_not_clock"),
        GpuFault::MoreKernels => Some("more_work"),
        // One kernel alone may be slow by its data, and no record shows a link.
        _ => None,
    };
    (program, ExpectedAnswer { work_cause, ..ExpectedAnswer::rank(size.subject, label) })
}

/// Returns the shader clock of the GPU of a rank in a scenario, MHz.
pub(in super::super) fn shader_clock(size: ScenarioSize, fault: GpuFault, rank: u32) -> f64 {
    let kernels_ns = (size.work_ns * KERNELS_PERCENT / 100) as f64;
    match fault {
        GpuFault::LowClock => CLOCK_MHZ * kernels_ns / (kernels_ns + size.excess_of(rank) as f64),
        _ => CLOCK_MHZ,
    }
}
