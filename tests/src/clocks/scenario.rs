/// What is wrong with a job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClockScenario {
    /// Name in tables.
    pub name: &'static str,
    /// No NTP steers BOOTTIME and REALTIME: they drift as RAW does, by up to 20 ppm.
    pub unsteered: bool,
    /// Wander of each clock's rate, ppb in a second's square root.
    pub walk: f64,
    /// Each clock's rate swings by so much, ppb, as the machine room gets warmer and colder.
    pub swing: f64,
    /// NTP changes the rate of BOOTTIME every minute or so.
    pub ntp_steps: bool,
    /// One node's clocks jump once.
    pub jump: bool,
    /// Some links take 4 us longer one way.
    pub asymmetry: bool,
    /// Delays vary five times as much, and some of them much more.
    pub heavy_tails: bool,
    /// Some nodes leave collectives late, always.
    pub late_exits: bool,
    /// Two nodes come late to most collectives.
    pub stragglers: bool,
    /// Which nodes have probes.
    pub probes: ProbeRate,
    /// One node joins late.
    pub late_node: bool,
    /// How many collectives there are.
    pub collectives: CollectiveRate,
}

/// What networks and schedulers add to the times of a job, in every scenario. The figures of the last two are those of
/// real runs (docs/CLOCKS.md).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NoiseLevel {
    /// Queues in the network. Kernels note when packets arrive.
    Quiet,
    /// Programs note when packets arrive, on nodes with busy cores: they wait for a core in every fifth burst, all
    /// probes of a burst are off by the same, the last one by more, and ranks leave collectives up to 23 ms apart.
    Busy,
    /// Kernels note when packets arrive, from cards that hold each packet back for up to 50 us; some nodes leave
    /// collectives late for a part of the run.
    Moderated,
}

impl NoiseLevel {
    /// All of them, in the order of the table.
    pub const ALL: [NoiseLevel; 3] = [NoiseLevel::Quiet, NoiseLevel::Busy, NoiseLevel::Moderated];

    /// Name in tables and options.
    pub fn name(self) -> &'static str {
        match self {
            NoiseLevel::Quiet => "quiet",
            NoiseLevel::Busy => "busy",
            NoiseLevel::Moderated => "moderated",
        }
    }
}

/// The nodes that are probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeRate {
    /// All nodes.
    All,
    /// All but one.
    AllButOne,
    /// Nobody.
    Nobody,
}

/// How often ranks meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveRate {
    /// Thirty times in a second.
    Densely,
    /// Three times in two seconds.
    Often,
    /// A dozen times in the run.
    Seldom,
    /// Not at all.
    Never,
}

impl ClockScenario {
    /// Nothing is wrong: steered clocks with crystals of up to 20 ppm.
    pub const QUIET: ClockScenario = ClockScenario {
        name: "quiet",
        unsteered: false,
        walk: 3.0,
        swing: 0.0,
        ntp_steps: false,
        jump: false,
        asymmetry: false,
        heavy_tails: false,
        late_exits: false,
        stragglers: false,
        probes: ProbeRate::All,
        late_node: false,
        collectives: CollectiveRate::Often,
    };

    /// All scenarios, in the order of the table.
    pub const ALL: [ClockScenario; 17] = [
        ClockScenario::QUIET,
        ClockScenario { name: "drift and walk", unsteered: true, walk: 10.0, ..ClockScenario::QUIET },
        ClockScenario { name: "temperature", swing: 150.0, ..ClockScenario::QUIET },
        ClockScenario { name: "NTP steps", ntp_steps: true, ..ClockScenario::QUIET },
        ClockScenario { name: "clock step", jump: true, ..ClockScenario::QUIET },
        ClockScenario { name: "asymmetry", asymmetry: true, ..ClockScenario::QUIET },
        ClockScenario { name: "heavy tails", heavy_tails: true, ..ClockScenario::QUIET },
        ClockScenario { name: "late exits", late_exits: true, ..ClockScenario::QUIET },
        ClockScenario { name: "stragglers", stragglers: true, ..ClockScenario::QUIET },
        ClockScenario { name: "one unprobed", probes: ProbeRate::AllButOne, ..ClockScenario::QUIET },
        ClockScenario { name: "late node", late_node: true, ..ClockScenario::QUIET },
        ClockScenario {
            name: "few collectives",
            collectives: CollectiveRate::Seldom,
            ..ClockScenario::QUIET
        },
        ClockScenario { name: "collectives only", probes: ProbeRate::Nobody, ..ClockScenario::QUIET },
        ClockScenario { name: "probes only", collectives: CollectiveRate::Never, ..ClockScenario::QUIET },
        ClockScenario { name: "tails+asymmetry", heavy_tails: true, asymmetry: true, ..ClockScenario::QUIET },
        ClockScenario {
            name: "asymm.+late exits",
            asymmetry: true,
            late_exits: true,
            ..ClockScenario::QUIET
        },
        ClockScenario {
            name: "everything",
            walk: 10.0,
            swing: 150.0,
            ntp_steps: true,
            jump: true,
            asymmetry: true,
            heavy_tails: true,
            late_exits: true,
            stragglers: true,
            late_node: true,
            ..ClockScenario::QUIET
        },
    ];
}
