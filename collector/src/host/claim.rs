//! One collector per node and run for what needs to be done once: whoever holds the address.

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::io;
use twox_hash::XxHash3_128;

/// An abstract address that only one process of the network namespace can have. The kernel gives it
/// free when its holder ends, in whatever way.
pub(crate) struct NodeClaim {
    _socket: OwnedFd,
}

impl NodeClaim {
    /// Fails while another process has the address for this work: a word, and whatever tells those apart
    /// that do the same.
    pub(crate) fn take(work: &str, of: &str) -> io::Result<NodeClaim> {
        let user = rustix::process::geteuid().as_raw();
        let name = format!("rpd-{work}-{user}-{:032x}", XxHash3_128::oneshot(of.as_bytes()));
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(NodeClaim { _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_holder_at_a_time() {
        let run = format!("claim-test-{}", std::process::id());
        let first = NodeClaim::take("test", &run).unwrap();
        let second = NodeClaim::take("test", &run).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(NodeClaim::take("test", &format!("{run}-other")).is_ok());
        drop(first);
        assert!(NodeClaim::take("test", &run).is_ok());
    }
}
