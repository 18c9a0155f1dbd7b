//! A TCP port on which a started program can listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports that Linux gives to no connection of its own accord, which `mpirun` opens while a job starts: the default of
/// `net.ipv4.ip_local_port_range` begins at 32,768.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns a port on which nothing listens. Each search begins at another port, so that tests at the same time find different
/// ones.
///
/// # Panics
///
/// If all are taken.
pub fn free_port() -> u16 {
    /// Searches of this process.
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let number = PORTS.len() as u32;
    // Searches of processes with neighbouring numbers are far from each other, too.
    let search = SEARCHES.fetch_add(1, Ordering::Relaxed);
    let first = std::process::id().wrapping_mul(101).wrapping_add(search.wrapping_mul(7)) % number;
    let mut ports = (0..number).map(|place| PORTS.start + ((first + place) % number) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
