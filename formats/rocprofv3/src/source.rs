//! Reads the bytes of a plain or compressed file from any offset on.

use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Number of compressed bytes per read.
const PACKED_BYTES: usize = 128 << 10;
/// Maximum number of times a compressed file is decompressed from its beginning. A process needs about four.
const MAX_RESTARTS: u32 = 64;

/// A file with offsets that count decompressed bytes. A compressed file can be read only from its beginning: a seek
/// backwards reads everything before the offset again.
pub(crate) enum JsonSource {
    Plain(File),
    Packed { unpacked: Box<GzipReader>, at: u64, restarts: u32 },
}

type GzipReader = MultiGzDecoder<BufReader<File>>;

impl JsonSource {
    /// Opens a file; its first bytes show whether it is compressed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn open(path: &Path) -> io::Result<JsonSource> {
        let mut file = rpd_files::open_input(path)?;
        let mut head = Vec::new();
        (&mut file).take(GZIP.len() as u64).read_to_end(&mut head)?;
        file.rewind()?;
        Ok(match head == GZIP {
            true => JsonSource::Packed { unpacked: unpacked(file), at: 0, restarts: 0 },
            false => JsonSource::Plain(file),
        })
    }
}

fn unpacked(file: File) -> Box<GzipReader> {
    Box::new(MultiGzDecoder::new(BufReader::with_capacity(PACKED_BYTES, file)))
}

impl Read for JsonSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            JsonSource::Plain(file) => file.read(buffer),
            JsonSource::Packed { unpacked, at, .. } => {
                let read = unpacked.read(buffer)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}

impl Seek for JsonSource {
    /// Seeks to an offset from the beginning; other seeks are not supported.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(place) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        match self {
            JsonSource::Plain(file) => return file.seek(to),
            JsonSource::Packed { unpacked: reader, at, restarts } if place < *at => {
                if *restarts == MAX_RESTARTS {
                    return Err(io::Error::other(
                        "it has too many processes for a packed file; unpack it first",
                    ));
                }
                *restarts += 1;
                let mut file = reader.get_ref().get_ref().try_clone()?;
                file.rewind()?;
                (*reader, *at) = (unpacked(file), 0);
            }
            JsonSource::Packed { .. } => {}
        }
        if let JsonSource::Packed { unpacked, at, .. } = self {
            *at += io::copy(&mut unpacked.take(place - *at), &mut io::sink())?;
        }
        Ok(place)
    }
}
