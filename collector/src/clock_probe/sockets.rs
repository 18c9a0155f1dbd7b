//! The sockets of an agent: one per address, so that the source address of each packet can receive replies.

use super::burst::PeerRoute;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socket_with};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::str::FromStr;

/// Ports that any user may bind.
const MIN_PORT: u16 = 1024;

/// Ports to bind, as in `--probe-ports 40000-40100`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbePorts {
    first: u16,
    last: u16,
}

impl FromStr for ProbePorts {
    type Err = String;

    fn from_str(text: &str) -> Result<ProbePorts, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port >= MIN_PORT);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(ProbePorts { first, last }),
            _ => {
                let text: String = text.chars().take(100).collect();
                Err(format!(
                    "{text:?} is not a range of ports; write the first and the last port, from 1024 to 65535, as 40000-40100"
                ))
            }
        }
    }
}

impl std::fmt::Display for ProbePorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// All sockets of an agent.
#[derive(Debug)]
pub(super) struct ProbeSockets {
    bound: Vec<(UdpSocket, SocketAddr)>,
    stamp_error: Option<io::Error>,
}

/// A packet that was read into the caller's buffer.
#[derive(Debug)]
pub(super) struct ReceivedDatagram {
    pub(super) length: usize,
    pub(super) from: SocketAddr,
    /// `CLOCK_REALTIME` in ns at which the kernel stamped the packet.
    pub(super) stamp: Option<i64>,
}

impl ProbeSockets {
    /// Binds a free port at each address. `random` selects where in the range to begin.
    ///
    /// # Errors
    /// If no address has a free port: the error of the first address.
    pub(super) fn bind(
        addresses: &[IpAddr],
        ports: Option<ProbePorts>,
        random: u64,
    ) -> io::Result<ProbeSockets> {
        let mut sockets = Vec::new();
        let mut failure = None;
        for address in addresses {
            match bind_one(*address, ports, random) {
                Ok(bound) => sockets.push(bound),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        if sockets.is_empty() {
            return Err(io::Error::other(failure.unwrap_or("there is no address to bind".to_owned())));
        }
        // Enabled before the first packet, because the kernel does not stamp packets that are in the queue
        // already.
        let stamp_error = sockets.iter().find_map(|(socket, _)| enable_stamps(socket).err());
        Ok(ProbeSockets { bound: sockets, stamp_error })
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.bound.iter().map(|(_, address)| *address).collect()
    }

    /// Returns all sockets.
    pub(super) fn all(&self) -> impl Iterator<Item = &UdpSocket> {
        self.bound.iter().map(|(socket, _)| socket)
    }

    /// Returns why the kernel does not stamp packets.
    pub(super) fn stamp_error(&self) -> Option<&io::Error> {
        self.stamp_error.as_ref()
    }

    /// Acts as a kernel that does not stamp packets.
    #[cfg(test)]
    pub(super) fn without_stamps(self) -> ProbeSockets {
        ProbeSockets { stamp_error: Some(io::ErrorKind::Unsupported.into()), ..self }
    }

    /// Reads a packet from a socket, up to the length of the buffer. Does not block.
    pub(super) fn receive(&self, number: usize, bytes: &mut [u8]) -> io::Result<ReceivedDatagram> {
        let socket = self.get(number).ok_or(io::ErrorKind::NotFound)?;
        let (length, from, stamp) = receive::<SockaddrStorage>(socket, bytes)?;
        let from = from.as_ref().and_then(socket_address).ok_or(io::ErrorKind::InvalidData)?;
        Ok(ReceivedDatagram { length, from, stamp })
    }

    pub(super) fn get(&self, number: usize) -> Option<&UdpSocket> {
        self.bound.get(number).map(|(socket, _)| socket)
    }

    /// Returns the route to an address: the socket with the own address that the kernel would choose.
    pub(super) fn route(&self, to: SocketAddr) -> Option<PeerRoute> {
        let source = source_for(to).ok()?;
        let socket = self.bound.iter().position(|(_, own)| own.ip() == source)?;
        Some(PeerRoute { socket, to })
    }

    /// Sends a packet. A packet that cannot be sent counts as lost.
    pub(super) fn send(&self, bytes: &[u8], route: PeerRoute) -> bool {
        self.get(route.socket).is_some_and(|socket| socket.send_to(bytes, route.to).is_ok())
    }
}

fn bind_one(
    address: IpAddr,
    ports: Option<ProbePorts>,
    random: u64,
) -> Result<(UdpSocket, SocketAddr), String> {
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
        Some(ports) if source.kind() == io::ErrorKind::AddrInUse => format!(
            "no port of {ports} is free on {address}; give --probe-ports a range with a port for each agent of this node"
        ),
        _ => format!("failed to open a socket at {address}: {source}"),
    })
}

