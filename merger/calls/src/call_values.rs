//! The values of a call or sample, which a database has as texts.

use rpd_graph::{ANY, MessageEnd};
use rpd_shard::model::Value;

/// No communicator.
pub(crate) const NO_COMMUNICATOR: u32 = u32::MAX;

/// The args of an event, as far as they matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallValues {
    /// Index of the communicator among those of the unit, or [`NO_COMMUNICATOR`].
    pub(crate) communicator: u32,
    /// Rank of the other process, or [`ANY`].
    pub(crate) peer: i32,
    /// Tag, or [`ANY`].
    pub(crate) tag: i32,
    /// Rank of the root; -1 if there is none.
    pub(crate) root: i32,
    /// Number on the communicator, from 1; 0 if there is none.
    pub(crate) seq: u64,
    /// Bytes, or [`MessageEnd::UNKNOWN_BYTES`].
    pub(crate) bytes: u32,
    /// What `MPI_Sendrecv` receives: source, tag and room, as in `peer`, `tag` and `bytes`; `None` if that is not
    /// recorded.
    pub(crate) received: Option<(i32, i32, u32)>,
    /// Stack id of the call that created a persistent request, or of the matched probe whose message the call
    /// receives; 0 if there is none.
    pub(crate) other_stack: i64,
    /// Size of a communicator, and rank of the process in it; of an intercommunicator those of its side.
    pub(crate) size: Option<u32>,
    pub(crate) rank: Option<u32>,
    /// Side of an intercommunicator: 0 or 1.
    pub(crate) side: Option<u8>,
}

impl Default for CallValues {
    fn default() -> CallValues {
        CallValues {
            communicator: NO_COMMUNICATOR,
            peer: ANY,
            tag: ANY,
            root: -1,
            seq: 0,
            bytes: MessageEnd::UNKNOWN_BYTES,
            received: None,
            other_stack: 0,
            size: None,
            rank: None,
            side: None,
        }
    }
}

/// Stores the value of an arg. Other args, and texts that are no number, change nothing.
#[inline]
pub(crate) fn read_value(values: &mut CallValues, name: &[u8], value: Value<'_>) {
    let number = || match value {
        Value::Int(number) => Some(number),
        Value::Text(text) => parse_integer(text),
        _ => None,
    };
    let bytes = |number: Option<i64>| {
        let known = number.and_then(|bytes| u64::try_from(bytes).ok());
        known.map_or(MessageEnd::UNKNOWN_BYTES, |bytes| bytes.min(u64::from(MessageEnd::MAX_BYTES)) as u32)
    };
    const NOTHING: (i32, i32, u32) = (ANY, ANY, MessageEnd::UNKNOWN_BYTES);
    match name {
        b"peer" => values.peer = small(number()).unwrap_or(ANY),
        b"tag" => values.tag = small(number()).unwrap_or(ANY),
        b"root" => values.root = small(number()).unwrap_or(-1),
        b"seq" => values.seq = number().and_then(|seq| u64::try_from(seq).ok()).unwrap_or(0),
        b"bytes" => values.bytes = bytes(number()),
        b"source" => values.received.get_or_insert(NOTHING).0 = small(number()).unwrap_or(ANY),
        b"recvtag" => values.received.get_or_insert(NOTHING).1 = small(number()).unwrap_or(ANY),
        b"recvbytes" => values.received.get_or_insert(NOTHING).2 = bytes(number()),
        b"size" => values.size = number().and_then(|size| u32::try_from(size).ok()),
        b"rank" => values.rank = number().and_then(|rank| u32::try_from(rank).ok()),
        b"side" => values.side = number().and_then(|side| u8::try_from(side).ok()).filter(|side| *side < 2),
        b"init_stack_id" | b"probe_stack_id" => values.other_stack = number().unwrap_or(0),
        _ => {}
    }
}

fn small(number: Option<i64>) -> Option<i32> {
    number.and_then(|number| i32::try_from(number).ok()).filter(|number| *number != ANY)
}

/// Reads a decimal number; `None` if the text is something else or does not fit.
fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let add = |sum: i64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_sub(i64::from(digit))
    };
    // Negative, because the least number has no positive counterpart.
    let negated = digits.iter().try_fold(0, add)?;
    if is_negative { Some(negated) } else { negated.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_texts() {
        let of = |text: &str| parse_integer(text.as_bytes());
        assert_eq!([of("0"), of("-1"), of("120"), of("007")], [Some(0), Some(-1), Some(120), Some(7)]);
        assert_eq!(of("9223372036854775807"), Some(i64::MAX));
        assert_eq!(of("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(["9223372036854775808", "", "-", "1.0", " 1", "0x1", "1e3"].map(of), [None; 7]);
    }

    #[test]
    fn values_that_do_not_fit_are_not_known() {
        let mut values = CallValues::default();
        for (name, text) in
            [("peer", "4294967296"), ("bytes", "-1"), ("tag", "x"), ("root", "3"), ("size", "4")]
        {
            read_value(&mut values, name.as_bytes(), Value::Text(text.as_bytes()));
        }
        assert_eq!(values, CallValues { root: 3, size: Some(4), ..CallValues::default() });
    }
}
