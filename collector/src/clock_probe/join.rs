//! The packets by which an agent joins the tree: its request to the root, and the place in the reply.
//!
//! Both have 640 bytes, so that no reply is longer than its request. Little endian:
//!
//! ```text
//!  0  4  RPDJ             32   4  place: number of the agent that joins
//!  4  1  version, 1       36   2  number of the first candidate that is requested, or that is in it
//!  5  1  kind             38   2  place: candidates in all
//!  6  2  zero             40   2  length of the cards in bytes
//!  8  8  sender           42   6  zero
//! 16  8  receiver         48 560  cards: of the agent that joins, or of candidates; zeros after them
//! 24  8  nonce           608  32  BLAKE3 of the bytes before, keyed with the secret of the run
//! ```

use super::card::{AgentCard, AgentId};
use super::packet::PacketKey;
use super::registry::AgentRegistry;

/// Length of every packet of this kind.
pub(super) const JOIN_BYTES: usize = 640;
const COVERED_BYTES: usize = 608;
const CARDS_OFFSET: usize = 48;
const MAGIC: [u8; 8] = *b"RPDJ\x01\0\0\0";
/// Position of the kind, which is zero in [`MAGIC`].
const KIND_OFFSET: usize = 5;
const JOIN: u8 = 1;
const PLACE: u8 = 2;

/// A request to join, or its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum JoinPacket {
    Join(JoinRequest),
    Place(TreePlace),
}

/// Requests a place in the tree from the root, or more candidates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct JoinRequest {
    /// The agent that joins.
    pub(super) card: AgentCard,
    /// The root.
    pub(super) to: AgentId,
    /// Random; the reply repeats it.
    pub(super) nonce: u64,
    /// Number of candidates that the agent has already.
    pub(super) first: u16,
}

/// The number of the agent that joins, and the agents that it probes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TreePlace {
    pub(super) from: AgentId,
    pub(super) to: AgentId,
    pub(super) nonce: u64,
    pub(super) number: u32,
    pub(super) first: u16,
    /// Total number of candidates.
    pub(super) total: u16,
    /// As many of the candidates from `first` on as fit into a packet: at least two.
    pub(super) candidates: Vec<AgentCard>,
}

impl TreePlace {
    /// Makes the reply to a request; `None` if the registry has no number for the agent.
    pub(super) fn reply_to(join: JoinRequest, registry: &mut AgentRegistry) -> Option<TreePlace> {
        let JoinRequest { card, to: from, nonce, first } = join;
        let to = card.agent;
        let number = registry.join(card)?;
        let all = registry.candidates(number);
        let total = u16::try_from(all.len()).ok()?;
        let (mut length, mut candidates) = (0, Vec::new());
        for card in all.into_iter().skip(first.into()) {
            let mut bytes = Vec::new();
            card.append_to(&mut bytes);
            length += bytes.len();
            if length > COVERED_BYTES - CARDS_OFFSET {
                break;
            }
            candidates.push(card.clone());
        }
        Some(TreePlace { from, to, nonce, number, first, total, candidates })
    }
}

impl JoinPacket {
    /// Returns the bytes of the packet; `None` if its cards are too long.
    pub(super) fn seal(&self, key: &PacketKey) -> Option<[u8; JOIN_BYTES]> {
        let mut cards = Vec::new();
        let (kind, from, to, nonce, number, first, total) = match self {
            JoinPacket::Join(join) => {
                join.card.append_to(&mut cards);
                (JOIN, join.card.agent, join.to, join.nonce, 0, join.first, 0)
            }
            JoinPacket::Place(place) => {
                place.candidates.iter().for_each(|card| card.append_to(&mut cards));
                (PLACE, place.from, place.to, place.nonce, place.number, place.first, place.total)
            }
        };
        let mut bytes = Vec::with_capacity(JOIN_BYTES);
        bytes.extend(MAGIC);
        bytes[KIND_OFFSET] = kind;
        [from.0, to.0, nonce].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        bytes.extend(number.to_le_bytes());
        [first, total, cards.len() as u16].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        bytes.resize(CARDS_OFFSET, 0);
        bytes.extend(cards);
        if bytes.len() > COVERED_BYTES {
            return None;
        }
        bytes.resize(COVERED_BYTES, 0);
        let code = key.code(&bytes);
        bytes.extend(code.as_bytes());
        bytes.try_into().ok()
    }

    /// Reads a packet; `None` unless its sender knows the secret of the run and every field is valid.
    pub(super) fn open(key: &PacketKey, bytes: &[u8]) -> Option<JoinPacket> {
        let bytes: &[u8; JOIN_BYTES] = bytes.try_into().ok()?;
        let (covered, code) = bytes.split_at(COVERED_BYTES);
        let (mut head, rest): ([u8; 8], &[u8]) = take(covered)?;
        let kind = std::mem::take(&mut head[KIND_OFFSET]);
        if head != MAGIC || key.code(covered) != blake3::Hash::from_bytes(code.try_into().ok()?) {
            return None;
        }
        let (from, rest) = take(rest)?;
        let (to, rest) = take(rest)?;
        let (nonce, rest) = take(rest)?;
        let (number, rest) = take(rest)?;
        let (first, rest) = take(rest)?;
        let (total, rest) = take(rest)?;
        let (length, rest) = take(rest)?;
        let (zero, rest): ([u8; 6], &[u8]) = take(rest)?;
        let (mut cards, zeros) = rest.split_at_checked(u16::from_le_bytes(length).into())?;
        if zero != [0; 6] || zeros.iter().any(|byte| *byte != 0) {
            return None;
        }
        let mut candidates = Vec::new();
        while !cards.is_empty() {
            let (card, rest) = AgentCard::read(cards)?;
            candidates.push(card);
            cards = rest;
        }
        let (from, to) = (AgentId(u64::from_le_bytes(from)), AgentId(u64::from_le_bytes(to)));
        let (nonce, number) = (u64::from_le_bytes(nonce), u32::from_le_bytes(number));
        let (first, total) = (u16::from_le_bytes(first), u16::from_le_bytes(total));
        match kind {
            JOIN => {
                let card = candidates.pop().filter(|card| candidates.is_empty() && card.agent == from)?;
                Some(JoinPacket::Join(JoinRequest { card, to, nonce, first }))
            }
            PLACE if usize::from(first) + candidates.len() <= usize::from(total) => {
                Some(JoinPacket::Place(TreePlace { from, to, nonce, number, first, total, candidates }))
            }
            _ => None,
        }
    }
}

