//! The owner of a foreign file: the run and the processes to which its shard belongs.

use crate::identity::{SPAWNED_MEMBER, masked_line};
use crate::record::{ClockSet, Process, RunIdentity};

/// Facts about a foreign file that do not come from the file itself.
///
/// If a merge translates a file that the user names, there are almost none. If a collector ran the profiler, all
/// are present.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The run of the shard.
    pub run: RunIdentity,
    /// The processes, if the collector recorded them more reliably than the file does.
    pub processes: Option<KnownProcesses>,
    /// Clock sets of the node, ns.
    pub clocks: Vec<ClockSet>,
    /// Maximum bytes of the shard; rows beyond that are only counted.
    pub most_bytes: u64,
}

/// The processes that a collector observed.
#[derive(Clone, Debug)]
pub struct KnownProcesses {
    /// The rank's own process. Its facts also apply to processes of the rank that were not observed.
    pub rank_process: Process,
    /// All observed processes, including `rank_process` if it was observed.
    pub seen: Vec<Process>,
}

/// Values of `rank_from` for a process that itself joined a process group of torch.
const PROCESS_GROUPS: [&str; 3] = ["distributedInfo", "torch.distributed", SPAWNED_MEMBER];

impl Owner {
    /// Returns an owner for a file about which nothing is known except its content.
    pub fn unknown(run: RunIdentity) -> Owner {
        Owner { run, processes: None, clocks: Vec::new(), most_bytes: u64::MAX }
    }

    /// Completes the description of a process from the file with the facts of the collector: rank, node, clock
    /// domain. The clock of its times, its number and its times remain those of the file.
    pub fn describe(&self, described: Process) -> Process {
        let Some(known) = &self.processes else { return described };
        let is_usual = (described.rank, described.size) == (known.rank_process.rank, known.rank_process.size);
        // A child inherits the variable with the rank; it does not inherit membership of a process group.
        let is_member = described.rank_from.as_deref().is_some_and(|from| PROCESS_GROUPS.contains(&from));
        // One collector can have several spawned processes, to which the launcher's variables do not apply.
        let is_spawned = described.rank_from.as_deref() == Some(SPAWNED_MEMBER);
        let seen = known.seen.iter().rev().find(|process| process.pid == described.pid);
        let known = match seen {
            // The collector knows only that the process was started by a rank; the file has its own rank.
            Some(process) if is_spawned || process.worker && is_member => Process {
                rank: described.rank,
                size: described.size,
                rank_from: described.rank_from.clone(),
                worker: false,
                ..process.clone()
            },
            Some(process) => process.clone(),
            // Like everything that a rank starts, the process has the rank of its parent.
            None if described.pid <= 0 || described.pid == known.rank_process.pid => {
                known.rank_process.clone()
            }
            // The file states that the process is a rank, but not which one: it does not have its parent's rank.
            None if described.rank.is_none() && described.rank_from.is_some() => Process {
                rank: None,
                size: None,
                local_rank: None,
                rank_from: described.rank_from.clone(),
                worker: false,
                pid: described.pid,
                ppid: described.ppid,
                start_ticks: 0,
                command: String::new(),
                exit: None,
                ..known.rank_process.clone()
            },
            None => Process {
                rank: described.rank.or(known.rank_process.rank),
                size: described.size.or(known.rank_process.size),
                local_rank: described.local_rank.or(known.rank_process.local_rank),
                rank_from: described.rank_from.clone().or_else(|| known.rank_process.rank_from.clone()),
                // One collector can have the ranks of several processes.
                worker: described.rank.is_none() || is_usual && !is_member,
                pid: described.pid,
                ppid: described.ppid,
                start_ticks: 0,
                command: String::new(),
                exit: None,
                ..known.rank_process.clone()
            },
        };
        Process {
            source: described.source,
            clock: described.clock,
            first_seen: described.first_seen,
            last_seen: described.last_seen,
            command: if known.command.is_empty() {
                masked_line(&described.command)
            } else {
                known.command.clone()
            },
            exit: known.exit.or(described.exit),
            ..known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Clock, ClockDomain, Node};

    fn process(pid: i32, rank: Option<u32>, boot: &str, clock: Clock) -> Process {
        Process {
            source: 9,
            rank,
            size: None,
            local_rank: None,
            rank_from: None,
            worker: false,
            restart: 0,
            node: Node { boot_id: boot.into(), ..Node::default() },
            domain: ClockDomain { boot_id: boot.into(), time_namespace: 1 },
            clock,
            pid,
            ppid: 1,
            start_ticks: 5,
            first_seen: 100,
            last_seen: Some(200),
            command: format!("of {boot}"),
            environment: Vec::new(),
            exit: None,
        }
    }

    #[test]
    fn identity_comes_from_who_saw_the_process_and_times_from_the_file() {
        let run = RunIdentity {
            run_id: "r".into(),
            run_id_from: "t".into(),
            rank: None,
            size: None,
            version: "0".into(),
        };
        let rank_process = process(70, Some(3), "known", Clock::Boottime);
        let other = process(71, Some(4), "known", Clock::Boottime);
        let told = |pid| Process { first_seen: 7, ..process(pid, None, "told", Clock::Realtime) };
        let mut owner = Owner::unknown(run);
        assert_eq!(owner.describe(told(70)), told(70));
        owner.processes = Some(KnownProcesses { rank_process, seen: vec![other] });
        let same = owner.describe(told(70));
        assert_eq!(
            (same.rank, same.worker, same.clock, same.first_seen),
            (Some(3), false, Clock::Realtime, 7)
        );
        assert_eq!((same.node.boot_id.as_str(), same.command.as_str()), ("known", "of known"));
        assert_eq!(owner.describe(told(71)).rank, Some(4));
        let child = owner.describe(told(72));
        assert_eq!((child.rank, child.worker, child.pid, child.start_ticks), (Some(3), true, 72, 0));
        // A variable passes the rank of the parent to the child; a process group gives the child its own rank.
        let from = |name: &str| {
            let told = Process { rank: Some(3), rank_from: Some(name.to_owned()), ..told(72) };
            owner.describe(told).worker
        };
        assert_eq!(
            (from("OMPI_COMM_WORLD_RANK"), from("distributedInfo"), from("torch.distributed")),
            (true, false, false)
        );
        let told_line = Process { command: "app --password SECRET --token=SECRET".into(), ..told(72) };
        assert!(!owner.describe(told_line).command.contains("SECRET"));
        // The variables of a launcher do not apply to processes that torch has spawned.
        let spawned = Process { rank: Some(6), rank_from: Some(SPAWNED_MEMBER.to_owned()), ..told(71) };
        assert_eq!((owner.describe(spawned).rank, owner.describe(told(71)).rank), (Some(6), Some(4)));
        let worker = Process { worker: true, ..process(73, Some(3), "known", Clock::Boottime) };
        owner.processes.as_mut().unwrap().seen.push(worker);
        let group = Some("torch.distributed".to_owned());
        let joined = owner.describe(Process { rank: Some(5), rank_from: group, ..told(73) });
        assert_eq!((joined.rank, joined.worker, owner.describe(told(73)).worker), (Some(5), false, true));
        let unnamed = owner.describe(told(0));
        assert_eq!((unnamed.pid, unnamed.worker), (70, false));
    }
}
