//! Reads the lines of a CSV file, cell by cell.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

/// Maximum length of a line in bytes, enough for a million series.
pub(crate) const MAX_LINE: u64 = 64 << 20;

/// Reads line after line. A quoted cell may contain line breaks.
pub(crate) struct TableLines<R> {
    input: R,
    /// Number of the last line that was read, from 1.
    pub(crate) number: u64,
    line: Vec<u8>,
}

/// A line, or the reason why it cannot be read.
pub(crate) enum TableLine<'a> {
    Cells(LineCells<'a>),
    /// The line has more than [`MAX_LINE`] bytes, or a quote without an end.
    TooLong,
    /// The file ends inside the line.
    Cut,
}

impl<R: BufRead> TableLines<R> {
    pub(crate) fn new(input: R) -> TableLines<R> {
        TableLines { input, number: 0, line: Vec::new() }
    }

    /// Reads the next line; returns `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<TableLine<'_>>> {
        self.line.clear();
        self.number += 1;
        loop {
            let before = self.line.len();
            let free_bytes = MAX_LINE.saturating_sub(before as u64);
            (&mut self.input).take(free_bytes).read_until(b'\n', &mut self.line)?;
            let is_end = self.line.len() == before;
            let is_whole = self.line.ends_with(b"\n");
            if self.line.is_empty() {
                return Ok(None);
            }
            let quotes = self.line.iter().filter(|byte| **byte == b'"').count();
            match (is_whole, quotes % 2 == 0) {
                (true, true) => return Ok(Some(TableLine::Cells(LineCells(Some(trimmed(&self.line)))))),
                _ if is_end => return Ok(Some(TableLine::Cut)),
                (true, false) if (self.line.len() as u64) < MAX_LINE => {}
                _ if self.line.len() as u64 >= MAX_LINE => {
                    self.skip()?;
                    return Ok(Some(TableLine::TooLong));
                }
                // The last line needs no line break, but without one it may be truncated.
                _ if !is_whole => return Ok(Some(TableLine::Cut)),
                _ => {}
            }
        }
    }

    /// Skips to the end of the line.
    fn skip(&mut self) -> io::Result<()> {
        if self.line.ends_with(b"\n") {
            return Ok(());
        }
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(());
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(bytes.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The cells of a line: one more than it has commas.
#[derive(Clone)]
pub(crate) struct LineCells<'a>(Option<&'a [u8]>);

impl<'a> Iterator for LineCells<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let rest = self.0?;
        let mut quoted = false;
        let end = rest.iter().position(|byte| {
            quoted ^= *byte == b'"';
            *byte == b',' && !quoted
        });
        let cell = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
        self.0 = end.and_then(|end| rest.get(end + 1..));
        let inside = cell.strip_prefix(b"\"").and_then(|cell| cell.strip_suffix(b"\""));
        Some(match inside {
            None => cell.into(),
            Some(inside) if !inside.contains(&b'"') => inside.into(),
            // Two quotes represent one quote.
            Some(inside) => {
                let mut single = Vec::with_capacity(inside.len());
                let mut bytes = inside.iter();
                while let Some(byte) = bytes.next() {
                    single.push(*byte);
                    if *byte == b'"' {
                        bytes.next();
                    }
                }
                single.into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Option<Vec<String>>> {
        let mut lines = TableLines::new(text.as_bytes());
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                TableLine::Cells(cells) => {
                    Some(cells.map(|cell| String::from_utf8(cell.into_owned()).unwrap()).collect())
                }
                TableLine::TooLong | TableLine::Cut => None,
            });
        }
        all
    }

    fn cells(cells: &[&str]) -> Option<Vec<String>> {
        Some(cells.iter().map(|cell| (*cell).to_owned()).collect())
    }

    #[test]
    fn cells_may_be_quoted() {
        let text = "a,,b\r\n\"x,\"\"y\"\"\",2,\n\n\"two\nlines\",1\n";
        let wanted =
            [cells(&["a", "", "b"]), cells(&["x,\"y\"", "2", ""]), cells(&[""]), cells(&["two\nlines", "1"])];
        assert_eq!(read(text), wanted);
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        assert_eq!(read("a,b\nc,"), [cells(&["a", "b"]), None]);
        assert_eq!(read("a,b\n\"c,\nd\n"), [cells(&["a", "b"]), None]);
    }
}
