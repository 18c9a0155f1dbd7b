//! The sockets of an agent: one for each address, so that what it sends has an address that it receives at.

use super::burst::Route;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socket_with};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// Ports that anyone may bind.
const LOWEST_PORT: u16 = 1024;

/// Ports to bind, as `--probe-ports 40000-40100` names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbePorts {
    first: u16,
    last: u16,
}

/// Text that names no ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} are no ports: write the first and the last of 1024 to 65535, as 40000-40100")]
pub struct ProbePortsError(String);

impl FromStr for ProbePorts {
    type Err = ProbePortsError;

    fn from_str(text: &str) -> Result<ProbePorts, ProbePortsError> {
        let error = || ProbePortsError(text.chars().take(100).collect());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port >= LOWEST_PORT);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(ProbePorts { first, last }),
            _ => Err(error()),
        }
    }
}

impl std::fmt::Display for ProbePorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Why there is no socket at an address.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindError {
    /// Others have all ports of the range.
    #[error(
        "no port of {ports} is free on {address}; give --probe-ports a range with a port for each agent of this node"
    )]
    Taken {
        /// What was chosen.
        ports: ProbePorts,
        /// Where.
        address: IpAddr,
    },
    /// The system does not let us.
    #[error("no socket can be had at {address}: {source}")]
    Io {
        /// Where.
        address: IpAddr,
        /// What it says.
        source: io::Error,
    },
    /// There is no address.
    #[error("there is no address to bind")]
    NoAddress,
}

/// All sockets of an agent.
#[derive(Debug)]
pub(super) struct Sockets(Vec<(UdpSocket, SocketAddr)>);

impl Sockets {
    /// Binds a port at each address that has one free. `random` says where in the range to begin. Fails where none
    /// has, with what is wrong at the first.
    pub(super) fn bind(
        addresses: &[IpAddr],
        ports: Option<ProbePorts>,
        random: u64,
    ) -> Result<Sockets, BindError> {
        let mut sockets = Vec::new();
        let mut failure = None;
        for address in addresses {
            match bind_one(*address, ports, random) {
                Ok(bound) => sockets.push(bound),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        if sockets.is_empty() { Err(failure.unwrap_or(BindError::NoAddress)) } else { Ok(Sockets(sockets)) }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|(_, address)| *address).collect()
    }

    /// All of them, to wait for.
    pub(super) fn all(&self) -> impl Iterator<Item = &UdpSocket> {
        self.0.iter().map(|(socket, _)| socket)
    }

    pub(super) fn get(&self, number: usize) -> Option<&UdpSocket> {
        self.0.get(number).map(|(socket, _)| socket)
    }

    /// The way to an address: through the socket whose own address the kernel would take for it.
    pub(super) fn route(&self, to: SocketAddr) -> Option<Route> {
        let source = source_for(to).ok()?;
        let socket = self.0.iter().position(|(_, own)| own.ip() == source)?;
        Some(Route { socket, to })
    }

    /// Sends a packet. What cannot be sent is lost like one that is lost on the way.
    pub(super) fn send(&self, bytes: &[u8], route: Route) -> bool {
        self.get(route.socket).is_some_and(|socket| socket.send_to(bytes, route.to).is_ok())
    }
}

fn bind_one(
    address: IpAddr,
    ports: Option<ProbePorts>,
    random: u64,
) -> Result<(UdpSocket, SocketAddr), BindError> {
    let bound = match ports {
        None => UdpSocket::bind((address, 0)),
        Some(ProbePorts { first, last }) => {
            let count = u64::from(last - first) + 1;
            let port = |i: u64| first + ((random % count + i) % count) as u16;
            let mut bound = Err(io::ErrorKind::AddrInUse.into());
            for i in 0..count {
                bound = UdpSocket::bind((address, port(i)));
                if !matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                    break;
                }
            }
            bound
        }
    };
    let ready = bound.and_then(|socket| {
        socket.set_nonblocking(true)?;
        let own = socket.local_addr()?;
        Ok((socket, own))
    });
    ready.map_err(|source| match ports {
        Some(ports) if source.kind() == io::ErrorKind::AddrInUse => BindError::Taken { ports, address },
        _ => BindError::Io { address, source },
    })
}

/// The address that the kernel would send from. A datagram socket that is connected sends nothing.
fn source_for(to: SocketAddr) -> io::Result<IpAddr> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &to)?;
    Ok(SocketAddr::try_from(getsockname(&socket)?)?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_understood() {
        for (given, shown) in
            [("40000-40100", "40000-40100"), ("1024", "1024-1024"), (" 2000 - 65535", "2000-65535")]
        {
            assert_eq!(given.parse::<ProbePorts>().unwrap().to_string(), shown);
        }
        for nonsense in ["", "80", "1-2000", "3000-2000", "x", "2000-70000", "2000-", "-2000"] {
            assert!(nonsense.parse::<ProbePorts>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_free_port_of_the_range_is_taken_until_there_is_none() {
        let here = [IpAddr::from([127, 0, 0, 1])];
        let taken: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let port = taken[0].local_addr().unwrap().port();
        let full = ProbePorts { first: port, last: port };
        let error = Sockets::bind(&here, Some(full), 7).unwrap_err().to_string();
        let words = format!("no port of {port}-{port} is free on 127.0.0.1; give --probe-ports a range");
        assert!(error.starts_with(&words), "{error}");
        let elsewhere = Sockets::bind(&[IpAddr::from([192, 0, 2, 1])], None, 7).unwrap_err().to_string();
        assert!(elsewhere.starts_with("no socket can be had at 192.0.2.1: "), "{elsewhere}");
        let wide = ProbePorts { first: port.saturating_sub(20).max(LOWEST_PORT), last: port };
        let bound = Sockets::bind(&here, Some(wide), u64::MAX).unwrap().addresses();
        assert!((wide.first..wide.last).contains(&bound[0].port()), "{bound:?}");
    }

    #[test]
    fn a_way_begins_at_the_address_that_the_kernel_takes() {
        let sockets = Sockets::bind(&[IpAddr::from([127, 0, 0, 1])], None, 0).unwrap();
        let to = sockets.addresses()[0];
        assert_eq!(sockets.route(to), Some(Route { socket: 0, to }));
        assert_eq!(sockets.route("[::1]:9".parse().unwrap()), None, "no socket of ours has that");
    }
}
