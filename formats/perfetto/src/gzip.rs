//! Builds one gzip member from pieces that were compressed independently.
//!
//! Perfetto up to at least v47 reads only the first member of a gzip file and reports no error. A file is therefore
//! one member, although many threads write it. Each piece is a sequence of deflate blocks that refers to no earlier
//! piece. A flush ends it on a byte boundary. The last block, which is empty, and the checksum of all pieces end
//! the file.

use flate2::read::GzDecoder;
use flate2::{Compress, CompressError, Compression, Crc, FlushCompress, Status};
use std::io::{self, Read};

/// The first bytes of a gzip file: deflate, no name, no date, no operating system.
pub const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Checksum and length of the bytes of a piece, or of consecutive pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// CRC-32 of the bytes.
    pub crc: u32,
    /// Number of bytes.
    pub length: u64,
}

impl Checksum {
    /// Returns the checksum of these bytes followed by others.
    #[must_use]
    pub fn then(self, next: Checksum) -> Checksum {
        let crc = multiply(x_to_the(next.length), self.crc) ^ next.crc;
        Checksum { crc, length: self.length.wrapping_add(next.length) }
    }
}

/// Appends packets to `out` as a compressed piece of a gzip file. Levels are 0 to 9; a higher level means 9.
///
/// A file is [`GZIP_HEAD`], any number of pieces, and [`gzip_tail`]. The bytes depend only on the packets and the
/// level.
///
/// # Errors
/// Returns an error if the compressor fails. It cannot fail for lack of output space.
pub fn gzip_piece(packets: &[u8], level: u32, out: &mut Vec<u8>) -> Result<Checksum, CompressError> {
    let mut compress = Compress::new(Compression::new(level.min(9)), false);
    deflate(&mut compress, packets, FlushCompress::Sync, out)?;
    let mut crc = Crc::new();
    crc.update(packets);
    Ok(Checksum { crc: crc.sum(), length: packets.len() as u64 })
}

/// Returns the first bytes of a gzip file, decompressed: at most `max_bytes`.
///
/// # Errors
/// Returns an error if the file cannot be read or is not a gzip file.
pub fn gunzip_start(file: impl Read, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    GzDecoder::new(file).take(max_bytes as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Compresses all bytes, and appends the complete output.
pub(crate) fn deflate(
    compress: &mut Compress,
    bytes: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> Result<(), CompressError> {
    let before = compress.total_in();
    loop {
        let rest = bytes.get((compress.total_in() - before) as usize..).unwrap_or_default();
        // Enough for most pieces, so that a second iteration is rare.
        out.reserve(rest.len() / 3 + 4096);
        let status = compress.compress_vec(rest, out, flush)?;
        // If space is left, the output is complete. A status other than `Ok` means that nothing was left to do.
        if status != Status::Ok || out.len() < out.capacity() {
            return Ok(());
        }
    }
}

/// Returns the last bytes of a gzip file, from the checksum of all its pieces.
pub fn gzip_tail(whole: Checksum) -> [u8; 10] {
    // An empty last block; then the checksum, and the length modulo 2^32.
    let mut tail = [0x03, 0x00, 0, 0, 0, 0, 0, 0, 0, 0];
    tail[2..6].copy_from_slice(&whole.crc.to_le_bytes());
    tail[6..].copy_from_slice(&(whole.length as u32).to_le_bytes());
    tail
}

/// The polynomial of CRC-32; the highest bit is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
const X_TO_THE_8: u32 = 1 << (31 - 8);

/// Returns the product of two polynomials over GF(2), modulo the CRC polynomial.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// Returns the polynomial that multiplies the checksum of a piece followed by this many bytes.
fn x_to_the(bytes: u64) -> u32 {
    let (mut power, mut square) = (ONE, X_TO_THE_8);
    let mut rest = bytes;
    while rest > 0 {
        if rest & 1 == 1 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        rest >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::{GzDecoder, MultiGzDecoder};
    use proptest::prelude::*;
    use std::io::Read;

    fn file(pieces: &[Vec<u8>], level: u32) -> Vec<u8> {
        let mut file = GZIP_HEAD.to_vec();
        let sums = pieces.iter().map(|piece| gzip_piece(piece, level, &mut file).unwrap());
        let whole = sums.fold(Checksum::default(), Checksum::then);
        file.extend(gzip_tail(whole));
        file
    }

    /// Generates compressible and incompressible bytes of any length.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let random = prop::collection::vec(any::<u8>(), 0..2000);
        let long = (any::<u8>(), 0usize..300_000).prop_map(|(byte, len)| vec![byte; len]);
        prop_oneof![random, long]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_are_one_member(pieces in prop::collection::vec(piece(), 0..6), level in 0u32..12) {
            let file = file(&pieces, level);
            let mut read = Vec::new();
            // This decoder reads one member, and verifies its checksum and length.
            let mut decoder = GzDecoder::new(&file[..]);
            decoder.read_to_end(&mut read).unwrap();
            prop_assert!(decoder.into_inner().is_empty());
            prop_assert!(read == pieces.concat());
        }

        #[test]
        fn checksums_add_up_in_any_grouping(a: Vec<u8>, b: Vec<u8>, c: Vec<u8>) {
            let [x, y, z] = [&a, &b, &c].map(|bytes| gzip_piece(bytes, 1, &mut Vec::new()).unwrap());
            let whole = gzip_piece(&[a, b, c].concat(), 1, &mut Vec::new()).unwrap();
            prop_assert_eq!(x.then(y).then(z), whole);
            prop_assert_eq!(x.then(y.then(z)), whole);
        }
    }

    #[test]
    fn what_cannot_be_compressed_is_whole() {
        let mut noise = Vec::new();
        let mut state = 1u64;
        while noise.len() < 3_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.push((state >> 33) as u8);
        }
        for level in [0, 1, 6, 9] {
            let two = [file(&[noise.clone()], level), file(&[vec![], noise.clone()], level)].concat();
            let mut read = Vec::new();
            MultiGzDecoder::new(&two[..]).read_to_end(&mut read).unwrap();
            assert!(read == [&noise[..], &noise].concat(), "{level}");
        }
    }
}
