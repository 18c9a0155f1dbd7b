use crate::gzip::deflate;
use crate::wire::{self, packet};
use flate2::{Compress, CompressError, Compression, FlushCompress};

/// Maximum number of bytes of packets that are compressed together. Perfetto requires less than 512 KiB.
const MAX_GROUP_BYTES: usize = 256 << 10;

/// Appends packets to `out` in compressed packets, each of which can be read alone.
///
/// The file is compressed but still a sequence of packets. All versions of Perfetto can read it, also if files or
/// pieces are concatenated. Levels are 0 to 9; a higher level means 9.
///
/// # Errors
/// Returns an error if the compressor fails. It cannot fail for lack of output space.
pub fn packed(packets: &[u8], level: u32, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let mut compress = Compress::new(Compression::new(level.min(9)), true);
    let mut deflated = Vec::new();
    let mut rest = packets;
    while !rest.is_empty() {
        let (group, after) = rest.split_at(group(rest));
        rest = after;
        if group.len() > MAX_GROUP_BYTES {
            // A single packet that is too large remains uncompressed.
            out.extend_from_slice(group);
            continue;
        }
        deflated.clear();
        compress.reset();
        deflate(&mut compress, group, FlushCompress::Finish, &mut deflated)?;
        wire::message(out, 1, |out| wire::bytes(out, packet::COMPRESSED_PACKETS, &deflated));
    }
    Ok(())
}

/// Returns the number of bytes of the first packets: as many as may be compressed together, and at least one
/// packet.
fn group(packets: &[u8]) -> usize {
    let mut end = 0;
    while let Some(next) = packet_end(packets, end)
        && (end == 0 || next <= MAX_GROUP_BYTES)
    {
        end = next;
    }
    // Bytes that are not a packet are kept unchanged; this crate never writes such bytes.
    if end == 0 { packets.len() } else { end }
}

/// Returns the end of the packet that starts at an offset; `None` if there is no packet.
fn packet_end(packets: &[u8], start: usize) -> Option<usize> {
    if *packets.get(start)? != packet::TAG {
        return None;
    }
    let mut length = 0usize;
    for (i, byte) in packets.get(start + 1..)?.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return (start + 2 + i).checked_add(length).filter(|end| *end <= packets.len());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use proptest::prelude::*;
    use std::io::Read;

    /// Returns the packets in compressed packets, and the number of bytes in each of these.
    fn unpacked(mut packed: &[u8]) -> (Vec<u8>, Vec<usize>) {
        let (mut packets, mut sizes) = (Vec::new(), Vec::new());
        while let Some(end) = packet_end(packed, 0) {
            // Tag and length; inside, a tag of two bytes (50 << 3 | 2) and a length again.
            let at = 2 + packed[1..].iter().position(|byte| byte & 0x80 == 0).unwrap();
            match packed[at..end].starts_with(&[0x92, 0x03]) {
                true => {
                    let length = packed[at + 2..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
                    ZlibDecoder::new(&packed[at + 2 + length..end]).read_to_end(&mut packets).unwrap();
                }
                false => packets.extend_from_slice(&packed[..end]),
            }
            sizes.push(end);
            packed = &packed[end..];
        }
        assert!(packed.is_empty());
        (packets, sizes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn packets_come_out_as_they_went_in(
            lengths in prop::collection::vec(prop_oneof![8 => 0usize..200, 2 => 10_000usize..70_000, 1 => 200_000usize..600_000], 0..60),
            level in 0u32..12,
            fill: u8,
        ) {
            let mut packets = Vec::new();
            for length in lengths {
                wire::bytes(&mut packets, 1, &vec![fill; length]);
            }
            let mut out = Vec::new();
            packed(&packets, level, &mut out).unwrap();
            let (read, _) = unpacked(&out);
            prop_assert!(read == packets);
        }
    }

    #[test]
    fn packed_packets_are_as_small_as_perfetto_wants_them() {
        let mut packets = Vec::new();
        let mut state = 1u64;
        for _ in 0..30_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            wire::bytes(&mut packets, 1, &state.to_be_bytes().repeat(3));
        }
        for level in [0, 6] {
            let mut out = Vec::new();
            packed(&packets, level, &mut out).unwrap();
            let (read, sizes) = unpacked(&out);
            assert!(read == packets);
            assert!(sizes.len() >= 3 && sizes.iter().all(|size| *size < 512 << 10), "{sizes:?}");
        }
    }

    #[test]
    fn what_is_no_packet_is_passed_on() {
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[7, 7], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]] {
            let mut out = Vec::new();
            packed(bytes, 1, &mut out).unwrap();
            assert!(!out.is_empty());
        }
    }
}
