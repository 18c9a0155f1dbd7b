//! The configuration of the collector process.

use super::control::{StartMessage, WantedContent};
use super::identity::SessionIdentity;
use crate::backend::BackendPlan;
use crate::child::preload;
use crate::command_line::{CollectOptions, FileSharing};
use crate::host::cpus::CpuPlacement;
use rpd_shard::record::RunIdentity;
use std::path::PathBuf;

/// Maximum number of characters of the command line.
const MAX_COMMAND_CHARS: usize = 4096;

/// Makes the first message to the collector process.
pub(super) fn start_of(
    options: &CollectOptions,
    placement: CpuPlacement,
    own: SessionIdentity,
    plan: BackendPlan,
    (warnings, is_command_unseen): (Vec<String>, bool),
) -> StartMessage {
    let run = RunIdentity {
        run_id: own.run.id,
        run_id_from: own.run.from,
        rank: own.rank.rank,
        size: own.rank.size,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let trace = options.recorded(&plan);
    let library = if plan.native { trace.library } else { Vec::new() };
    let preloaded = (!library.is_empty()).then(preload::library_of_this_process).and_then(Result::ok);
    let ranks = options.selected_ranks();
    let wanted = match &plan.harvest {
        _ if !ranks.contains(own.rank.rank) => WantedContent::Events,
        Some(_) if !plan.nothing => WantedContent::Clocks,
        None if !plan.nothing && plan.native => WantedContent::Events,
        // Nothing was requested, or nothing of it is available.
        _ => WantedContent::Identity,
    };
    let no_python = (trace.python && library.is_empty()).then(|| {
        "warning: no Python stacks are recorded: --backend leaves out native, which records the threads"
            .to_owned()
    });
    StartMessage {
        run,
        root: own.root.into(),
        rank_env: options.rank_env.clone(),
        ranks,
        max_bytes: options.max_bytes(),
        share_group: options.share == Some(FileSharing::Group),
        ask_merge: options.ask_merge,
        marks: own.marks,
        library: library.iter().map(|word| (*word).to_owned()).collect(),
        preloaded: preloaded.map(PathBuf::into_os_string),
        cpus: placement.cpus,
        cpu_note: placement.line,
        system: trace.system && !plan.nothing,
        python: trace.python && !library.is_empty(),
        probes: options.probe_choice(),
        warnings: warnings.into_iter().chain(no_python).collect(),
        is_command_unseen,
        harvest: plan.harvest,
        wanted,
        // The command line must fit into a packet.
        command: options.masked_command().chars().take(MAX_COMMAND_CHARS).collect(),
        early: None,
        refused: false,
    }
}
