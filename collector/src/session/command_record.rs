//! The process of the command, as its collector observes it.

use crate::host::machine;
use crate::host::process_stat::process_stat;
use crate::launcher::{RankIdentity, SourceDefaults};
use crate::shard_output::{OutputBatch, OutputItem, SideOutput};
use rpd_ring::identity::is_recorded;
use rpd_shard::identity::masked_environment;
use rpd_shard::record::{COMMAND_SOURCE, Clock, Process};

/// Describes the process. `command` is its command line without secrets.
pub(super) fn describe_command(defaults: &SourceDefaults, pid: i32, command: &str) -> Process {
    let stat = process_stat(pid);
    let RankIdentity { rank, size, local_rank, rank_from, restart } = defaults.rank.clone();
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut recorded: Vec<(String, String)> = variables.filter(|(name, _)| is_recorded(name)).collect();
    recorded.sort();
    Process {
        source: COMMAND_SOURCE,
        rank,
        size,
        local_rank,
        rank_from,
        worker: false,
        restart,
        node: defaults.node.clone(),
        domain: defaults.domain.clone(),
        clock: Clock::Boottime,
        pid,
        // A command that has ended was, like this process, a child of the launcher.
        ppid: stat.as_ref().map_or_else(|| std::os::unix::process::parent_id() as i32, |stat| stat.ppid),
        start_ticks: stat.map_or(0, |stat| stat.start_ticks),
        first_seen: machine::boottime(),
        last_seen: None,
        command: command.to_owned(),
        environment: masked_environment(recorded),
        exit: None,
    }
}

/// Records the start or the end of the command, traced or not.
pub(super) fn record_command(side: &SideOutput, command: Process) {
    let _ = side.send(OutputBatch::of(vec![OutputItem::Command(Box::new(command))]));
}

/// Records the command as a process.
pub(super) fn record_process(side: &SideOutput, process: Process) {
    // Without a writing thread nothing can be written, which is reported elsewhere.
    let _ = side.send(OutputBatch::of(vec![OutputItem::Process(Box::new(process))]));
}
