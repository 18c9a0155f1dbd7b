//! The processes that have rings, and their identities.

use super::pairing::ProcessPairing;
use crate::host::{machine, process};
use crate::launcher::{LauncherEnvironment, RankIdentity, SourceDefaults, detect_rank};
use rpd_ring::header::{RingHeader, ThreadFacts};
use rpd_ring::identity::{self, ProcessIdentity};
use rpd_shard::identity::{masked_command, masked_environment};
use rpd_shard::record::{ClockDomain, Node, Process, ProcessExit, SYSTEM_SOURCE};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;

/// Maximum number of ended processes that still await an exit status: their parents report it a moment
/// later.
const MAX_RECENTLY_ENDED: usize = 1024;
/// A traced process.
pub(super) struct TracedProcess {
    pub(super) process: Process,
    pub(super) log: ProcessPairing,
    /// Readable when the process has ended.
    pub(super) pidfd: Option<Arc<OwnedFd>>,
    /// The process sends no more threads and rows.
    pub(super) has_ended: bool,
    /// Bytes of its rings that were given back to the system.
    pub(super) returned: u64,
    /// Number of rows in the thread table.
    threads: i64,
    /// Process id that the process sees itself, in case it has no number in this namespace.
    own_pid: i32,
}

/// All traced processes, in the order of their numbers in the shard.
pub(super) struct TracedProcesses {
    all: Vec<TracedProcess>,
    /// Indices of processes that have not ended.
    living: Vec<usize>,
    /// Indices of processes that have ended and are still complete.
    ended: VecDeque<usize>,
    defaults: SourceDefaults,
}

/// The process of a new thread.
pub(super) struct EnteredThread {
    /// Index of the process.
    pub(super) at: usize,
    /// The process is new, or runs another program than at its last new thread.
    pub(super) changed: bool,
}

