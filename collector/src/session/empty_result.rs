//! Messages about a rank without any recorded event.

use super::control::{ControlChannel, StartMessage, ToParent};
use super::preloaded::{UnseenProcess, hint_for_container};
use crate::command_line::name_of;
use crate::log::{self, warn};
use rpd_shard::record::ProcessExit;
use std::path::PathBuf;

/// Explains an empty result: in the log of a rank, or on stderr without a rank. Prints nothing if the library
/// cannot be preloaded into the command, since a warning at the start named that. `exit` is the exit of the
/// command.
pub(super) fn explain_empty(start: &StartMessage, exit: ProcessExit, parent: &ControlChannel) {
    let metrics = log::has_metrics();
    let Some(why) = why_empty(start, exit, metrics).filter(|_| !start.is_command_unseen) else { return };
    let beside = if metrics { " beside system metrics" } else { "" };
    print_of_rank(start, parent, format!("nothing was recorded{beside}: {why}"));
}

/// Names a process in which no call could be recorded, if no call of any process was.
pub(super) fn name_unseen(process: &UnseenProcess, start: &StartMessage, parent: &ControlChannel) {
    let library = start.preloaded.as_ref().map(PathBuf::from).unwrap_or_default();
    print_of_rank(start, parent, process.line(&library, &start.command));
}

/// Prints in the log of a rank, or on stderr without a rank.
fn print_of_rank(start: &StartMessage, parent: &ControlChannel, text: String) {
    match start.run.rank {
        Some(_) => warn(format_args!("{text}")),
        None => drop(parent.send(&ToParent::Say { text })),
    }
}

/// Returns the reason why no event was recorded; `None` if only metrics of the node were requested, and they
/// were recorded.
fn why_empty(start: &StartMessage, exit: ProcessExit, metrics: bool) -> Option<String> {
    if let Some(rank) = start.run.rank.filter(|_| !start.is_recorded()) {
        return Some(format!("rank {rank} is not among the ranks to record, {}", start.ranks));
    }
    let calls: Vec<&str> = start.library.iter().map(|word| name_of(word)).collect();
    let kinds = match calls.split_last() {
        // One rank of each node reads the metrics.
        None if metrics || start.system && start.run.rank.is_some() => return None,
        None if start.system => {
            return Some(
                "the command ended before the system metrics were read for the first time".to_owned(),
            );
        }
        None => return Some("no kind of call was to be recorded".to_owned()),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    };
    if let ProcessExit::Signal(signal) = exit {
        return Some(format!("no {kinds} call was seen before signal {signal} ended the command"));
    }
    let library = start.preloaded.as_ref().map(PathBuf::from).unwrap_or_default();
    let next = hint_for_container(&start.command, &library)
        .unwrap_or_else(|| "; to record GPU kernels, add --backend rocprofv3".to_owned());
    Some(format!("no {kinds} call was seen{next}"))
}
