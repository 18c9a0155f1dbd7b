//! What one rank finds, all know: results of rank 0, failures, and inputs that cannot be read any more.

use crate::comm::Comm;
use crate::failure::{Exit, Failure};
use crate::input::gone::Gone;
use rpd_shard::record::wire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What rank 0 found, or why it could not, told to all.
pub(crate) fn from_rank_0<T: Serialize + DeserializeOwned>(
    comm: &impl Comm,
    find: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut failure = None;
    let mut message = Vec::new();
    if comm.rank() == 0 {
        let result = find().map_err(|error| {
            let exit = error.exit() as u8;
            failure = Some(error);
            exit
        });
        message = wire::encode(&result);
    }
    let all = comm.all_gather(message);
    let told: Result<T, u8> = wire::decode_message(&all[0]).map_err(Failure::message)?;
    told.map_err(|exit| match failure {
        Some(failure) => Failure::Together(Box::new(failure)),
        None => Failure::ToldByRank0(exit_of(exit)),
    })
}

fn exit_of(code: u8) -> Exit {
    let all = [Exit::Usage, Exit::Incomplete, Exit::Input, Exit::Output];
    all.into_iter().find(|e| *e as u8 == code).unwrap_or(Exit::Internal)
}

/// What a rank has to say at the end of a phase.
#[derive(Serialize, Deserialize)]
enum Told {
    Done,
    Gone(Vec<Gone>),
    Failed(u8, String),
}

/// What one rank failed with, all end with in good order. If nothing but inputs failed them, all learn which,
/// as [`Failure::Anew`].
pub(crate) fn settle<T>(comm: &impl Comm, result: Result<T, Failure>) -> Result<T, Failure> {
    let told = match &result {
        Ok(_) => Told::Done,
        Err(Failure::Gone(gone)) => Told::Gone(gone.clone()),
        Err(failure) => Told::Failed(failure.exit() as u8, failure.to_string()),
    };
    let mut all_gone = Vec::new();
    let mut failed = None;
    for (rank, message) in comm.all_gather(wire::encode(&told)).iter().enumerate() {
        match wire::decode_message(message).map_err(Failure::message)? {
            Told::Done => {}
            Told::Gone(gone) => all_gone.extend(gone.into_iter().map(|gone| Gone { rank, ..gone })),
            Told::Failed(exit, text) => failed = failed.or(Some((exit, text))),
        }
    }
    match failed {
        Some((exit, text)) if comm.rank() == 0 => {
            Err(Failure::Together(Box::new(Failure::Told(exit_of(exit), text))))
        }
        Some((exit, _)) => Err(Failure::ToldByRank0(exit_of(exit))),
        None if all_gone.is_empty() => result,
        None => Err(Failure::Anew(all_gone)),
    }
}

/// A failure that all ranks found alike is told once.
pub(crate) fn together(comm: &impl Comm, failure: Failure) -> Failure {
    match comm.rank() {
        0 => Failure::Together(Box::new(failure)),
        _ => Failure::ToldByRank0(failure.exit()),
    }
}
