//! Buffers the bytes of a plain or compressed file, so that complete values are in memory.

use crate::cursor::{JsonValue, is_end, quote_or_backslash};
use flate2::bufread::GzDecoder;
use rpd_files::{open_input, read_head};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Number of bytes per read.
const CHUNK_BYTES: usize = 256 << 10;
/// First bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The UTF-8 byte order mark, which some editors add.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Opens a file, and decompresses it if its first bytes are those of gzip, whatever its name.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = open_input(path)?;
    Ok(if read_head(path, GZIP.len() as u64)? == GZIP {
        Box::new(GzipMembers::of(file))
    } else {
        Box::new(file)
    })
}

/// Decompresses the gzip members of a file one after another, as `gzip -d` does. Zeros after a member are padding.
struct GzipMembers {
    /// The current member; `None` after the last one.
    member: Option<GzDecoder<BufReader<File>>>,
}

impl GzipMembers {
    fn of(file: File) -> GzipMembers {
        GzipMembers { member: Some(GzDecoder::new(BufReader::with_capacity(CHUNK_BYTES, file))) }
    }
}

impl Read for GzipMembers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.member = self.member.take().map(GzDecoder::into_inner).map_or(Ok(None), next_member)?;
        }
        Ok(0)
    }
}

/// Returns a decoder for the member after the zeros that follow a member; `None` at the end of the file.
fn next_member(mut file: BufReader<File>) -> io::Result<Option<GzDecoder<BufReader<File>>>> {
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let only_zeros = zeros == bytes.len();
        file.consume(zeros);
        if !only_zeros {
            return Ok(Some(GzDecoder::new(file)));
        }
    }
}

/// The buffered bytes of a file; see the module.
pub(crate) struct JsonInput {
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    /// Offset of the next byte in `buffer`.
    at: usize,
    /// Offset of `buffer[0]` in the decompressed file.
    base: u64,
    /// Whether the end of the file was reached.
    ended: bool,
    /// The reason why a compressed file ended too early: it is truncated or damaged.
    damage: Option<String>,
    /// An error of the operating system.
    error: Option<io::Error>,
}

impl JsonInput {
    pub(crate) fn new(source: Box<dyn Read>) -> JsonInput {
        JsonInput { source, buffer: Vec::new(), at: 0, base: 0, ended: false, damage: None, error: None }
    }

    /// Returns the unconsumed bytes in the buffer.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Consumes bytes of the buffer.
    #[inline]
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.buffer.len());
    }

    /// Offset of the next byte in the decompressed file.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Offset after the last byte that was read.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Consumes a byte order mark at the beginning.
    pub(crate) fn pass_mark(&mut self) {
        if self.offset() == 0
            && (!self.bytes().is_empty() || self.more())
            && self.bytes().starts_with(BYTE_ORDER_MARK)
        {
            self.pass(BYTE_ORDER_MARK.len());
        }
    }

    /// The reason why the file ended too early, if it did.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Takes the error of the operating system; later calls return `None`.
    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Reads more bytes; returns false at the end of the file.
    pub(crate) fn more(&mut self) -> bool {
        if self.ended {
            return false;
        }
        self.buffer.drain(..self.at);
        self.base += self.at as u64;
        self.at = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + CHUNK_BYTES, 0);
        let mut filled = before;
        while filled < self.buffer.len() {
            match self.source.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
                    match error.kind() {
                        InvalidData | InvalidInput | UnexpectedEof => self.damage = Some(error.to_string()),
                        _ => self.error = Some(error),
                    }
                    break;
                }
            }
        }
        self.buffer.truncate(filled);
        filled > before
    }

    /// Skips white space and returns the next byte without consuming it; `None` at the end.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            let space = self.bytes().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.pass(space);
            if let Some(byte) = self.bytes().first() {
                return Some(*byte);
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Skips a value of any length and depth without keeping it. Returns false if there is no value, or if the file
    /// ends inside it.
    pub(crate) fn pass_value(&mut self) -> bool {
        let Some(first) = self.peek() else { return false };
        if !matches!(first, b'"' | b'[' | b'{') {
            return self.pass_scalar();
        }
        let mut walk = ValueWalk::default();
        loop {
            let bytes = self.bytes();
            let end = walk.end(bytes);
            let (passed, is_end) = (end.unwrap_or(bytes.len()), end.is_some());
            self.pass(passed);
            if is_end || !self.more() {
                return is_end;
            }
        }
    }

    /// Skips a number or a word.
    fn pass_scalar(&mut self) -> bool {
        let begin = self.offset();
        loop {
            let bytes = self.bytes();
            let end = bytes.iter().position(|byte| is_end(*byte));
            let (passed, is_end) = (end.unwrap_or(bytes.len()), end.is_some());
            self.pass(passed);
            if is_end {
                return self.offset() > begin;
            }
            if !self.more() {
                return false;
            }
        }
    }
}

/// Finds the end of a string, array or object that is examined piece by piece.
#[derive(Default)]
struct ValueWalk {
    depth: u64,
    in_string: bool,
    /// Whether the previous piece ended after a backslash.
    is_escaped: bool,
}

impl ValueWalk {
    /// Returns the offset after the value's end, if it is in this piece.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = usize::from(std::mem::take(&mut self.is_escaped));
        while let Some(&byte) = bytes.get(at) {
            if self.in_string {
                let found = quote_or_backslash(bytes, at)?;
                self.in_string = bytes.get(found) == Some(&b'\\');
                at = found + 1 + usize::from(self.in_string);
                self.is_escaped = at > bytes.len();
            } else {
                at += 1;
                match byte {
                    b'"' => {
                        self.in_string = true;
                        continue;
                    }
                    b'[' | b'{' => self.depth += 1,
                    b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                    _ => continue,
                }
            }
            if self.depth == 0 && !self.in_string {
                return Some(at);
            }
        }
        None
    }
}

/// Returns a copy of a plain value as text.
pub(crate) fn lossy(value: JsonValue<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(&crate::text::unescape(value.plain()?)).into_owned())
}
