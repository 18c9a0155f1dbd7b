//! Encoding of side records in shards, of messages between merge ranks, and of calls in their files. No other file uses
//! bincode.
//!
//! bincode 2.0.1, standard configuration: little endian, varint integers. Every decode is bounded, by a limit or by its caller.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum bytes that one record of a shard may allocate.
const RECORD_LIMIT: usize = 64 << 20;
/// Maximum bytes that one message between merge ranks may allocate. The content is trusted, but a message may
/// combine data of all ranks.
const MESSAGE_LIMIT: usize = 1 << 30;

/// Error of decoding a record.
#[derive(Debug, thiserror::Error)]
#[error("record cannot be decoded: {0}")]
pub struct WireError(String);

/// Encodes a value.
///
/// # Panics
/// Never for the types of this workspace: they have no maps of unknown length and no unsized sequences.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    match bincode::serde::encode_to_vec(value, bincode::config::standard()) {
        Ok(bytes) => bytes,
        Err(error) => unreachable!("record cannot be encoded: {error}"),
    }
}

/// Decodes a record of a shard, which must fill `bytes` exactly.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    decode_within::<T, RECORD_LIMIT>(bytes)
}

/// Decodes a message of another merge rank, which must fill `bytes` exactly.
pub fn decode_message<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    decode_within::<T, MESSAGE_LIMIT>(bytes)
}

/// Decodes a value, which must fill `bytes` exactly. The caller bounds them: a decoded list reserves at most 1 MiB for
/// elements that are not there.
pub fn decode_unlimited<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    whole(bincode::serde::decode_from_slice(bytes, bincode::config::standard()), bytes.len())
}

fn decode_within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, WireError> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    whole(bincode::serde::decode_from_slice(bytes, config), bytes.len())
}

/// Returns the decoded value, if it was all there was.
fn whole<T>(decoded: Result<(T, usize), bincode::error::DecodeError>, bytes: usize) -> Result<T, WireError> {
    match decoded {
        Ok((value, used)) if used == bytes => Ok(value),
        Ok((_, used)) => Err(WireError(format!("{} bytes left over", bytes - used))),
        Err(error) => Err(WireError(error.to_string())),
    }
}
