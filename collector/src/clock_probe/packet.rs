//! The packets of the agents, and their authentication.
//!
//! All but those of joining have 96 bytes: no reply is longer than its request, and both take the same time to make and to travel.
//! Little endian:
//!
//! ```text
//!  0  4  RPDP            24  4  number of the probe in its burst
//!  4  1  version, 2      28  4  how much earlier the kernel noted the request, ns (replies); 0: it did not
//!  5  1  kind            32  8  sender: number of the agent
//!  6  2  zero            40  8  receiver
//!  8  8  burst: when     48  8  when the request was received, ns (replies)
//! 16  8  burst: nonce    56  8  when this was sent, ns
//! 64 32  BLAKE3 of the bytes before, keyed with the secret of the run
//! ```

use crate::host::random::random_bytes;
use std::io;
use std::num::NonZeroU32;

/// Length of every packet.
pub(super) const PACKET_BYTES: usize = 96;
/// Number of authenticated bytes: one block of BLAKE3.
const COVERED_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"RPDP\x02\0\0\0";
/// Position of the kind, which is zero in [`MAGIC`].
const KIND_OFFSET: usize = 5;

/// Purpose of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum PacketKind {
    /// A probe request, from a child to its parent.
    Request = 1,
    /// The reply with the times.
    Reply = 2,
    /// The parent is about to leave: send the last requests.
    Closing = 3,
    /// The child sends no more requests. Its number is [`STAYS`] if the child continues without this parent.
    Goodbye = 4,
    /// The root leaves and offers its role to this child.
    Handover = 5,
    /// The child accepts the role of the root.
    Heir = 6,
}

const KINDS: [PacketKind; 6] = {
    use PacketKind::{Closing, Goodbye, Handover, Heir, Reply, Request};
    [Request, Reply, Closing, Goodbye, Handover, Heir]
};
/// Number in a goodbye of a child that continues; 0 if the child ends.
pub(super) const STAYS: u32 = 1;

/// Identifies a burst. Later bursts of a clock domain have a larger `began`, whichever agent sends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BurstId {
    /// `CLOCK_MONOTONIC_RAW` of the prober.
    pub(super) began: i64,
    /// Random number.
    pub(super) nonce: u64,
}

/// Receive time of a packet, ns of the clock of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ReceiveTime {
    /// Time that the program read after the receive.
    pub(super) program: i64,
    /// Time from the kernel's stamp to the program's reading, ns.
    pub(super) delay: Option<NonZeroU32>,
}

impl ReceiveTime {
    /// A time of the program without a stamp of the kernel.
    #[cfg(test)]
    pub(super) fn of_program(program: i64) -> ReceiveTime {
        ReceiveTime { program, delay: None }
    }

    /// Returns the kernel's time.
    pub(super) fn kernel(&self) -> Option<i64> {
        self.program.checked_sub(i64::from(self.delay?.get()))
    }
}

/// A packet. Times in ns of the sender's `CLOCK_MONOTONIC_RAW`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProbePacket {
    pub(super) kind: PacketKind,
    pub(super) burst: BurstId,
    pub(super) number: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) received: ReceiveTime,
    pub(super) sent: i64,
}

/// The secret of a run.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PacketKey([u8; 32]);

impl PacketKey {
    pub(super) const BYTES: usize = 32;

    #[cfg(test)]
    pub(super) fn new(secret: [u8; PacketKey::BYTES]) -> PacketKey {
        PacketKey(secret)
    }

    /// A new secret.
    pub(super) fn random() -> io::Result<PacketKey> {
        random_bytes().map(PacketKey)
    }

