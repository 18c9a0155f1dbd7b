//! Commands into which our library cannot be preloaded.

use super::unrecorded::{PrepareError, is_first};
use crate::backend::BackendPlan;
use crate::child::program::ProgramFile;
use crate::command_line::CollectOptions;

/// Warns about a command into which our library cannot be preloaded.
pub(super) fn unseen_command(options: &CollectOptions, plan: &BackendPlan) -> Option<String> {
    let (what, next) = traced_program(options, plan)?.unseen()?;
    Some(format!("warning: {what}; {next}"))
}

/// Refuses a command into which our library certainly cannot be preloaded.
pub(super) fn refuse_unseen(
    options: &CollectOptions,
    plan: &BackendPlan,
    rank: Option<u32>,
) -> Result<(), PrepareError> {
    match traced_program(options, plan).and_then(|program| program.unseen()) {
        Some((what, next)) => {
            let ranks = options.ranks.clone().unwrap_or_default();
            Err(PrepareError::Unseen { what, next, prints_for_all: is_first(rank, &ranks) })
        }
        None => Ok(()),
    }
}

/// Returns the program that our library is to be preloaded into; `None` if there is none.
fn traced_program(options: &CollectOptions, plan: &BackendPlan) -> Option<ProgramFile> {
    let wanted = plan.native && !options.recorded(plan).library.is_empty();
    options.command.first().filter(|_| wanted).map(|name| ProgramFile::find(name))
}
