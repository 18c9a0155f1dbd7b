//! Reads an input once, before ids are assigned. Counts rows, keys, strings and stack ids, and finds damage. Decodes
//! every block, so that the counts are exact.

pub(super) mod block_facts;
pub(super) mod collectives;
mod command_exits;
mod crashed;
pub(crate) mod database;
mod database_nodes;
mod database_pieces;
mod database_strings;
pub(super) mod foreign_blocks;
mod input_survey;
pub(super) mod placeholders;
mod profiler_losses;
pub(super) mod resident_size;
pub(super) mod row_texts;
mod shard;
mod shard_source;
mod table_set_reader;

pub(crate) use command_exits::{CommandExit, CommandExits, exits_line};
pub(crate) use crashed::{ProcessCrash, StoppedProcesses, exit_text};
pub(crate) use input_survey::{InputSurvey, with_lost_rows};
pub(crate) use profiler_losses::ProfilerLosses;

use crate::input::host_clocks::HostClocks;
use crate::input::plan::PlannedInput;
use crate::input::schema::JobSchema;
use crate::input::vanished::vanished_input;
use database::survey_database;
use rpd_collectives::CallSample;
use rpd_console::Failure;
use rpd_foreign::Format;
use rpd_rocpd::read::Database;
use rpd_shard::Shard;
use rpd_shard::record::COMMAND_SOURCE;
use shard::survey_shard;
use std::io;

/// Surveys a planned input. An input that vanished, shrank or was replaced since the plan is a vanished input; a
/// shard may have grown.
pub(crate) fn survey(
    planned: &PlannedInput,
    job: &JobSchema,
    host_clocks: &HostClocks,
    sample: &CallSample,
) -> Result<InputSurvey, Failure> {
    let path = &planned.path;
    let another = |what: &str| vanished_input(path, &io::Error::other(what.to_owned()));
    if planned.format == Format::RocPd {
        let database = Database::open(path).map_err(|error| vanished_input(path, &error))?;
        let guid = |set: &usize| database.table_sets().get(*set).map(|set| &set.guid);
        if database.bytes() != planned.bytes
            || !planned.table_sets.iter().map(guid).eq(planned.guids.iter().map(Some))
        {
            return Err(another("it is another database than it was"));
        }
        return Ok(survey_database(database, &planned.table_sets, job, host_clocks, sample));
    }
    let mut shard = Shard::open(path).map_err(|error| vanished_input(path, &error))?;
    if shard.bytes() < planned.bytes {
        return Err(another("it is shorter than it was"));
    }
    if let Some(command) = shard.command.clone().filter(|_| planned.shows_command) {
        shard.processes.entry(COMMAND_SOURCE).or_insert(*command);
    }
    Ok(survey_shard(shard, planned.running_until.is_some(), job, host_clocks, sample))
}
