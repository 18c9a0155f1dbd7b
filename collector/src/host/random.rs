//! Random numbers from the kernel.

use std::io::{self, Read};

/// Returns a random number for names that nobody can guess.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}
