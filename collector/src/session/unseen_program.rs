//! A command that our library cannot be in.

use super::unrecorded::{PrepareError, is_first};
use crate::backend::BackendPlan;
use crate::child::program::ProgramFile;
use crate::command_line::CollectOptions;

/// Warns of a command that our library cannot be in.
pub(super) fn unseen_command(options: &CollectOptions, plan: &BackendPlan) -> Option<String> {
    let (what, next) = traced_program(options, plan)?.unseen()?;
    Some(format!("warning: {what}; {next}"))
}

/// Refuses a command that our library certainly cannot be in.
pub(super) fn refuse_unseen(
    options: &CollectOptions,
    plan: &BackendPlan,
    rank: Option<u32>,
) -> Result<(), PrepareError> {
    match traced_program(options, plan).and_then(|program| program.unseen()) {
        Some((what, next)) => {
            let ranks = options.ranks.clone().unwrap_or_default();
            Err(PrepareError::Unseen { what, next, speaks: is_first(rank, &ranks) })
        }
        None => Ok(()),
    }
}

/// The program that our library is to be in; `None` if it is to be in none.
fn traced_program(options: &CollectOptions, plan: &BackendPlan) -> Option<ProgramFile> {
    let wanted = plan.native && !options.recorded(plan).library.is_empty();
    options.command.first().filter(|_| wanted).map(|name| ProgramFile::find(name))
}
