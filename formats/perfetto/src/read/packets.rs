//! Reads the packets of a file one by one.

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use rpd_files::open_input;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use thiserror::Error;

/// Maximum length in bytes of a packet that is read; Perfetto writes none over 512 KiB.
pub(super) const MAX_PACKET: u64 = 16 << 20;
/// First byte of `Trace.packet`: field 1, length-delimited.
pub(super) const PACKET: u8 = 1 << 3 | 2;
/// First bytes of a gzip file.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];
const READ_BYTES: usize = 1 << 18;

/// The place where reading stopped before the end of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceDamage {
    /// Offset in bytes in the decompressed file.
    pub(super) offset: u64,
    pub(super) reason: String,
}

/// The reason why there is no next packet.
#[derive(Debug, Error)]
pub(super) enum PacketStop {
    #[error(transparent)]
    Io(io::Error),
    #[error("{}", .0.reason)]
    Damage(TraceDamage),
}

/// A packet, or a marker for one that is too long to be examined.
#[derive(Debug)]
pub(super) enum TracePacket<'a> {
    Whole(&'a [u8]),
    TooLong,
}

/// Reads packets one after another.
pub(super) struct TracePackets<R> {
    input: R,
    /// Offset of the next packet.
    offset: u64,
    buffer: Vec<u8>,
}

/// Opens a trace, and decompresses it while reading if it is a gzip file.
pub(super) fn open(path: &Path) -> io::Result<TracePackets<Box<dyn BufRead>>> {
    let mut file = BufReader::with_capacity(READ_BYTES, open_input(path)?);
    let packed = file.fill_buf()?.starts_with(&GZIP);
    let input: Box<dyn BufRead> = match packed {
        true => Box::new(BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(file))),
        false => Box::new(file),
    };
    Ok(TracePackets { input, offset: 0, buffer: Vec::new() })
}

/// Returns the packets inside a compressed packet.
pub(super) fn unpack(packed: &[u8]) -> TracePackets<BufReader<ZlibDecoder<&[u8]>>> {
    TracePackets { input: BufReader::new(ZlibDecoder::new(packed)), offset: 0, buffer: Vec::new() }
}

impl<R: BufRead> TracePackets<R> {
    /// Offset of the end of the last packet.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next packet; returns `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<TracePacket<'_>>, PacketStop> {
        let mut head = 0;
        let Some(tag) = self.byte(&mut head)? else { return Ok(None) };
        if tag != PACKET {
            return Err(self.damage(format!("byte {tag:#04x} begins no packet")));
        }
        let mut length = 0;
        for place in 0.. {
            let Some(byte) = self.byte(&mut head)? else { return Err(self.cut()) };
            length |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
            if byte & 0x80 == 0 {
                break;
            }
            if place == 9 {
                return Err(self.damage("the length of a packet makes no sense".to_owned()));
            }
        }
        self.buffer.clear();
        let mut content = (&mut self.input).take(length);
        // Memory grows with the bytes that exist, not with the announced length.
        let read = match length > MAX_PACKET {
            true => io::copy(&mut content, &mut io::sink()),
            false => content.read_to_end(&mut self.buffer).map(|read| read as u64),
        };
        let read = read.map_err(|error| self.failed(error))?;
        if read < length {
            return Err(self.cut());
        }
        self.offset += head + length;
        Ok(Some(if length > MAX_PACKET { TracePacket::TooLong } else { TracePacket::Whole(&self.buffer) }))
    }

    fn byte(&mut self, head: &mut u64) -> Result<Option<u8>, PacketStop> {
        let filled = self.input.fill_buf();
        let Some(byte) = filled.map(|bytes| bytes.first().copied()).map_err(|error| self.failed(error))?
        else {
            return Ok(None);
        };
        self.input.consume(1);
        *head += 1;
        Ok(Some(byte))
    }

    fn cut(&self) -> PacketStop {
        self.damage("it ends inside of a packet".to_owned())
    }

    fn damage(&self, reason: String) -> PacketStop {
        PacketStop::Damage(TraceDamage { offset: self.offset, reason })
    }

    /// A failed decompression is damage; any other error is one of the operating system.
    fn failed(&self, error: io::Error) -> PacketStop {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                self.damage(format!("it cannot be unpacked further: {error}"))
            }
            _ => PacketStop::Io(error),
        }
    }
}
