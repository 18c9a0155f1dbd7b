use super::clock::{Clock, ClockDomain};
use serde::{Deserialize, Serialize};

/// Run that a shard belongs to, and the collector that wrote it. First and last record of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunIdentity {
    /// The run id that all ranks share.
    pub run_id: String,
    /// Source of the run id: an environment variable, `--run-id`, or `self` for a single process.
    pub run_id_from: String,
    /// Rank of the collector, if a launcher assigned one.
    pub rank: Option<u32>,
    /// Number of tasks that the launcher started.
    pub size: Option<u32>,
    /// Version of rpd-collect.
    pub version: String,
}

/// A node as RocPD describes it (`uname(2)` and machine-id).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `/etc/machine-id`; empty if the file is missing.
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

/// Exit status of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ProcessExit {
    /// The process called exit with this status.
    Code(i32),
    /// This signal terminated the process.
    Signal(i32),
    /// The process ended, but it was not a child of the collector.
    Unknown,
}

/// Number in the shard of the process that represents the collector when it records counters of its node. The
/// numbers of traced processes skip it.
pub const SYSTEM_SOURCE: u32 = 1 << 20;

/// Number of the command in its own record, and in a merge of a shard that describes no traced process.
pub const COMMAND_SOURCE: u32 = 1;

/// One traced process: a source of rows with its own key and stack id spaces.
///
/// Written when the process is first seen and again after it has ended; the last record counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Number in the shard, from 1.
    pub source: u32,
    /// Rank in the job, if the process has one.
    pub rank: Option<u32>,
    /// Number of ranks in the job.
    pub size: Option<u32>,
    /// Rank on its node.
    pub local_rank: Option<u32>,
    /// The variable that the rank was read from.
    pub rank_from: Option<String>,
    /// Whether it is a process below a rank (data loader, shell), not the rank itself.
    pub worker: bool,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restart: u32,
    /// Node on which the process ran.
    pub node: Node,
    /// Domain of the clocks that the process read.
    pub domain: ClockDomain,
    /// Clock of its timestamps.
    pub clock: Clock,
    /// Process id in the collector's pid namespace.
    pub pid: i32,
    /// Parent's process id.
    pub ppid: i32,
    /// Start time, clock ticks since boot (`/proc/PID/stat`, field 22). Pid and start time identify a process.
    pub start_ticks: u64,
    /// Time when the process was first seen, ns of `clock`.
    pub first_seen: i64,
    /// Time when the process was last seen, ns of `clock`.
    pub last_seen: Option<i64>,
    /// Command line with secrets masked.
    pub command: String,
    /// Environment variables that the allow-list contains.
    pub environment: Vec<(String, String)>,
    /// Exit status, after the process has ended.
    pub exit: Option<ProcessExit>,
}

impl Process {
    /// Returns the process of a foreign file with only the facts that every such file has.
    ///
    /// It is the only process of its shard, without rank and times, which are ns of `clock`. Its clock domain is
    /// the boot of the node.
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
