use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};

/// Appends packets to `out` as one gzip member. Members that stand one behind the other are one gzip file.
///
/// The bytes depend on the packets and the level (0 to 9, higher is taken for 9) alone: there is no date in them.
///
/// # Errors
/// If the compressor fails, which it does not when it writes to memory.
pub fn gzip_member(packets: &[u8], level: u32, out: &mut Vec<u8>) -> io::Result<()> {
    let mut member = GzEncoder::new(out, Compression::new(level.min(9)));
    member.write_all(packets)?;
    member.finish()?;
    Ok(())
}
