//! Identity of an agent for other agents: number, clock domain and addresses. Text in the file of the root,
//! bytes in packets.

use super::interfaces::{MAX_ADDRESSES, is_global};
use rpd_shard::record::ClockDomain;
use std::net::{IpAddr, SocketAddr};

/// Maximum length of a boot id. The kernel's ids have 36 bytes.
const MAX_BOOT_ID: usize = 64;
/// Codes of the address families: their lengths in bytes.
const IPV4: u8 = 4;
const IPV6: u8 = 16;

/// Random number of an agent. A later agent on the same node has another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct AgentId(pub(super) u64);

/// An agent, its clock domain, and the addresses at which it replies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AgentCard {
    pub(super) agent: AgentId,
    pub(super) domain: ClockDomain,
    pub(super) addresses: Vec<SocketAddr>,
}

impl AgentCard {
    /// Whether other agents accept the card: the boot id is short and plain, and packets can be sent to every
    /// address.
    pub(super) fn is_sound(&self) -> bool {
        let boot_id = &self.domain.boot_id;
        boot_id.len() <= MAX_BOOT_ID
            && !boot_id.contains(char::is_control)
            && self.addresses.len() <= MAX_ADDRESSES
            && self.addresses.iter().all(|address| is_global(address.ip()) && address.port() != 0)
    }

    /// Returns the lines of the card, without an end mark.
    pub(super) fn text(&self) -> String {
        let ClockDomain { boot_id, time_namespace } = &self.domain;
        let mut text = format!("agent {:016x}\nboot {boot_id}\nnamespace {time_namespace}\n", self.agent.0);
        self.addresses.iter().for_each(|address| text.push_str(&format!("address {address}\n")));
        text
    }

    /// Reads the lines of [`AgentCard::text`] up to `end`; `None` if they are incomplete or invalid.
    pub(super) fn parse<'a>(mut lines: impl Iterator<Item = &'a str>, end: &str) -> Option<AgentCard> {
        let agent = AgentId(u64::from_str_radix(lines.next()?.strip_prefix("agent ")?, 16).ok()?);
        let boot_id = lines.next()?.strip_prefix("boot ")?.to_owned();
        let time_namespace = lines.next()?.strip_prefix("namespace ")?.parse().ok()?;
        let mut addresses = Vec::new();
        for line in lines {
            if line == end {
                let card = AgentCard { agent, domain: ClockDomain { boot_id, time_namespace }, addresses };
                return Some(card).filter(AgentCard::is_sound);
            }
            if addresses.len() >= MAX_ADDRESSES {
                return None;
            }
            addresses.push(line.strip_prefix("address ")?.parse().ok()?);
        }
        None
    }

    /// Appends the bytes of the card, which must be valid.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.agent.0.to_le_bytes());
        bytes.extend(self.domain.time_namespace.to_le_bytes());
        bytes.push(self.domain.boot_id.len() as u8);
        bytes.extend(self.domain.boot_id.as_bytes());
        bytes.push(self.addresses.len() as u8);
        for address in &self.addresses {
            let (family, octets) = match address.ip() {
                IpAddr::V4(ip) => (IPV4, ip.octets().to_vec()),
                IpAddr::V6(ip) => (IPV6, ip.octets().to_vec()),
            };
            bytes.push(family);
            bytes.extend(octets);
            bytes.extend(address.port().to_le_bytes());
        }
    }

    /// Reads a card from the start of `bytes` and returns the rest; `None` if it is incomplete or invalid.
    pub(super) fn read(bytes: &[u8]) -> Option<(AgentCard, &[u8])> {
        let (agent, bytes) = bytes.split_first_chunk()?;
        let (time_namespace, bytes) = bytes.split_first_chunk()?;
        let (length, bytes) = bytes.split_first()?;
        let (boot_id, bytes) = bytes.split_at_checked((*length).into())?;
        let (count, mut bytes) = bytes.split_first()?;
        if usize::from(*count) > MAX_ADDRESSES {
            return None;
        }
        let mut addresses = Vec::new();
        for _ in 0..*count {
            let (ip, rest) = read_ip(bytes)?;
            let (port, rest) = rest.split_first_chunk()?;
            addresses.push(SocketAddr::new(ip, u16::from_le_bytes(*port)));
            bytes = rest;
        }
        let domain = ClockDomain {
            boot_id: std::str::from_utf8(boot_id).ok()?.to_owned(),
            time_namespace: u64::from_le_bytes(*time_namespace),
        };
        let card = AgentCard { agent: AgentId(u64::from_le_bytes(*agent)), domain, addresses };
        card.is_sound().then_some((card, bytes))
    }
}

fn read_ip(bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (family, bytes) = bytes.split_first()?;
    match *family {
        IPV4 => bytes.split_first_chunk::<4>().map(|(ip, rest)| (IpAddr::from(*ip), rest)),
        IPV6 => bytes.split_first_chunk::<16>().map(|(ip, rest)| (IpAddr::from(*ip), rest)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::clock_probe) fn card(agent: u64) -> AgentCard {
        let addresses = vec!["10.0.0.1:4000".parse().unwrap(), "[fd00::1]:4001".parse().unwrap()];
        let domain = ClockDomain { boot_id: "3ab1".to_owned(), time_namespace: agent };
        AgentCard { agent: AgentId(agent), domain, addresses }
    }

    fn parse(text: &str) -> Option<AgentCard> {
        AgentCard::parse(text.lines(), "end")
    }

    #[test]
    fn a_card_is_read_as_it_was_written_and_not_in_part() {
        for sound in [card(7), card(u64::MAX), AgentCard { addresses: Vec::new(), ..card(1) }] {
            let text = sound.text() + "end\n";
            assert_eq!(parse(&text), Some(sound.clone()));
            for length in 0..text.len() - 1 {
                assert_eq!(parse(&text[..length]), None, "{length}");
            }
            let mut bytes = Vec::new();
            sound.append_to(&mut bytes);
            for length in 0..bytes.len() {
                assert_eq!(AgentCard::read(&bytes[..length]), None, "{length}");
            }
            bytes.push(9);
            assert_eq!(AgentCard::read(&bytes), Some((sound, &[9][..])));
        }
    }

    #[test]
    fn cards_that_make_no_sense_are_none() {
        let text = card(7).text() + "end\n";
        for bad in ["0.0.0.0:7", "224.0.0.1:7", "10.0.0.1:0", "255.255.255.255:9", "[fe80::1]:7", "x"] {
            assert_eq!(parse(&text.replace("10.0.0.1:4000", bad)), None, "{bad}");
        }
        let address = "address 10.0.0.1:1\n";
        assert_eq!(parse(&text.replace("end", &(address.repeat(MAX_ADDRESSES) + "end"))), None);
        assert_eq!(parse(&text.replace("3ab1", &"b".repeat(MAX_BOOT_ID + 1))), None);
        let many = AgentCard { addresses: vec!["10.0.0.1:1".parse().unwrap(); MAX_ADDRESSES + 1], ..card(7) };
        for bad in [many, AgentCard { addresses: vec!["224.0.0.1:7".parse().unwrap()], ..card(7) }] {
            let mut bytes = Vec::new();
            bad.append_to(&mut bytes);
            assert_eq!(AgentCard::read(&bytes), None);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((card, _)) = AgentCard::read(&bytes) {
                prop_assert!(card.is_sound());
            }
        }
    }
}
