//! Imports what profilers left on the node, as shards beside the rank's own.
//!
//! This runs in the collector process after the command has ended. If a file cannot become a shard, the
//! harvest warns and keeps the folder, so that nothing is lost. Shards mask secrets. Copies do not, so the
//! harvest copies no database and no file that contains an environment.

mod fetch_file;
mod gpu_fault;
mod profiler_harvest;
mod profiler_output;
mod unrecorded_rows;

pub(crate) use profiler_harvest::{HarvestTarget, ProfilerOutcome};

use super::request::HarvestRequest;
use super::scratch;
use super::start_mark::{self, StartRecord};
use crate::log::warn;
use profiler_harvest::ProfilerHarvest;
use rpd_shard::Shard;
use rpd_shard::record::{Process, SYSTEM_SOURCE};
use std::collections::BTreeSet;
use std::path::Path;

/// Translates all files to shards, and removes the scratch folder.
pub(crate) fn import_profiler_files(harvest: &HarvestRequest, target: &HarvestTarget<'_>) {
    let scratch_folder = Path::new(&harvest.scratch);
    let own = target.shard.as_ref().and_then(|path| Shard::open(path).ok());
    let (seen, clocks) = own.map_or_else(Default::default, |shard| {
        (shard.processes.into_values().filter(|process| !is_of_the_node(process)).collect(), shard.clocks)
    });
    let mut rank_process = target.rank_process.clone();
    if start_mark::was_asked_again(scratch_folder) {
        warn(format_args!(
            "warning: the profiler tried to run the command several times, probably for several counter passes; the command ran once; run each pass in a job of its own"
        ));
    }
    if let Some(record) = StartRecord::read(scratch_folder).filter(|_| !target.wrapper_did_not_start) {
        rank_process.pid = record.command.pid;
    }
    let mut gathered =
        ProfilerHarvest { target, rank_process, seen, clocks, lost: false, losses: BTreeSet::new() };
    for backend in &harvest.backends {
        gathered.import_backend(*backend, &scratch_folder.join(backend.name()));
    }
    if harvest.debug_agent {
        gathered.import_fault(scratch_folder);
    }
    unrecorded_rows::record(&gathered.losses, target, &gathered.owner());
    if harvest.keep || gathered.lost {
        let why = if harvest.keep { "--keep-scratch" } else { "what could not be read is still there" };
        warn(format_args!("{} stays on this node ({why})", scratch_folder.display()));
    } else {
        scratch::remove(scratch_folder);
    }
}

fn is_of_the_node(process: &Process) -> bool {
    process.source == SYSTEM_SOURCE
}
