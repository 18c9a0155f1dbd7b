//! The command's own process, as its collector sees it from outside.

use crate::collect::{SourceDefaults, process_stat};
use crate::launcher::RankIdentity;
use crate::machine;
use crate::output::{Batch, Item, SideOutput};
use rpd_ring::identity::is_recorded;
use rpd_shard::identity::masked_environment;
use rpd_shard::record::{Clock, Process};

/// Its number in the shard where nothing else is told of it.
const SOURCE: u32 = 1;

/// Describes it. `command` is its command line without secrets.
pub(super) fn process(defaults: &SourceDefaults, pid: i32, command: &str) -> Process {
    let stat = process_stat(pid);
    let RankIdentity { rank, size, local_rank, rank_from, restart } = defaults.rank.clone();
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut recorded: Vec<(String, String)> = variables.filter(|(name, _)| is_recorded(name)).collect();
    recorded.sort();
    Process {
        source: SOURCE,
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
        ppid: stat.as_ref().map_or(-1, |stat| stat.ppid),
        start_ticks: stat.map_or(0, |stat| stat.start_ticks),
        first_seen: machine::boottime(),
        last_seen: None,
        command: command.to_owned(),
        environment: masked_environment(recorded),
        exit: None,
    }
}

/// Has it written to the shard.
pub(super) fn tell(side: &SideOutput, process: Process) {
    // Without a writing thread nothing is written at all, which is told elsewhere.
    let _ = side.send(Batch::of(vec![Item::Process(Box::new(process))]));
}
