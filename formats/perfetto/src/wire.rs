//! The protobuf wire format: varints, tags, and length-delimited messages.

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

/// Field numbers of `Trace` and `TracePacket`.
pub(crate) mod packet {
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const COMPRESSED_PACKETS: u32 = 50;
    pub(crate) const DEFAULTS: u32 = 59;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    pub(crate) const PERF_SAMPLE: u32 = 66;
    /// Tag of `Trace.packet`, including its wire type.
    pub(crate) const TAG: u8 = super::small_tag(1, super::LENGTH);
    /// Values of SEQUENCE_FLAGS: earlier interned data is invalid; the packet needs interned data.
    pub(crate) const STATE_CLEARED: u64 = 1;
    pub(crate) const NEEDS_STATE: u64 = 2;
}

/// Ids of clocks.
pub(crate) const CLOCK_REALTIME: u64 = 1;
pub(crate) const CLOCK_BOOTTIME: u64 = 6;

/// Returns the tag of a field with a number up to 15, which has one byte.
pub(crate) const fn small_tag(field: u32, wire: u32) -> u8 {
    assert!(field < 16);
    (field << 3 | wire) as u8
}

pub(crate) const fn varint_tag(field: u32) -> u8 {
    small_tag(field, VARINT)
}

pub(crate) const fn fixed64_tag(field: u32) -> u8 {
    small_tag(field, FIXED64)
}

pub(crate) const fn length_tag(field: u32) -> u8 {
    small_tag(field, LENGTH)
}

/// Returns a varint of up to eight bytes, lowest byte first, and its length in bytes. `value` must be below 2^56.
#[inline(always)]
fn spread(value: u64) -> (u64, usize) {
    let mut x = value;
    // Moves groups of 7 bits to separate bytes: twice 28 bits, four times 14, eight times 7.
    x = (x & 0x0000_0000_0fff_ffff) | (x & 0x00ff_ffff_f000_0000) << 4;
    x = (x & 0x0000_3fff_0000_3fff) | (x & 0x0fff_c000_0fff_c000) << 2;
    x = (x & 0x007f_007f_007f_007f) | (x & 0x3f80_3f80_3f80_3f80) << 1;
    let len = (63 - (x | 1).leading_zeros() as usize) / 8 + 1;
    let more = 0x0080_8080_8080_8080 & ((1u64 << (8 * (len - 1))) - 1);
    (x | more, len)
}

/// A packet without texts while it is being built: at most [`Small::SIZE`] bytes.
pub(crate) struct Small {
    bytes: [u8; Small::SIZE],
    len: usize,
}

impl Small {
    pub(crate) const SIZE: usize = 64;

    #[inline(always)]
    pub(crate) fn new() -> Small {
        Small { bytes: [0; Small::SIZE], len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Appends eight bytes, of which only the first `len` count.
    #[inline(always)]
    pub(crate) fn word(&mut self, word: u64, len: usize) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += len;
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.byte(value as u8);
        } else if value < 1 << 56 {
            let (word, len) = spread(value);
            self.word(word, len);
        } else {
            let mut rest = value;
            while rest >= 0x80 {
                self.byte(rest as u8 | 0x80);
                rest >>= 7;
            }
            self.byte(rest as u8);
        }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, byte: u8) {
        self.bytes[at] = byte;
    }

    /// Copies a whole array, which is two or four instructions, and removes the superfluous bytes.
    #[inline(always)]
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.len;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

#[inline]
pub(crate) fn varint(out: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn tag(out: &mut Vec<u8>, field: u32, wire: u32) {
    varint(out, u64::from(field << 3 | wire));
}

pub(crate) fn uint(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

/// Writes a field of type int32 or int64: negative numbers have ten bytes.
pub(crate) fn int(out: &mut Vec<u8>, field: u32, value: i64) {
    uint(out, field, value as u64);
}

pub(crate) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    tag(out, field, LENGTH);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes a field that is a message, or a packed list of varints.
pub(crate) fn message(out: &mut Vec<u8>, field: u32, content: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LENGTH);
    let at = out.len();
    out.push(0);
    content(out);
    close(out, at);
}

/// Writes the length of the bytes after offset `at` into the byte at `at`. Moves them if the length needs several
/// bytes.
#[inline]
pub(crate) fn close(out: &mut Vec<u8>, at: usize) {
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len as u8;
    } else {
        let mut length = Vec::with_capacity(10);
        varint(&mut length, len as u64);
        out.splice(at..=at, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        varint(&mut out, value);
        out
    }

    proptest! {
        #[test]
        fn both_ways_to_write_a_varint_agree(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut small = Small::new();
            small.varint(value);
            let mut out = vec![7];
            small.append_to(&mut out);
            prop_assert_eq!(&out[1..], slow(value));
        }
    }

    #[test]
    fn varints_at_the_borders_of_their_lengths() {
        for bits in 0..64 {
            for value in [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1] {
                let mut small = Small::new();
                small.varint(value);
                let mut out = Vec::new();
                small.append_to(&mut out);
                assert_eq!(out, slow(value), "{value}");
            }
        }
    }

    #[test]
    fn a_message_of_any_length_follows_its_length() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 3_000_000] {
            let mut out = Vec::new();
            message(&mut out, 1, |out| out.resize(out.len() + len, 9));
            let mut wanted = vec![0x0a];
            varint(&mut wanted, len as u64);
            wanted.resize(wanted.len() + len, 9);
            assert!(out == wanted, "{len}");
        }
    }
}
