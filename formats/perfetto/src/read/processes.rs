use super::tracks::TraceProcess;
use rpd_shard::identity::unnamed_node;
use rpd_shard::record::{Clock, Process};

/// Converts processes to the descriptions of a shard. The file states neither rank nor node.
pub(super) fn described(processes: &[TraceProcess], clock: Clock) -> Vec<Process> {
    let first = |found: &TraceProcess| found.seen.map_or(0, |(first, _)| first);
    let on_node: Vec<(i32, i64)> = processes.iter().map(|found| (found.pid, first(found))).collect();
    let node = unnamed_node(0, &on_node);
    (1..)
        .zip(processes)
        .map(|(source, found)| Process {
            source,
            pid: found.pid,
            first_seen: first(found),
            last_seen: found.seen.map(|(_, last)| last),
            command: String::from_utf8_lossy(&found.command).into_owned(),
            ..Process::of_file(node.clone(), clock)
        })
        .collect()
}
