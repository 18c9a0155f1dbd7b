//! Agreement of all ranks on results, failures, vanished inputs and counts.

use crate::Comm;
use rpd_console::{Exit, Failure, VanishedInput};
use rpd_shard::record::wire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Computes a result on rank 0 and sends it, or the exit code of the failure, to all ranks.
///
/// # Errors
/// If rank 0 fails: with its failure there, and without a message on the other ranks.
pub fn broadcast_result<T: Serialize + DeserializeOwned>(
    comm: &(impl Comm + ?Sized),
    compute: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut failure = None;
    let mut message = Vec::new();
    if comm.rank() == 0 {
        let result = compute().map_err(|error| {
            let exit = error.exit() as u8;
            failure = Some(error);
            exit
        });
        message = wire::encode(&result);
    }
    let all = comm.all_gather(message);
    let result: Result<T, u8> = wire::decode_message(&all[0]).map_err(Failure::damaged_message)?;
    result.map_err(|exit| match failure {
        Some(failure) => failure.ending_all_ranks(),
        None => Failure::printed_by_rank_0(exit_of(exit)),
    })
}

fn exit_of(code: u8) -> Exit {
    let all = [Exit::Usage, Exit::Incomplete, Exit::Input, Exit::Output];
    all.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Internal)
}

/// Result of a phase on one rank.
#[derive(Serialize, Deserialize)]
enum PhaseResult {
    Ok,
    InputsVanished(Vec<VanishedInput>),
    Failed(u8, String),
}

/// Exchanges the results of a phase. If any rank failed, every rank returns a failure. If inputs vanished and
/// nothing else failed, every rank returns the list of these inputs.
///
/// # Errors
/// If any rank failed. Rank 0 gets the message of the first one.
pub fn agree_on_result<T>(comm: &(impl Comm + ?Sized), result: Result<T, Failure>) -> Result<T, Failure> {
    let (result, of_this_rank) = match result {
        Ok(value) => (Some(value), PhaseResult::Ok),
        Err(failure) => match failure.into_vanished_inputs() {
            Ok(inputs) => (None, PhaseResult::InputsVanished(inputs)),
            Err(failure) => (None, PhaseResult::Failed(failure.exit() as u8, failure.to_string())),
        },
    };
    let mut all_vanished = Vec::new();
    let mut failed = None;
    for (rank, theirs) in all_gather_values(comm, &of_this_rank)?.into_iter().enumerate() {
        match theirs {
            PhaseResult::Ok => {}
            PhaseResult::InputsVanished(inputs) => {
                all_vanished.extend(inputs.into_iter().map(|input| VanishedInput { rank, ..input }));
            }
            PhaseResult::Failed(exit, message) => failed = failed.or(Some((exit, message))),
        }
    }
    match (failed, result) {
        (Some((exit, message)), _) if comm.rank() == 0 => Err(Failure::new(exit_of(exit), message).shared()),
        (Some((exit, _)), _) => Err(Failure::printed_by_rank_0(exit_of(exit))),
        (None, Some(value)) if all_vanished.is_empty() => Ok(value),
        (None, _) => Err(Failure::inputs_vanished(all_vanished).shared()),
    }
}

/// Converts a failure that every rank found independently into a failure of all ranks, which rank 0 prints.
pub fn shared_failure(comm: &(impl Comm + ?Sized), failure: Failure) -> Failure {
    match comm.rank() {
        0 => failure.ending_all_ranks(),
        _ => Failure::printed_by_rank_0(failure.exit()),
    }
}

/// Sends a value to every rank and returns those of all ranks, by rank.
///
/// # Errors
/// If a message is damaged.
pub fn all_gather_values<T: Serialize + DeserializeOwned>(
    comm: &(impl Comm + ?Sized),
    value: &T,
) -> Result<Vec<T>, Failure> {
    comm.all_gather(wire::encode(value)).into_iter().map(decode).collect()
}

/// Sends a value to rank 0. Returns those of all ranks there, by rank, and nothing on other ranks.
///
/// # Errors
/// If a message is damaged.
pub fn gather_values<T: Serialize + DeserializeOwned>(
    comm: &(impl Comm + ?Sized),
    value: T,
) -> Result<Vec<T>, Failure> {
    let mut outgoing = vec![Vec::new(); comm.size()];
    if comm.rank() > 0 {
        outgoing[0] = wire::encode(&value);
        drop(value);
        comm.all_to_all(outgoing);
        return Ok(Vec::new());
    }
    let others = comm.all_to_all(outgoing).into_iter().skip(1).map(decode);
    std::iter::once(Ok(value)).chain(others).collect()
}

/// Sends `outgoing[r]` to rank `r` and returns the items that all ranks sent to this one, by rank.
///
/// # Errors
/// If a message is damaged.
pub fn exchange_values<T: Serialize + DeserializeOwned>(
    comm: &(impl Comm + ?Sized),
    outgoing: Vec<Vec<T>>,
) -> Result<Vec<T>, Failure> {
    if comm.size() == 1 {
        return Ok(outgoing.into_iter().next().unwrap_or_default());
    }
    let outgoing = outgoing.into_iter().map(|items| wire::encode(&items)).collect();
    let mut incoming = Vec::new();
    for message in comm.all_to_all(outgoing) {
        incoming.extend(decode::<Vec<T>>(message)?);
    }
    Ok(incoming)
}

/// Decodes a message of any length: ranks of one program trust each other.
fn decode<T: DeserializeOwned>(message: Vec<u8>) -> Result<T, Failure> {
    wire::decode_unlimited(&message).map_err(Failure::damaged_message)
}

/// Sends numbers to every rank and returns those of each rank, by rank. All ranks must send the same number of
/// them.
///
/// # Errors
/// If a rank sent a different number of them.
pub fn all_gather_counts(comm: &(impl Comm + ?Sized), mine: &[u64]) -> Result<Vec<Vec<u64>>, Failure> {
    let bytes = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = comm.all_gather(bytes);
    let numbers =
        |bytes: &Vec<u8>| bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    match all.iter().all(|bytes| bytes.len() == mine.len() * 8) {
        true => Ok(all.iter().map(numbers).collect()),
        false => Err(Failure::damaged_message("numbers of different length")),
    }
}
