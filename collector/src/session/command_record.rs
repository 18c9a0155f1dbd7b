//! The process of the command, as its collector observes it.

use crate::host::process;
use crate::launcher::SourceDefaults;
use rpd_ring::identity::is_recorded;
use rpd_shard::identity::masked_environment;
use rpd_shard::record::{COMMAND_SOURCE, Process};

/// Describes the process. `command` is its command line without secrets.
pub(super) fn describe_command(defaults: &SourceDefaults, pid: i32, command: &str) -> Process {
    let stat = process::stat(pid);
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut recorded: Vec<(String, String)> = variables.filter(|(name, _)| is_recorded(name)).collect();
    recorded.sort();
    Process {
        // A command that has ended had the same parent process as this one.
        ppid: stat.as_ref().map_or_else(|| std::os::unix::process::parent_id() as i32, |stat| stat.ppid),
        start_ticks: stat.map_or(0, |stat| stat.start_ticks),
        command: command.to_owned(),
        environment: masked_environment(recorded),
        ..defaults.describe_process(COMMAND_SOURCE, defaults.rank.clone(), pid)
    }
}
