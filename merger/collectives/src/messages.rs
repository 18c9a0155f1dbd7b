//! Exchange of values between merge ranks.

use rpd_comm::Comm;
use rpd_console::Failure;
use rpd_shard::record::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Sends a value to all merge ranks and returns those of all ranks, by rank.
pub(super) fn gather<T: DeserializeOwned>(
    comm: &impl Comm,
    mine: &impl Serialize,
) -> Result<Vec<T>, Failure> {
    comm.all_gather(wire::encode(mine)).into_iter().map(decode).collect()
}

/// Sends a value to rank 0. Returns those of all ranks there, by rank, and nothing on other ranks.
pub(super) fn gather_on_rank_0<T: Serialize + DeserializeOwned>(
    comm: &impl Comm,
    mine: T,
) -> Result<Vec<T>, Failure> {
    let mut outgoing = vec![Vec::new(); comm.size()];
    outgoing[0] = wire::encode(&mine);
    drop(mine);
    comm.all_to_all(outgoing).into_iter().filter(|_| comm.rank() == 0).map(decode).collect()
}

/// Sends `outgoing[r]` to merge rank `r` and returns the items that all ranks sent to this one, by rank.
pub(super) fn exchange<T: Serialize + DeserializeOwned>(
    comm: &impl Comm,
    outgoing: Vec<Vec<T>>,
) -> Result<Vec<T>, Failure> {
    let outgoing = outgoing.into_iter().map(|items| wire::encode(&items)).collect();
    let mut incoming = Vec::new();
    for message in comm.all_to_all(outgoing) {
        incoming.extend(decode::<Vec<T>>(message)?);
    }
    Ok(incoming)
}

fn decode<T: DeserializeOwned>(message: Vec<u8>) -> Result<T, Failure> {
    wire::decode_message(&message).map_err(Failure::message)
}
