use super::clock::{Clock, ClockDomain};
use serde::{Deserialize, Serialize};

/// Which run a shard belongs to, and which collector wrote it. First and last record of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunIdentity {
    /// The run id on which all ranks agree.
    pub run_id: String,
    /// Where the run id comes from: an environment variable, `--run-id`, or `self` for a lone process.
    pub run_id_from: String,
    /// Rank of the collector, where a launcher gave it one.
    pub rank: Option<u32>,
    /// Number of tasks that the launcher started.
    pub size: Option<u32>,
    /// Version of rpd-collect.
    pub version: String,
}

/// A node as RocPD describes it (`uname(2)` and machine-id).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    /// `/etc/machine-id`; empty where there is none.
    pub machine_id: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// `sysname`.
    pub system_name: String,
    /// `nodename`.
    pub hostname: String,
    /// `release`.
    pub release: String,
    /// `version`.
    pub version: String,
    /// `machine`.
    pub hardware_name: String,
    /// `domainname`.
    pub domain_name: String,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Exit {
    /// It called exit with this status.
    Code(i32),
    /// It died by this signal.
    Signal(i32),
    /// It ended, and was no child of the collector.
    Unknown,
}

/// Number in the shard of the process that represents the collector, where it records the counters of its
/// node. Processes that are traced pass over it.
pub const SYSTEM_SOURCE: u32 = 1 << 20;

/// Number of the command in its own record, and in a merge of a shard that describes no traced process.
pub const COMMAND_SOURCE: u32 = 1;

/// One traced process: a source of rows with key and stack id spaces of its own.
///
/// Written when the process is first seen and again when it has ended; the last one counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Number in the shard, from 1.
    pub source: u32,
    /// Rank in the job, where it has one.
    pub rank: Option<u32>,
    /// Number of ranks in the job.
    pub size: Option<u32>,
    /// Rank on its node.
    pub local_rank: Option<u32>,
    /// The variable that the rank came from.
    pub rank_from: Option<String>,
    /// A process below a rank (data loader, shell), not the rank itself.
    pub worker: bool,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restart: u32,
    /// Where it ran.
    pub node: Node,
    /// Whose clocks it read.
    pub domain: ClockDomain,
    /// What its times are stamped with.
    pub clock: Clock,
    /// Process id in the collector's pid namespace.
    pub pid: i32,
    /// Parent's process id.
    pub ppid: i32,
    /// Start time, clock ticks since boot (`/proc/PID/stat`, field 22): pid and start time name a process.
    pub start_ticks: u64,
    /// When it was first seen, ns of `clock`.
    pub first_seen: i64,
    /// When it was last seen, ns of `clock`.
    pub last_seen: Option<i64>,
    /// Command line, secrets masked.
    pub command: String,
    /// Variables of the allow-list.
    pub environment: Vec<(String, String)>,
    /// How it ended, once it has.
    pub exit: Option<Exit>,
}

impl Process {
    /// A process of a file of another profiler, as little as any such file states: the only one of its shard,
    /// without a rank, and without times, which are ns of `clock`. Its clocks are those of the boot of the
    /// node.
    pub fn of_file(node: Node, clock: Clock) -> Process {
        Process {
            source: 1,
            rank: None,
            size: None,
            local_rank: None,
            rank_from: None,
            worker: false,
            restart: 0,
            domain: ClockDomain { boot_id: node.boot_id.clone(), time_namespace: 0 },
            node,
            clock,
            pid: 0,
            ppid: 0,
            start_ticks: 0,
            first_seen: 0,
            last_seen: None,
            command: String::new(),
            environment: Vec::new(),
            exit: None,
        }
    }
}
