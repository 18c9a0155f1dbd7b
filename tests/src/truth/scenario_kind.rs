/// A scenario, by its number in the table of the design.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScenarioKind {
    /// 1: a rank is late, its message starts a chain of messages, all end in a barrier.
    Chain,
    /// 2: the delay is before a message, equal work follows, then a barrier.
    Displaced,
    /// 3: halo exchange by `Irecv`, `Isend`, `Waitall`, and a reduction every 10 steps.
    Stencil,
    /// 4: halo exchange by `Sendrecv`.
    SendReceive,
    /// 4: halo exchange by persistent requests.
    Persistent,
    /// 4: halo exchange by messages that wait for their receiver.
    LateReceiver,
    /// 5: work between posting and waiting, longer than the excess.
    OverlapAbove,
    /// 5: work between posting and waiting, shorter than the excess.
    OverlapBelow,
    /// 6: stages that pass items on.
    Pipeline,
    /// 7: a master with equal tasks for its workers, which records the sources of its messages.
    Master,
    /// 7: the same without sources.
    MasterUnknown,
    /// 8: a master that hands tasks out on demand.
    OnDemand,
    /// 9: a master that does what no other does.
    SlowMaster,
    /// 10: a late root of a broadcast.
    LateRoot,
    /// 11: a reduction to a rank and a broadcast from it.
    ReduceBroadcast,
    /// 12: ranks that start at different times.
    StartUp,
    /// 16: a node on which all ranks are slow.
    SlowNode,
    /// 17: another slow rank in each step.
    Alternating,
    /// 18: reductions over the rows and the columns of a grid.
    Grid,
    /// 19: two halves with communicators of their own, and a barrier every 5 steps.
    Halves,
    /// 20: communicators of communicators, between groups, of some ranks.
    Nested,
    /// 21: a node whose messages take longer.
    SlowNetwork,
    /// 22: a rank has more rows, each of which is a range.
    MoreRows,
    /// 23: two slow ranks.
    TwoStragglers,
    /// 24: a rank that is slow for a while.
    Phase,
    /// 25: each rank launches kernels on a GPU, and all GPUs reduce.
    Gpu(GpuFault),
    /// 27: nothing is planted; noise in percent.
    Clean(CleanProgram, u8),
}

/// What slows a GPU down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GpuFault {
    /// Nothing.
    None,
    /// Its rank launches late.
    LateLaunch,
    /// One of its kernels takes longer.
    SlowKernel,
    /// All of its kernels take longer, and its shader clock is lower.
    LowClock,
    /// All of its kernels take longer, and its shader clock is that of the other GPUs.
    SameClock,
    /// It has more kernels.
    MoreKernels,
    /// Its kernels of collectives end later than those of the others.
    SlowLink,
}

/// A program in which nothing is planted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CleanProgram {
    /// A reduction in each step.
    Allreduce,
    /// Halo exchange.
    Stencil,
    /// Messages around a ring.
    Ring,
    /// Rows and columns.
    Grid,
    /// Tasks on demand.
    OnDemand,
    /// Balanced stages.
    Pipeline,
}

impl CleanProgram {
    /// All.
    pub const ALL: [CleanProgram; 6] = [
        CleanProgram::Allreduce,
        CleanProgram::Stencil,
        CleanProgram::Ring,
        CleanProgram::Grid,
        CleanProgram::OnDemand,
        CleanProgram::Pipeline,
    ];

    fn name(self) -> &'static str {
        match self {
            CleanProgram::Allreduce => "allreduce",
            CleanProgram::Stencil => "stencil",
            CleanProgram::Ring => "ring",
            CleanProgram::Grid => "grid",
            CleanProgram::OnDemand => "on demand",
            CleanProgram::Pipeline => "pipeline",
        }
    }
}

/// Noise of clean programs, percent.
pub const CLEAN_NOISE: [u8; 3] = [2, 5, 20];

