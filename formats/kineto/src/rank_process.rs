use crate::facts::{TraceFacts, TraceSidecar};
use crate::threads::ThreadList;
use rpd_shard::identity::node_of_file;
use rpd_shard::record::{Clock, Node, Process};

/// Describes the process of the rank from the file and its sidecar. `times` are its first and last time in ns.
pub(crate) fn rank_process(
    facts: &TraceFacts,
    sidecar: &TraceSidecar,
    threads: &ThreadList,
    times: (Option<i64>, Option<i64>),
    clock: Clock,
) -> Process {
    let pid = threads.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let pid = pid.or(sidecar.pid).unwrap_or(0);
    let first_seen = times.0.unwrap_or(0);
    let hostname = facts.host.clone().unwrap_or_default();
    let node = Node { machine_id: hostname.clone(), hostname, ..Node::default() };
    let node = node_of_file(node, (pid, first_seen));
    let rank = facts.rank;
    Process {
        rank: rank.or(sidecar.rank),
        size: facts.world.or(sidecar.world_size),
        rank_from: sidecar.name().or_else(|| rank.map(|_| "distributedInfo".to_owned())),
        pid,
        first_seen,
        last_seen: times.1,
        command: threads.process_name().unwrap_or_default().to_owned(),
        ..Process::of_file(node, clock)
    }
}