impl TracedProcesses {
    pub(super) fn new(defaults: SourceDefaults) -> TracedProcesses {
        TracedProcesses { all: Vec::new(), living: Vec::new(), ended: VecDeque::new(), defaults }
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut TracedProcess> {
        self.all.get_mut(at)
    }

    /// Returns the indices of the processes that have not ended.
    pub(super) fn living(&self) -> &[usize] {
        &self.living
    }

    /// Returns the descriptors that signal the ends of processes, with indices.
    pub(super) fn pidfds(&self) -> impl Iterator<Item = (usize, &Arc<OwnedFd>)> {
        self.living.iter().filter_map(|at| Some((*at, self.all.get(*at)?.pidfd.as_ref()?)))
    }

    /// Finds the latest process with a process id.
    pub(super) fn find(&mut self, pid: i32) -> Option<&mut TracedProcess> {
        self.all.iter_mut().rev().find(|source| source.process.pid == pid)
    }

    /// Marks a process as ended. Returns its record.
    pub(super) fn end(&mut self, at: usize, exit: Option<ProcessExit>) -> Option<Process> {
        let source = self.all.get_mut(at)?;
        source.has_ended = true;
        source.pidfd = None;
        source.process.last_seen = Some(machine::boottime());
        // An exit status that is known was reported by the process or its parent.
        if exit.is_some() && !matches!((source.process.exit, exit), (Some(_), Some(ProcessExit::Unknown))) {
            source.process.exit = exit;
        }
        let process = source.process.clone();
        self.living.retain(|place| *place != at);
        self.ended.push_back(at);
        if self.ended.len() > MAX_RECENTLY_ENDED
            && let Some(old) = self.ended.pop_front().and_then(|at| self.all.get_mut(at))
            && old.has_ended
        {
            old.forget();
        }
        Some(process)
    }

    /// Returns the clock domain of the collector.
    pub(super) fn domain(&self) -> &ClockDomain {
        &self.defaults.domain
    }

    /// Returns the number of the process with a process id, for a loss.
    pub(super) fn number_of(&self, pid: i32) -> u32 {
        let found = self.all.iter().rev().find(|source| source.process.pid == pid);
        found.map_or(0, |source| source.process.source)
    }

    /// Notes how a process ended, as process `from` reports: of itself, or of its child, by the child's
    /// number in the namespace of `from`. Returns the record if the process is known to have ended, so that
    /// it is written again.
    pub(super) fn note_exit(&mut self, from: i32, pid: i32, exit: ProcessExit) -> Option<Process> {
        let is_it = |source: &&mut TracedProcess| {
            let own = source.own_pid == pid && (source.process.pid == from || source.process.ppid == from);
            own || source.process.pid == pid && source.process.ppid == from
        };
        let source = self.all.iter_mut().rev().take(MAX_RECENTLY_ENDED).find(is_it)?;
        source.process.exit = Some(exit);
        source.has_ended.then(|| source.process.clone())
    }

    /// Whether a process is to be recorded, according to its own rank.
    pub(super) fn is_wanted(&self, header: RingHeader<'_>) -> bool {
        if self.defaults.ranks.selection().is_none() {
            return true;
        }
        let identity = identity::decode(&header.identity());
        self.defaults.ranks.contains(self.rank_of(&identity).rank)
    }

    /// Returns the rank from the variables of a process, or else the rank of the collector.
    fn rank_of(&self, identity: &ProcessIdentity) -> RankIdentity {
        let environment: LauncherEnvironment = identity.environment.iter().cloned().collect();
        let own = detect_rank(&environment, None);
        let keep = self.defaults.rank_is_named && environment.get("TORCHELASTIC_RUN_ID").is_none();
        if own.rank.is_none() || keep { self.defaults.rank.clone() } else { own }
    }

    /// Finds or makes the process of a new ring. Process id and start time identify it: a program after an
    /// exec is the same process, and a reused number is not.
    pub(super) fn enter(&mut self, pid: i32, header: RingHeader<'_>) -> EnteredThread {
        let facts = header.facts();
        let identity = identity::decode(&header.identity());
        let same = |source: &TracedProcess| {
            let process = &source.process;
            (process.pid, process.start_ticks, source.own_pid) == (pid, facts.start_ticks, facts.pid)
        };
        if let Some(at) = self.all.iter().rposition(same)
            && let Some(source) = self.all.get_mut(at)
        {
            if std::mem::take(&mut source.has_ended) {
                self.living.push(at);
            }
            let command = masked_command(&identity.arguments);
            let changed = source.process.command != command;
            source.process.command = command;
            source.process.environment = masked_environment(identity.environment);
            return EnteredThread { at, changed };
        }
        let number = number_at(self.all.len());
        let process = self.describe(number, pid, &facts, identity);
        let pidfd = process::open_pidfd(pid).map(Arc::new);
        let log = ProcessPairing::new(number);
        self.living.push(self.all.len());
        self.all.push(TracedProcess {
            process,
            log,
            pidfd,
            has_ended: false,
            returned: 0,
            threads: 0,
            own_pid: facts.pid,
        });
        EnteredThread { at: self.all.len() - 1, changed: true }
    }

    fn describe(&self, source: u32, pid: i32, facts: &ThreadFacts, identity: ProcessIdentity) -> Process {
        let rank = self.rank_of(&identity);
        let ppid = process::stat(pid).map_or(facts.ppid, |stat| stat.ppid);
        let mut domain = self.defaults.domain.clone();
        if facts.time_namespace != 0 {
            domain.time_namespace = facts.time_namespace;
        }
        Process {
            worker: facts.is_forked || self.is_below_rank(ppid, rank.rank, rank.restart),
            domain,
            ppid,
            start_ticks: facts.start_ticks,
            first_seen: facts.start_ns,
            command: masked_command(&identity.arguments),
            environment: masked_environment(identity.environment),
            ..self.defaults.describe_process(source, rank, if pid > 0 { pid } else { facts.pid })
        }
    }

    /// Whether an ancestor is a traced process of the same rank.
    fn is_below_rank(&self, ppid: i32, rank: Option<u32>, restart: u32) -> bool {
        iter::once(ppid).chain(process::ancestors(ppid)).any(|ancestor| {
            self.living.iter().filter_map(|at| self.all.get(*at)).any(|TracedProcess { process, .. }| {
                process.pid == ancestor && (process.rank, process.restart) == (rank, restart)
            })
        })
    }
}

impl TracedProcess {
    /// Returns the key of a new row of the thread table.
    pub(super) fn next_thread(&mut self) -> i64 {
        self.threads += 1;
        self.threads
    }

    /// Frees the memory of a record that will not be written again.
    fn forget(&mut self) {
        self.process.environment = Vec::new();
        self.process.command = String::new();
        self.process.node = Node::default();
        self.log = ProcessPairing::default();
        // Another process may have this number by now.
        (self.process.pid, self.own_pid) = (0, 0);
    }
}

/// Returns the number in the shard of the process with this index.
fn number_at(place: usize) -> u32 {
    match u32::try_from(place).unwrap_or(u32::MAX - 2) + 1 {
        number if number < SYSTEM_SOURCE => number,
        number => number + 1,
    }
}