const ANY_COUNT: &[u32] = &[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const EVEN_COUNTS: &[u32] = &[4, 6, 8, 10, 12, 14, 16];
const WHOLE_NODES: &[u32] = &[6, 8, 10, 12, 14, 16];
const MANY: &[u32] = &[8, 10, 12, 14, 16];
const GRIDS: &[u32] = &[4, 6, 8, 9, 12, 16];
const QUARTERS: &[u32] = &[8, 12, 16];

impl ScenarioKind {
    /// The scenarios with a planted cause.
    pub const PLANTED: [ScenarioKind; 25] = [
        ScenarioKind::Chain,
        ScenarioKind::Displaced,
        ScenarioKind::Stencil,
        ScenarioKind::SendReceive,
        ScenarioKind::Persistent,
        ScenarioKind::LateReceiver,
        ScenarioKind::OverlapAbove,
        ScenarioKind::OverlapBelow,
        ScenarioKind::Pipeline,
        ScenarioKind::Master,
        ScenarioKind::MasterUnknown,
        ScenarioKind::OnDemand,
        ScenarioKind::SlowMaster,
        ScenarioKind::LateRoot,
        ScenarioKind::ReduceBroadcast,
        ScenarioKind::StartUp,
        ScenarioKind::SlowNode,
        ScenarioKind::Alternating,
        ScenarioKind::Grid,
        ScenarioKind::Halves,
        ScenarioKind::Nested,
        ScenarioKind::SlowNetwork,
        ScenarioKind::MoreRows,
        ScenarioKind::TwoStragglers,
        ScenarioKind::Phase,
    ];

    /// The scenarios with GPUs, which are recorded in shards only.
    pub const GPU: [ScenarioKind; 7] = [
        ScenarioKind::Gpu(GpuFault::None),
        ScenarioKind::Gpu(GpuFault::LateLaunch),
        ScenarioKind::Gpu(GpuFault::SlowKernel),
        ScenarioKind::Gpu(GpuFault::LowClock),
        ScenarioKind::Gpu(GpuFault::SameClock),
        ScenarioKind::Gpu(GpuFault::MoreKernels),
        ScenarioKind::Gpu(GpuFault::SlowLink),
    ];

    /// Returns the clean programs with all kinds of noise.
    pub fn clean() -> impl Iterator<Item = ScenarioKind> {
        let all = CleanProgram::ALL.into_iter();
        all.flat_map(|program| CLEAN_NOISE.map(|percent| ScenarioKind::Clean(program, percent)))
    }

    /// Returns its number in the table.
    pub fn number(self) -> u64 {
        match self {
            ScenarioKind::Chain => 1,
            ScenarioKind::Displaced => 2,
            ScenarioKind::Stencil => 3,
            ScenarioKind::SendReceive | ScenarioKind::Persistent | ScenarioKind::LateReceiver => 4,
            ScenarioKind::OverlapAbove | ScenarioKind::OverlapBelow => 5,
            ScenarioKind::Pipeline => 6,
            ScenarioKind::Master | ScenarioKind::MasterUnknown => 7,
            ScenarioKind::OnDemand => 8,
            ScenarioKind::SlowMaster => 9,
            ScenarioKind::LateRoot => 10,
            ScenarioKind::ReduceBroadcast => 11,
            ScenarioKind::StartUp => 12,
            ScenarioKind::SlowNode => 16,
            ScenarioKind::Alternating => 17,
            ScenarioKind::Grid => 18,
            ScenarioKind::Halves => 19,
            ScenarioKind::Nested => 20,
            ScenarioKind::SlowNetwork => 21,
            ScenarioKind::MoreRows => 22,
            ScenarioKind::TwoStragglers => 23,
            ScenarioKind::Phase => 24,
            ScenarioKind::Gpu(_) => 25,
            ScenarioKind::Clean(..) => 27,
        }
    }

    /// Returns its name.
    pub fn name(self) -> String {
        let text = match self {
            ScenarioKind::Chain => "chain",
            ScenarioKind::Displaced => "displaced",
            ScenarioKind::Stencil => "stencil",
            ScenarioKind::SendReceive => "sendrecv",
            ScenarioKind::Persistent => "persistent",
            ScenarioKind::LateReceiver => "late receiver",
            ScenarioKind::OverlapAbove => "overlap above",
            ScenarioKind::OverlapBelow => "overlap below",
            ScenarioKind::Pipeline => "pipeline",
            ScenarioKind::Master => "master",
            ScenarioKind::MasterUnknown => "master without sources",
            ScenarioKind::OnDemand => "on demand",
            ScenarioKind::SlowMaster => "slow master",
            ScenarioKind::LateRoot => "late root",
            ScenarioKind::ReduceBroadcast => "reduce",
            ScenarioKind::StartUp => "start-up",
            ScenarioKind::SlowNode => "slow node",
            ScenarioKind::Alternating => "alternating",
            ScenarioKind::Grid => "grid",
            ScenarioKind::Halves => "halves",
            ScenarioKind::Nested => "nested",
            ScenarioKind::SlowNetwork => "slow network",
            ScenarioKind::MoreRows => "more rows",
            ScenarioKind::TwoStragglers => "two stragglers",
            ScenarioKind::Phase => "phase",
            ScenarioKind::Gpu(GpuFault::None) => "GPU without a fault",
            ScenarioKind::Gpu(GpuFault::LateLaunch) => "late launch",
            ScenarioKind::Gpu(GpuFault::SlowKernel) => "slow kernel",
            ScenarioKind::Gpu(GpuFault::LowClock) => "GPU with a low clock",
            ScenarioKind::Gpu(GpuFault::SameClock) => "slow GPU with an equal clock",
            ScenarioKind::Gpu(GpuFault::MoreKernels) => "more kernels",
            ScenarioKind::Gpu(GpuFault::SlowLink) => "slow RCCL link",
            ScenarioKind::Clean(program, percent) => {
                return format!("27 clean {} {percent} %", program.name());
            }
        };
        format!("{} {text}", self.number())
    }

    /// Returns the numbers of ranks that it can have.
    pub(super) fn rank_counts(self) -> &'static [u32] {
        match self {
            ScenarioKind::Halves => EVEN_COUNTS,
            ScenarioKind::SlowNode | ScenarioKind::SlowNetwork => WHOLE_NODES,
            ScenarioKind::OnDemand | ScenarioKind::Alternating => MANY,
            ScenarioKind::Clean(CleanProgram::OnDemand, _) => MANY,
            ScenarioKind::Grid | ScenarioKind::Clean(CleanProgram::Grid, _) => GRIDS,
            ScenarioKind::Nested => QUARTERS,
            _ => ANY_COUNT,
        }
    }

    /// Returns the first rank that can be slow.
    pub(super) fn first_subject(self) -> u32 {
        match self {
            ScenarioKind::Chain
            | ScenarioKind::Master
            | ScenarioKind::MasterUnknown
            | ScenarioKind::OnDemand
            | ScenarioKind::ReduceBroadcast => 1,
            _ => 0,
        }
    }

    /// Returns how many of the last ranks cannot be slow.
    pub(super) fn left_out(self) -> u32 {
        if self == ScenarioKind::Chain { 1 } else { 0 }
    }

    /// Returns its noise, if it has one of its own.
    pub(super) fn noise(self) -> Option<f64> {
        match self {
            ScenarioKind::Clean(_, percent) => Some(f64::from(percent) / 100.0),
            _ => None,
        }
    }

    /// Returns the excess in percent of the work.
    pub(super) fn excess_percent(self) -> u64 {
        match self {
            ScenarioKind::Clean(..) | ScenarioKind::Gpu(GpuFault::None) => 0,
            // The second rank has half of it; a phase is half of the steps.
            // Most of the programs wait for every second message only.
            ScenarioKind::TwoStragglers | ScenarioKind::Phase | ScenarioKind::SlowNetwork => 10,
            _ => 5,
        }
    }
}