/// Splits the first field off.
fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    bytes.split_first_chunk().map(|(field, rest)| (*field, rest))
}

#[cfg(test)]
mod tests {
    use super::super::card::tests::card;
    use super::super::interfaces::MAX_ADDRESSES;
    use super::*;
    use proptest::prelude::*;

    fn key() -> PacketKey {
        PacketKey::new([7; 32])
    }

    /// The longest possible content.
    fn long(agent: u64) -> AgentCard {
        let mut card = card(agent);
        card.domain.boot_id = "b".repeat(64);
        card.addresses = vec!["[fd00::1]:4001".parse().unwrap(); MAX_ADDRESSES];
        card
    }

    fn join(agent: u64, first: u16) -> JoinRequest {
        JoinRequest { card: long(agent), to: AgentId(0), nonce: 77, first }
    }

    #[test]
    fn packets_are_read_as_they_were_sealed_and_with_no_other_key() {
        let mut registry = AgentRegistry::new(long(0));
        let place = TreePlace::reply_to(join(1, 0), &mut registry).unwrap();
        for packet in [JoinPacket::Join(join(1, 3)), JoinPacket::Place(place)] {
            let sealed = packet.seal(&key()).unwrap();
            assert_eq!(JoinPacket::open(&key(), &sealed), Some(packet));
            assert_eq!(JoinPacket::open(&PacketKey::new([8; 32]), &sealed), None);
            assert_eq!(JoinPacket::open(&key(), &sealed[1..]), None);
            for bit in 0..JOIN_BYTES * 8 {
                let mut flipped = sealed;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(JoinPacket::open(&key(), &flipped), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn the_longest_cards_of_all_ancestors_come_in_pages() {
        let mut registry = AgentRegistry::new(long(0));
        assert!((1..0x7fff).all(|agent| registry.join(long(agent)).is_some()));
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let place = TreePlace::reply_to(join(0x7fff, found.len() as u16), &mut registry).unwrap();
            let sealed = JoinPacket::Place(place).seal(&key()).unwrap();
            let Some(JoinPacket::Place(page)) = JoinPacket::open(&key(), &sealed) else { panic!() };
            assert_eq!((page.number, page.total, usize::from(page.first)), (0x7fff, 15, found.len()));
            pages += 1;
            found.extend(page.candidates);
            if found.len() == usize::from(page.total) {
                break;
            }
        }
        assert_eq!((pages, found[0].agent, found[14].agent), (8, AgentId(0x7ffe), AgentId(0)));
        let past = TreePlace::reply_to(join(0x7fff, u16::MAX), &mut registry).unwrap();
        assert_eq!(past.candidates, []);
    }

    #[test]
    fn a_request_for_another_agent_or_with_several_cards_is_none() {
        let seal = |packet: JoinPacket| packet.seal(&key()).unwrap();
        let reseal = |mut bytes: [u8; JOIN_BYTES]| {
            let code = key().code(&bytes[..COVERED_BYTES]);
            bytes[COVERED_BYTES..].copy_from_slice(code.as_bytes());
            JoinPacket::open(&key(), &bytes)
        };
        let request = seal(JoinPacket::Join(join(1, 0)));
        let with = |at: usize, byte: u8| {
            let mut bytes = request;
            bytes[at] = byte;
            reseal(bytes)
        };
        assert!(reseal(request).is_some());
        assert_eq!(with(8, 9), None, "sender and card differ");
        assert_eq!(with(KIND_OFFSET, 3), None, "an unknown kind");
        assert_eq!(with(40, 1), None, "half a card");
        assert_eq!(with(41, 255), None, "longer than the packet");
        assert_eq!(with(COVERED_BYTES - 1, 1), None, "something after the cards");
        let cards = vec![card(1), card(2)];
        let (from, to) = (AgentId(0), AgentId(1));
        let place = TreePlace { from, to, nonce: 1, number: 1, first: 0, total: 2, candidates: cards };
        let sealed = seal(JoinPacket::Place(place.clone()));
        let mut as_join = sealed;
        as_join[KIND_OFFSET] = JOIN;
        assert_eq!(reseal(as_join), None);
        let beyond = seal(JoinPacket::Place(TreePlace { first: 1, ..place }));
        assert_eq!(JoinPacket::open(&key(), &beyond), None, "more candidates than there are");
    }

    proptest! {
        #[test]
        fn garbage_with_the_right_key_is_read_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), COVERED_BYTES), kind in 1u8..3, length in 0u16..600,
        ) {
            let mut bytes = bytes;
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[KIND_OFFSET] = kind;
            bytes[40..42].copy_from_slice(&length.to_le_bytes());
            bytes[42..48].fill(0);
            let code = key().code(&bytes);
            bytes.extend(code.as_bytes());
            let _ = JoinPacket::open(&key(), &bytes);
        }
    }
}
