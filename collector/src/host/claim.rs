//! A name that one process per node holds, for work that one collector per node and run does.

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::io;
use twox_hash::XxHash3_128;

/// An abstract socket address, which only one process of the network namespace can hold. The kernel releases
/// it when its holder ends in any way.
pub(crate) struct NodeClaim {
    _socket: OwnedFd,
}

impl NodeClaim {
    /// Claims the address for a kind of work, `work`, on an object, `of`.
    ///
    /// # Errors
    /// If another process holds the address.
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