/// Asks the kernel to stamp each packet that arrives at a socket.
pub(super) fn enable_stamps(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
}

/// Reads a packet from a socket without addresses. Returns the kernel's stamp, ns of `CLOCK_REALTIME`.
pub(super) fn receive_stamp(socket: &impl AsRawFd) -> Option<i64> {
    receive::<()>(socket, &mut [0]).ok()?.2
}

/// Returns length, sender, and the kernel's stamp of the packet.
fn receive<S: SockaddrLike>(
    socket: &impl AsRawFd,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<S>, Option<i64>)> {
    let mut control = cmsg_space!(TimeSpec);
    let mut room = [IoSliceMut::new(bytes)];
    let message = recvmsg::<S>(socket.as_raw_fd(), &mut room, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
    let stamp = message.cmsgs().ok().and_then(|mut messages| {
        messages.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        })
    });
    let stamp = stamp.map(|time| time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec()));
    Ok((message.bytes, message.address, stamp))
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from(*v4));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::from(*v6)))
}

/// Returns the address that the kernel would send from. Connecting a datagram socket sends nothing.
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
        let error = ProbeSockets::bind(&here, Some(full), 7).unwrap_err().to_string();
        let words = format!("no port of {port}-{port} is free on 127.0.0.1; give --probe-ports a range");
        assert!(error.starts_with(&words), "{error}");
        let elsewhere = ProbeSockets::bind(&[IpAddr::from([192, 0, 2, 1])], None, 7).unwrap_err().to_string();
        assert!(elsewhere.starts_with("failed to open a socket at 192.0.2.1: "), "{elsewhere}");
        let wide = ProbePorts { first: port.saturating_sub(20).max(MIN_PORT), last: port };
        let bound = ProbeSockets::bind(&here, Some(wide), u64::MAX).unwrap().addresses();
        assert!((wide.first..wide.last).contains(&bound[0].port()), "{bound:?}");
    }

    /// The kernel starts to stamp arrivals a moment after it is asked to. Until then its stamps are those of
    /// the read.
    fn wait_for_stamps(sockets: &ProbeSockets, sender: &UdpSocket) {
        let has_arrived_before_it_was_read = || {
            sender.send_to(b"early", sockets.addresses()[0]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            let reading = crate::host::machine::realtime();
            sockets.receive(0, &mut [0; 9]).unwrap().stamp.unwrap() < reading
        };
        assert!((0..2000).any(|_| has_arrived_before_it_was_read()), "no times of arrival");
    }

    #[test]
    fn a_packet_has_its_sender_and_the_time_when_it_arrived() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let Ok(sockets) = ProbeSockets::bind(&[address], None, 0) else {
                assert!(address.is_ipv6(), "no loopback");
                continue;
            };
            let sender = UdpSocket::bind((address, 0)).unwrap();
            let empty = sockets.receive(0, &mut [0; 9]).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
            wait_for_stamps(&sockets, &sender);
            let mut bytes = [0; 9];
            let before = crate::host::machine::realtime();
            sender.send_to(b"first", sockets.addresses()[0]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            let between = crate::host::machine::realtime();
            sender.send_to(b"second that is long", sockets.addresses()[0]).unwrap();
            let first = sockets.receive(0, &mut bytes).unwrap();
            assert_eq!((&bytes[..first.length], first.from), (&b"first"[..], sender.local_addr().unwrap()));
            assert!((before..between).contains(&first.stamp.unwrap()), "{first:?} in {before}..{between}");
            let second = sockets.receive(0, &mut bytes).unwrap();
            assert_eq!(&bytes[..second.length], b"second th");
            assert!(second.stamp.unwrap() >= between, "not that of the socket's last packet");
        }
    }

    #[test]
    fn a_route_begins_at_the_address_that_the_kernel_takes() {
        let sockets = ProbeSockets::bind(&[IpAddr::from([127, 0, 0, 1])], None, 0).unwrap();
        let to = sockets.addresses()[0];
        assert_eq!(sockets.route(to), Some(PeerRoute { socket: 0, to }));
        assert_eq!(sockets.route("[::1]:9".parse().unwrap()), None, "no socket of ours has that");
    }
}