    /// Returns the key in hexadecimal digits, for the file of the root.
    pub(super) fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`PacketKey::to_hex`] wrote.
    pub(super) fn from_hex(text: &str) -> Option<PacketKey> {
        let is_plain =
            text.len() == 2 * PacketKey::BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digit = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let bytes: Option<Vec<u8>> =
            (0..PacketKey::BYTES).map(|i| digit(2 * i).filter(|_| is_plain)).collect();
        bytes?.try_into().ok().map(PacketKey)
    }

    /// Returns the bytes of a packet with its authentication code.
    pub(super) fn seal(&self, packet: &ProbePacket) -> [u8; PACKET_BYTES] {
        let mut bytes = [0; PACKET_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[KIND_OFFSET] = packet.kind as u8;
        bytes[8..16].copy_from_slice(&packet.burst.began.to_le_bytes());
        bytes[16..24].copy_from_slice(&packet.burst.nonce.to_le_bytes());
        bytes[24..28].copy_from_slice(&packet.number.to_le_bytes());
        let delay = packet.received.delay.map_or(0, NonZeroU32::get);
        bytes[28..32].copy_from_slice(&delay.to_le_bytes());
        bytes[32..40].copy_from_slice(&packet.from.to_le_bytes());
        bytes[40..48].copy_from_slice(&packet.to.to_le_bytes());
        bytes[48..56].copy_from_slice(&packet.received.program.to_le_bytes());
        bytes[56..64].copy_from_slice(&packet.sent.to_le_bytes());
        let code = self.code(&bytes[..COVERED_BYTES]);
        bytes[COVERED_BYTES..].copy_from_slice(code.as_bytes());
        bytes
    }

    /// Reads a packet; `None` unless its sender knows the secret.
    pub(super) fn open(&self, bytes: &[u8]) -> Option<ProbePacket> {
        let bytes: &[u8; PACKET_BYTES] = bytes.try_into().ok()?;
        let mut head: [u8; 8] = field(bytes, 0);
        let kind = std::mem::take(&mut head[KIND_OFFSET]);
        let kind = KINDS.into_iter().find(|known| *known as u8 == kind)?;
        let delay = NonZeroU32::new(u32::from_le_bytes(field(bytes, 28)));
        let plain = head == MAGIC && (kind == PacketKind::Reply || delay.is_none());
        // Compares in constant time.
        let authentic = plain
            && self.code(&bytes[..COVERED_BYTES]) == blake3::Hash::from_bytes(field(bytes, COVERED_BYTES));
        authentic.then(|| ProbePacket {
            kind,
            burst: BurstId {
                began: i64::from_le_bytes(field(bytes, 8)),
                nonce: u64::from_le_bytes(field(bytes, 16)),
            },
            number: u32::from_le_bytes(field(bytes, 24)),
            from: u64::from_le_bytes(field(bytes, 32)),
            to: u64::from_le_bytes(field(bytes, 40)),
            received: ReceiveTime { program: i64::from_le_bytes(field(bytes, 48)), delay },
            sent: i64::from_le_bytes(field(bytes, 56)),
        })
    }

    /// Returns the authentication code of some bytes.
    pub(super) fn code(&self, covered: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, covered)
    }
}

impl std::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Returns a field of a packet.
fn field<const N: usize>(bytes: &[u8; PACKET_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::clock_probe) fn packet(kind: PacketKind) -> ProbePacket {
        let burst = BurstId { began: -5, nonce: 77 };
        let delay = NonZeroU32::new(7_600).filter(|_| kind == PacketKind::Reply);
        ProbePacket {
            kind,
            burst,
            number: 199,
            from: 1,
            to: u64::MAX,
            received: ReceiveTime { program: i64::MIN, delay },
            sent: 1 << 60,
        }
    }

    #[test]
    fn a_packet_is_read_as_it_was_sealed_and_with_no_other_key() {
        let (key, other) = (PacketKey::new([7; 32]), PacketKey::new([8; 32]));
        for kind in KINDS {
            let sealed = key.seal(&packet(kind));
            assert_eq!(key.open(&sealed), Some(packet(kind)));
            assert_eq!(other.open(&sealed), None);
            assert_eq!(key.open(&sealed[..PACKET_BYTES - 1]), None);
            assert_eq!(key.open(&[sealed.as_slice(), &[0]].concat()), None);
        }
        assert_eq!(key.open(&[]), None);
        let program = ProbePacket { received: ReceiveTime::of_program(5), ..packet(PacketKind::Reply) };
        assert_eq!(key.open(&key.seal(&program)), Some(program));
        let nothing_was_received =
            ProbePacket { received: packet(PacketKind::Reply).received, ..packet(PacketKind::Request) };
        assert_eq!(key.open(&key.seal(&nothing_was_received)), None);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let key = PacketKey::new([7; 32]);
        let sealed = key.seal(&packet(PacketKind::Request));
        for bit in 0..PACKET_BYTES * 8 {
            let mut flipped = sealed;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&flipped), None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_packet(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(PacketKey::new([7; 32]).open(&bytes), None);
        }
    }
}
