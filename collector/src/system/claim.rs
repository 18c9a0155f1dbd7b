//! One sampler per node and run: whoever holds the address.

use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::io;
use twox_hash::XxHash3_128;

/// An abstract address that only one process of the network namespace can have. The kernel gives it
/// free when its holder ends, in whatever way.
pub(super) struct Claim {
    _socket: OwnedFd,
}

impl Claim {
    /// Fails while another process has the address.
    pub(super) fn take(run_id: &str) -> io::Result<Claim> {
        let user = rustix::process::geteuid().as_raw();
        let name = format!("rpd-system-{user}-{:032x}", XxHash3_128::oneshot(run_id.as_bytes()));
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(Claim { _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_holder_at_a_time() {
        let run = format!("claim-test-{}", std::process::id());
        let first = Claim::take(&run).unwrap();
        let second = Claim::take(&run).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(Claim::take(&format!("{run}-other")).is_ok());
        drop(first);
        assert!(Claim::take(&run).is_ok());
    }
}
