//! Walks over JSON without keeping it, examining only brackets, strings and commas. Relevant values are copied as
//! bytes of bounded length and parsed elsewhere.

use std::io::{self, Read, Seek, SeekFrom};

/// Number of bytes per read.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum nesting depth of arrays and objects.
const MAX_DEPTH: u32 = 64;
/// Maximum length in bytes of a member name on the path to the records.
const MAX_NAME_BYTES: usize = 4096;

/// The reason why a walk ended.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub(crate) struct ScanError {
    /// Offset in bytes from the beginning of the file.
    pub(crate) offset: u64,
    /// The fault at this offset.
    pub(crate) fault: ScanFault,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanFault {
    #[error("the file ends in the middle of a value")]
    Cut,
    #[error("expected {expected}, found {:?}", char::from(*found))]
    Unexpected { expected: &'static str, found: u8 },
    #[error("more than {MAX_DEPTH} arrays and objects in one another")]
    TooDeep,
    #[error("the name of a member is broken or has more than {MAX_NAME_BYTES} bytes")]
    BadName,
    #[error("the packed file is damaged: {0}")]
    Packing(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a file from any offset on.
pub(crate) struct JsonScanner<R> {
    source: R,
    buffer: Vec<u8>,
    /// Offset of the next byte in `buffer`.
    at: usize,
    /// Offset of `buffer[0]` in the file.
    base: u64,
    /// The reason why a compressed file ends after `buffer`.
    damage: Option<String>,
}

impl<R: Read + Seek> JsonScanner<R> {
    /// Moves to an offset of the file. Does not read again if the offset is in the buffer.
    pub(crate) fn go_to(&mut self, offset: u64) -> Result<(), ScanError> {
        let at = offset.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        if let Some(at) = at.filter(|at| *at <= self.buffer.len()) {
            self.at = at;
            return Ok(());
        }
        self.source
            .seek(SeekFrom::Start(offset))
            .map_err(|error| ScanError { offset, fault: error.into() })?;
        self.buffer.clear();
        (self.at, self.base, self.damage) = (0, offset, None);
        Ok(())
    }
}

/// Returns whether compressed bytes are damaged or truncated. Any other error is one of the operating system.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

impl<R: Read> JsonScanner<R> {
    /// Creates a scanner at the beginning of a file.
    pub(crate) fn new(source: R) -> JsonScanner<R> {
        JsonScanner { source, buffer: Vec::with_capacity(BUFFER_BYTES), at: 0, base: 0, damage: None }
    }

    /// Offset of the next byte in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    fn error<T>(&self, fault: ScanFault) -> Result<T, ScanError> {
        Err(ScanError { offset: self.offset(), fault })
    }

    /// Returns the unconsumed bytes of the buffer, at least one unless the file has ended.
    fn rest(&mut self) -> Result<&[u8], ScanError> {
        if self.at == self.buffer.len() {
            self.base += self.at as u64;
            self.at = 0;
            self.buffer.clear();
            self.fill()?;
        }
        Ok(self.buffer.get(self.at..).unwrap_or_default())
    }

    /// Reads into the empty buffer. Bytes before damage are valid.
    fn fill(&mut self) -> Result<(), ScanError> {
        if self.damage.is_none() {
            let read = (&mut self.source).take(BUFFER_BYTES as u64).read_to_end(&mut self.buffer);
            match read {
                Ok(_) => {}
                Err(error) if is_damage(&error) => self.damage = Some(error.to_string()),
                Err(error) => return self.error(error.into()),
            }
        }
        match &self.damage {
            Some(why) if self.buffer.is_empty() => self.error(ScanFault::Packing(why.clone())),
            _ => Ok(()),
        }
    }

    /// Skips white space and returns the next byte, or `None` at the end of the file.
    pub(crate) fn next_token(&mut self) -> Result<Option<u8>, ScanError> {
        loop {
            let rest = self.rest()?;
            if rest.is_empty() {
                return Ok(None);
            }
            let spaces = rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
            let (length, token) = (rest.len(), spaces.and_then(|i| rest.get(i)).copied());
            self.at += spaces.unwrap_or(length);
            if token.is_some() {
                return Ok(token);
            }
        }
    }

    /// Skips white space and returns the next byte.
    pub(crate) fn token(&mut self) -> Result<u8, ScanError> {
        match self.next_token()? {
            Some(token) => Ok(token),
            None => self.error(ScanFault::Cut),
        }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), ScanError> {
        match self.token()? {
            found if found == byte => {
                self.at += 1;
                Ok(())
            }
            found => self.error(ScanFault::Unexpected { expected, found }),
        }
    }

    /// Enters an array. Returns whether it has an element.
    pub(crate) fn open_array(&mut self) -> Result<bool, ScanError> {
        self.expect(b'[', "an array")?;
        self.has_first(b']')
    }

    /// Enters an object. Returns whether it has a member.
    pub(crate) fn open_object(&mut self) -> Result<bool, ScanError> {
        self.expect(b'{', "an object")?;
        self.has_first(b'}')
    }

    fn has_first(&mut self, close: u8) -> Result<bool, ScanError> {
        let empty = self.token()? == close;
        self.at += usize::from(empty);
        Ok(!empty)
    }

    /// Returns whether another element follows the last one. Leaves the array otherwise.
    pub(crate) fn another_element(&mut self) -> Result<bool, ScanError> {
        self.another(b']', "a comma or the end of the array")
    }

    /// Returns whether another member follows the last one. Leaves the object otherwise.
    pub(crate) fn another_member(&mut self) -> Result<bool, ScanError> {
        self.another(b'}', "a comma or the end of the object")
    }

    fn another(&mut self, close: u8, expected: &'static str) -> Result<bool, ScanError> {
        match self.token()? {
            found if found == b',' || found == close => {
                self.at += 1;
                Ok(found == b',')
            }
            found => self.error(ScanFault::Unexpected { expected, found }),
        }
    }

    /// Reads the name of a member; its value is next.
    pub(crate) fn name(&mut self) -> Result<String, ScanError> {
        match self.token()? {
            b'"' => {}
            found => return self.error(ScanFault::Unexpected { expected: "the name of a member", found }),
        }
        let mut raw = Vec::new();
        let fits = self.value(&mut raw, MAX_NAME_BYTES)?;
        let name = serde_json::from_slice(&raw);
        let (true, Ok(name)) = (fits, name) else { return self.error(ScanFault::BadName) };
        self.expect(b':', "a colon")?;
        Ok(name)
    }

    /// Skips a value.
    pub(crate) fn skip(&mut self) -> Result<(), ScanError> {
        self.walk(&mut KeptBytes { bytes: None, max_bytes: 0, fits: true })
    }

    /// Copies a value as it is spelled in the file. Skips it and returns false if it has more than `max_bytes`
    /// bytes.
    pub(crate) fn value(&mut self, bytes: &mut Vec<u8>, max_bytes: usize) -> Result<bool, ScanError> {
        bytes.clear();
        let mut copy = KeptBytes { bytes: Some(bytes), max_bytes, fits: true };
        self.walk(&mut copy)?;
        Ok(copy.fits)
    }

    /// Moves to the end of a value.
    fn walk(&mut self, copy: &mut KeptBytes<'_>) -> Result<(), ScanError> {
        // One bit per open bracket, the innermost lowest: 1 for an object.
        let (mut open, mut depth) = (0u64, 0u32);
        loop {
            if depth == 0 {
                self.token()?;
            }
            // All bytes up to the next bracket or quote.
            let rest = self.rest()?;
            let length = rest.len();
            let Some(&first) = rest.first() else { return self.error(ScanFault::Cut) };
            let plain = rest.iter().position(|b| STRUCTURE[usize::from(*b)]).unwrap_or(length);
            if plain > 0 {
                if depth == 0 {
                    return self.scalar(first, copy);
                }
                self.take(plain, copy);
                continue;
            }
            match first {
                b'"' => self.string(copy)?,
                b'{' | b'[' => {
                    if depth == MAX_DEPTH {
                        return self.error(ScanFault::TooDeep);
                    }
                    open = open << 1 | u64::from(first == b'{');
                    depth += 1;
                    self.take(1, copy);
                }
                _ => {
                    let object = first == b'}';
                    if depth == 0 || (open & 1 == 1) != object {
                        let expected = if depth == 0 { "a value" } else { "the other bracket" };
                        return self.error(ScanFault::Unexpected { expected, found: first });
                    }
                    open >>= 1;
                    depth -= 1;
                    self.take(1, copy);
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Moves to the end of a number or a word.
    fn scalar(&mut self, first: u8, copy: &mut KeptBytes<'_>) -> Result<(), ScanError> {
        if !(first == b'-' || first.is_ascii_alphanumeric()) {
            return self.error(ScanFault::Unexpected { expected: "a value", found: first });
        }
        loop {
            let rest = self.rest()?;
            let length = rest.len();
            let ends = |b: &u8| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.'));
            match rest.iter().position(ends) {
                Some(end) => {
                    self.take(end, copy);
                    return Ok(());
                }
                None if length == 0 => return Ok(()),
                None => self.take(length, copy),
            }
        }
    }

    /// Moves to the end of a string.
    fn string(&mut self, copy: &mut KeptBytes<'_>) -> Result<(), ScanError> {
        self.take(1, copy);
        let mut escaped = false;
        loop {
            let rest = self.rest()?;
            let length = rest.len();
            if length == 0 {
                return self.error(ScanFault::Cut);
            }
            if escaped {
                self.take(1, copy);
                escaped = false;
                continue;
            }
            let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\')).unwrap_or(length);
            let stop = rest.get(plain).copied();
            self.take(plain + usize::from(stop.is_some()), copy);
            escaped = stop == Some(b'\\');
            if stop == Some(b'"') {
                return Ok(());
            }
        }
    }

    /// Consumes bytes of the buffer, and keeps them if they are wanted.
    fn take(&mut self, length: usize, copy: &mut KeptBytes<'_>) {
        if let Some(bytes) = &mut copy.bytes
            && copy.fits
        {
            copy.fits = bytes.len() + length <= copy.max_bytes;
            if copy.fits {
                bytes.extend_from_slice(self.buffer.get(self.at..self.at + length).unwrap_or_default());
            }
        }
        self.at += length;
    }
}

/// The bytes that a walk copies.
struct KeptBytes<'a> {
    bytes: Option<&'a mut Vec<u8>>,
    max_bytes: usize,
    /// Whether the whole value fits.
    fits: bool,
}

/// Bytes at which a walk stops.
const STRUCTURE: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    /// Returns a few bytes per read, so that buffers end at every position.
    struct Drip<'a>(Cursor<&'a [u8]>, usize);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(into.len());
            self.0.read(&mut into[..most])
        }
    }

    fn cut_out(text: &str) -> Result<Vec<u8>, ScanError> {
        let mut scanner = JsonScanner::new(Cursor::new(text.as_bytes()));
        let mut bytes = Vec::new();
        assert!(scanner.value(&mut bytes, usize::MAX)?);
        Ok(bytes)
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "[a-z\"\\\\{}\\[\\]\u{e9} ,:]{0,12}".prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::btree_map("[a-z\"{]{0,4}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_is_cut_out_as_it_stands(value in json(), pretty in any::<bool>()) {
            let text = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            let cut = cut_out(&format!("  {text} , 7]")).unwrap();
            prop_assert_eq!(std::str::from_utf8(&cut).unwrap(), text);
        }

        #[test]
        fn a_cut_array_has_the_whole_elements_before_the_cut(
            values in proptest::collection::vec(json(), 1..8), at in any::<proptest::sample::Index>(),
        ) {
            let text = serde_json::to_string(&values).unwrap();
            let cut = &text.as_bytes()[..at.index(text.len())];
            let mut scanner = JsonScanner::new(Cursor::new(cut));
            let mut found = Vec::new();
            let mut read = || -> Result<(), ScanError> {
                let mut more = scanner.open_array()?;
                while more {
                    let mut bytes = Vec::new();
                    scanner.value(&mut bytes, 1 << 20)?;
                    more = scanner.another_element()?;
                    found.push(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap());
                }
                Ok(())
            };
            let is_cut = matches!(read(), Err(ScanError { fault: ScanFault::Cut, .. }));
            prop_assert!(is_cut);
            // Not every number is read as it was written.
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            let wanted: Vec<_> = values[..found.len()].iter().map(|v| read(&v.to_string())).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn buffers_may_end_anywhere() {
        let text = br#"{"a\"}": [1, {"b": "\\"}, -2.5e3], "c": null} "#;
        for drip in 1..text.len() {
            let source = Drip(Cursor::new(text), drip);
            let mut scanner = JsonScanner::new(source);
            let mut bytes = Vec::new();
            assert!(scanner.value(&mut bytes, 1000).unwrap());
            assert_eq!(bytes, text[..text.len() - 1]);
        }
    }

    #[test]
    fn a_value_that_is_too_long_is_stepped_over() {
        let text = format!("[\"{}\", 5]", "x".repeat(3 << 20));
        let mut scanner = JsonScanner::new(Cursor::new(text.as_bytes()));
        let mut bytes = Vec::new();
        assert!(scanner.open_array().unwrap());
        assert!(!scanner.value(&mut bytes, 1000).unwrap());
        assert!(bytes.len() <= 1000);
        assert!(scanner.another_element().unwrap());
        assert!(scanner.value(&mut bytes, 1000).unwrap());
        assert_eq!(bytes, b"5");
        assert!(!scanner.another_element().unwrap());
    }

    #[test]
    fn damage_is_named_with_its_place() {
        for (text, offset) in [("[1, }", 4), ("{\"a\": [}", 7), ("  ]", 2), ("?", 0), ("{\"a\": \"", 7)] {
            assert_eq!(cut_out(text).unwrap_err().offset, offset, "{text}");
        }
        let deep = "[".repeat(1 << 20);
        let error = cut_out(&deep).unwrap_err();
        assert!(matches!(error.fault, ScanFault::TooDeep) && error.offset == 64);
    }
}
