//! Random numbers from the kernel.

use std::io::{self, Read};

/// Returns a random number for names that no other program can guess.
pub(crate) fn random() -> io::Result<u128> {
    random_bytes().map(u128::from_ne_bytes)
}

/// Returns random bytes.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
