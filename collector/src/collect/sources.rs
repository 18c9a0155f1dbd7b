//! The processes that have rings, and who they are.

use super::pairing::ProcessLog;
use crate::launcher::{Environment, RankIdentity, detect_rank};
use crate::machine;
use crate::privacy::{masked_command, masked_environment};
use crate::rank_set::RankSet;
use rpd_ring::header::{Header, ThreadFacts};
use rpd_ring::identity::{self, Identity};
use rpd_shard::record::{Clock, ClockDomain, Exit, Node, Process};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Ancestors that are looked at for the rank that a worker belongs to.
const ANCESTORS: usize = 32;

/// What processes have from their collector unless they say something else.
#[derive(Clone, Debug)]
pub struct SourceDefaults {
    /// Rank of the collector.
    pub rank: RankIdentity,
    /// The rank comes from a variable that the user named, and which processes do not report.
    pub rank_is_named: bool,
    /// Ranks to record.
    pub ranks: RankSet,
    /// Its node.
    pub node: Node,
    /// Its clocks.
    pub domain: ClockDomain,
}

/// A traced process.
pub(super) struct Source {
    pub(super) process: Process,
    pub(super) log: ProcessLog,
    /// Readable when the process has ended.
    pub(super) pidfd: Option<OwnedFd>,
    /// No threads and rows will come any more.
    pub(super) ended: bool,
    /// Rows of the thread table given so far.
    threads: i64,
    /// As the process itself sees it, for the case that it has no number in our namespace.
    own_pid: i32,
}

/// All traced processes; numbers in the shard are places here plus one.
pub(super) struct Sources {
    all: Vec<Source>,
    defaults: SourceDefaults,
}

/// Where a thread is to be entered.
pub(super) struct Entered {
    /// Place of the process.
    pub(super) at: usize,
    /// The process is new, or is another program since its last thread was entered.
    pub(super) changed: bool,
}

impl Sources {
    pub(super) fn new(defaults: SourceDefaults) -> Sources {
        Sources { all: Vec::new(), defaults }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Source> {
        self.all.get_mut(at)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Source)> {
        self.all.iter_mut().enumerate()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.all.iter()
    }

    /// The clocks of the collector.
    pub(super) fn domain(&self) -> &ClockDomain {
        &self.defaults.domain
    }

    /// The process of a process id, to count a loss for.
    pub(super) fn number_of(&self, pid: i32) -> u32 {
        let found = self.all.iter().rev().find(|source| source.process.pid == pid);
        found.map_or(0, |source| source.process.source)
    }

    /// Finds or makes the process that a new ring belongs to. Process id and start time name it, so
    /// that a program after an exec is the same process, and a reused number is not.
    pub(super) fn enter(&mut self, pid: i32, header: Header<'_>) -> Entered {
        let facts = header.facts();
        let identity = identity::decode(&header.identity());
        let same = |source: &Source| {
            let process = &source.process;
            (process.pid, process.start_ticks, source.own_pid) == (pid, facts.start_ticks, facts.pid)
        };
        if let Some(at) = self.all.iter().rposition(same)
            && let Some(source) = self.all.get_mut(at)
        {
            source.ended = false;
            let command = masked_command(&identity.arguments);
            let changed = source.process.command != command;
            source.process.command = command;
            source.process.environment = masked_environment(identity.environment);
            return Entered { at, changed };
        }
        let number = u32::try_from(self.all.len() + 1).unwrap_or(u32::MAX);
        let process = self.describe(number, pid, &facts, identity);
        let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let log = ProcessLog::new(number);
        self.all.push(Source { process, log, pidfd, ended: false, threads: 0, own_pid: facts.pid });
        Entered { at: self.all.len() - 1, changed: true }
    }

    fn describe(&self, source: u32, pid: i32, facts: &ThreadFacts, identity: Identity) -> Process {
        let environment: Environment = identity.environment.iter().cloned().collect();
        let own = detect_rank(&environment, None);
        let keep = self.defaults.rank_is_named && environment.get("TORCHELASTIC_RUN_ID").is_none();
        let rank = if own.rank.is_none() || keep { self.defaults.rank.clone() } else { own };
        let ppid = process_stat(pid).map_or(facts.ppid, |stat| stat.ppid);
        let worker = facts.forked || self.is_below_rank(ppid, rank.rank, rank.restart);
        let mut domain = self.defaults.domain.clone();
        if facts.time_namespace != 0 {
            domain.time_namespace = facts.time_namespace;
        }
        Process {
            source,
            rank: rank.rank,
            size: rank.size,
            local_rank: rank.local_rank,
            rank_from: rank.rank_from,
            worker,
            restart: rank.restart,
            node: self.defaults.node.clone(),
            domain,
            clock: Clock::Boottime,
            pid: if pid > 0 { pid } else { facts.pid },
            ppid,
            start_ticks: facts.start_ticks,
            first_seen: facts.start_ns,
            last_seen: None,
            command: masked_command(&identity.arguments),
            environment: masked_environment(identity.environment),
            exit: None,
        }
    }

    /// Whether a traced process of the same rank is among the ancestors.
    fn is_below_rank(&self, ppid: i32, rank: Option<u32>, restart: u32) -> bool {
        let mut ancestor = ppid;
        for _ in 0..ANCESTORS {
            let is_rank = |source: &Source| {
                let process = &source.process;
                !source.ended && process.pid == ancestor && (process.rank, process.restart) == (rank, restart)
            };
            if self.all.iter().any(is_rank) {
                return true;
            }
            match process_stat(ancestor) {
                Some(stat) if stat.ppid > 1 => ancestor = stat.ppid,
                _ => return false,
            }
        }
        false
    }
}

impl Source {
    /// The key of a new row of the thread table.
    pub(super) fn next_thread(&mut self) -> i64 {
        self.threads += 1;
        self.threads
    }

    /// Notes the end of the process.
    pub(super) fn end(&mut self, exit: Option<Exit>) {
        self.ended = true;
        self.pidfd = None;
        self.process.last_seen = Some(machine::boottime());
        if exit.is_some() && !matches!((self.process.exit, exit), (Some(_), Some(Exit::Unknown))) {
            self.process.exit = exit;
        }
    }
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessStat {
    /// Parent's process id.
    pub ppid: i32,
}

/// Reads `/proc/PID/stat`; none if the process is gone.
pub fn process_stat(pid: i32) -> Option<ProcessStat> {
    if pid <= 0 {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command in parentheses may hold anything, so count from its end.
    let ppid = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    Some(ProcessStat { ppid })
}
