//! A TCP port on which a started program can listen.

use std::net::TcpListener;

/// Ports that Linux gives to no connection of its own accord, which `mpirun` opens while a job starts: the default of
/// `net.ipv4.ip_local_port_range` begins at 32,768.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns a port on which nothing listens. Processes begin their search at different ports, so that tests at the same time
/// find different ones.
///
/// # Panics
///
/// If all are taken.
pub fn free_port() -> u16 {
    let number = PORTS.len() as u32;
    // Processes of neighbouring numbers must not compete for one port.
    let first = std::process::id().wrapping_mul(101) % number;
    let mut ports = (0..number).map(|place| PORTS.start + ((first + place) % number) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
