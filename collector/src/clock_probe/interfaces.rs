//! Finds the addresses of this node that other nodes can reach.

use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

/// Maximum number of addresses of one node.
pub(super) const MAX_ADDRESSES: usize = 8;
/// Maximum number of interfaces that an error lists.
const MAX_LISTED_INTERFACES: usize = 16;

/// The interface for probes, as `--probe-interface ib0` or `10.1.0.0/16` names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProbeInterface {
    /// By name.
    Name(String),
    /// By address, with the number of significant bits.
    Network(IpAddr, u8),
}

impl FromStr for ProbeInterface {
    type Err = String;

    fn from_str(text: &str) -> Result<ProbeInterface, String> {
        let text = text.trim();
        let error = || {
            let text: String = text.chars().take(100).collect();
            format!("{text:?} is not an interface; write its name, as ib0, or its network, as 10.1.0.0/16")
        };
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        if let Ok(address) = address.parse::<IpAddr>() {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.map_or(Ok(bits), str::parse).map_err(|_| error())?;
            return if prefix <= bits { Ok(ProbeInterface::Network(address, prefix)) } else { Err(error()) };
        }
        // Characters that the kernel allows in a name.
        let is_name = (1..=15).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_graphic() && !"/:".contains(c))
            && !text.starts_with('-')
            && ![".", ".."].contains(&text);
        if is_name { Ok(ProbeInterface::Name(text.to_owned())) } else { Err(error()) }
    }
}

impl std::fmt::Display for ProbeInterface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProbeInterface::Name(name) => f.write_str(name),
            ProbeInterface::Network(address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

impl ProbeInterface {
    fn has(&self, name: &str, address: IpAddr) -> bool {
        match self {
            ProbeInterface::Name(wanted) => wanted == name,
            ProbeInterface::Network(network, prefix) => same_network(*network, address, *prefix),
        }
    }
}

fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let (different, bits) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
        _ => return false,
    };
    different.checked_shr(bits - u32::from(prefix)).unwrap_or(0) == 0
}

/// Names the first interfaces and the next step.
fn listed(there: &[(String, IpAddr)]) -> String {
    let shown = there.iter().take(MAX_LISTED_INTERFACES).map(|(name, address)| format!("{name} ({address})"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match there.len() {
        0 => ", nor of any other interface".to_owned(),
        1..=MAX_LISTED_INTERFACES => format!("; give --probe-interface one of {shown}"),
        _ => format!("; give --probe-interface one of {shown}, ..."),
    }
}

/// An address of this node.
struct NodeAddress {
    name: String,
    address: IpAddr,
    /// The interface has hardware: it is no bridge, tunnel or end of a container.
    is_device: bool,
}

/// Returns the addresses of interfaces that are up, in the order in which other agents try them: first those
/// with hardware, IPv4 before IPv6. Loopback is included only if it was chosen; link-local addresses never
/// are. Returns at least one.
pub(crate) fn addresses(chosen: Option<&ProbeInterface>) -> io::Result<Vec<IpAddr>> {
    let listed = if_addrs::get_if_addrs();
    let all = listed
        .map_err(|error| io::Error::other(format!("the network interfaces cannot be listed: {error}")))?;
    let up = all.into_iter().filter(if_addrs::Interface::is_oper_up);
    let found = up.map(|interface| NodeAddress {
        address: interface.ip(),
        is_device: Path::new("/sys/class/net").join(&interface.name).join("device").exists(),
        name: interface.name,
    });
    in_order(found.collect(), chosen)
}

fn in_order(mut found: Vec<NodeAddress>, chosen: Option<&ProbeInterface>) -> io::Result<Vec<IpAddr>> {
    found.retain(|found| is_global(found.address));
    let usable = found.iter().filter(|found| !found.address.is_loopback());
    let there: Vec<(String, IpAddr)> = usable.map(|found| (found.name.clone(), found.address)).collect();
    found.retain(|NodeAddress { name, address, .. }| {
        chosen.map_or(!address.is_loopback(), |chosen| chosen.has(name, *address))
    });
    found.sort_by_key(|found| (!found.is_device, found.address.is_ipv6()));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for NodeAddress { address, .. } in found {
        if !addresses.contains(&address) && addresses.len() < MAX_ADDRESSES {
            addresses.push(address);
        }
    }
    match chosen {
        _ if !addresses.is_empty() => Ok(addresses),
        None => Err(io::Error::other("no network interface is up")),
        Some(chosen) => {
            let listed = listed(&there);
            Err(io::Error::other(format!("no address of {chosen} is up on this node{listed}")))
        }
    }
}

/// Whether packets can be sent to an address without naming an interface.
pub(super) fn is_global(address: IpAddr) -> bool {
    let (unspecified, multicast) = (address.is_unspecified(), address.is_multicast());
    let special = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(unspecified || multicast || special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(chosen: Option<&str>) -> Vec<String> {
        let interfaces = [
            ("lo", "127.0.0.1", false),
            ("lo", "::1", false),
            ("docker0", "172.17.0.1", false),
            ("eth0", "fe80::1", true),
            ("eth0", "fd00::5", true),
            ("eth0", "10.0.3.5", true),
            ("eth1", "169.254.3.4", true),
            ("ib0", "10.1.3.5", true),
        ];
        let found = interfaces.iter().map(|(name, address, is_device)| NodeAddress {
            name: (*name).to_owned(),
            address: address.parse().unwrap(),
            is_device: *is_device,
        });
        let chosen = chosen.map(|text| text.parse().unwrap());
        match in_order(found.collect(), chosen.as_ref()) {
            Ok(addresses) => addresses.iter().map(IpAddr::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[test]
    fn addresses_that_others_can_reach_come_in_order() {
        assert_eq!(ordered(None), ["10.0.3.5", "10.1.3.5", "fd00::5", "172.17.0.1"]);
        assert_eq!(ordered(Some("ib0")), ["10.1.3.5"]);
        assert_eq!(ordered(Some("10.0.0.0/15")), ["10.0.3.5", "10.1.3.5"]);
        assert_eq!(ordered(Some("fd00::/16")), ["fd00::5"]);
        assert_eq!(ordered(Some("lo")), ["127.0.0.1", "::1"]);
        assert_eq!(ordered(Some("127.0.0.1")), ["127.0.0.1"]);
        // The interface has a link-local address.
        assert_eq!(
            ordered(Some("eth1")),
            ["no address of eth1 is up on this node; give --probe-interface one of \
                 docker0 (172.17.0.1), eth0 (fd00::5), eth0 (10.0.3.5), ib0 (10.1.3.5)"]
        );
        assert_eq!(ordered(Some("0.0.0.0/0")).len(), 4);
    }

    #[test]
    fn interfaces_are_understood() {
        for (given, shown) in [("ib0", "ib0"), (" 10.1.0.0/16", "10.1.0.0/16"), ("::1", "::1/128")] {
            assert_eq!(given.parse::<ProbeInterface>().unwrap().to_string(), shown);
        }
        for nonsense in
            ["", "10.0.0.0/33", "10.0.0.0/x", "::/129", "a b", "eth0/24", "-x", "a23456789012345x"]
        {
            assert!(nonsense.parse::<ProbeInterface>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let lo = ProbeInterface::Name("lo".to_owned());
        let addresses = addresses(Some(&lo)).unwrap();
        assert!(addresses.contains(&IpAddr::from([127, 0, 0, 1])), "{addresses:?}");
    }
}
