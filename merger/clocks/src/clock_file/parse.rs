//! Parses the text into lines. A line consists of words; quoted words may contain spaces.

use super::{ClockFile, Drift, Entry, MAX_PPM, USUAL_PPM, check, unusual_rate};
use rpd_files::open_input;
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of the file, bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Maximum of a time and of an offset, ns: 70 years. The sum of four fits into an `i64`.
const MAX_NS: i64 = 2_209_032_000_000_000_000;
/// Maximum number of characters of a word that an error message repeats.
const MAX_SHOWN_CHARACTERS: usize = 60;

/// Why a clock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClockFileError {
    /// The file cannot be read.
    #[error("cannot read the clock file {0} ({1}); check the path that --clock-file gives")]
    Io(String, io::Error),
    /// A line is malformed or contradicts other lines.
    #[error(
        "clock file {0}, line {1}: {2}; a line is `NODE offset=NS [at=NS [error=NS] [drift_ppm=N [drift_error_ppm=N]]]`, \
         or once `reference NODE`"
    )]
    Line(String, usize, String),
    /// No line names the reference.
    #[error("clock file {0}: no line names the node of the reference clock; add `reference NODE`")]
    NoReference(String),
}

impl ClockFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<ClockFile, ClockFileError> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = open_input(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| ClockFileError::Io(name.clone(), error))?;
        if text.len() as u64 > MAX_BYTES {
            let error = io::Error::other(format!("it is longer than {MAX_BYTES} bytes"));
            return Err(ClockFileError::Io(name, error));
        }
        ClockFile::parse(&text, &name)
    }

    /// Parses a text; `name` is used in error messages.
    pub(super) fn parse(text: &str, name: &str) -> Result<ClockFile, ClockFileError> {
        let mut file = ClockFile::default();
        let mut reference = None;
        let wrong = |line: usize, what: String| ClockFileError::Line(name.to_owned(), line, what);
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let words = words(line).map_err(|what| wrong(number, what))?;
            let Some((first, rest)) = words.split_first() else { continue };
            if first.text == "reference" && !first.quoted {
                reference = match (rest, reference) {
                    ([node], None) => Some(node.text.clone()),
                    (_, Some(_)) => return Err(wrong(number, "there is a reference already".to_owned())),
                    _ => return Err(wrong(number, "expected one node after `reference`".to_owned())),
                };
                continue;
            }
            let entry = Entry::parse(number, &first.text, rest).map_err(|what| wrong(number, what))?;
            if let Some(drift) = entry.drift.filter(|drift| drift.ppm.abs() > USUAL_PPM) {
                file.unusual_rates.push(unusual_rate(number, &format!("drift_ppm={}", drift.ppm)));
            }
            file.entries.push(entry);
        }
        file.reference = reference.ok_or_else(|| ClockFileError::NoReference(name.to_owned()))?;
        file.entries.sort_by(|a, b| (&a.node, a.at, a.line).cmp(&(&b.node, b.at, b.line)));
        for lines in file.entries.chunk_by(|a, b| a.node == b.node) {
            let lines: Vec<&Entry> = lines.iter().collect();
            let unusual_rates = check(&lines).map_err(|(line, what)| wrong(line, what))?;
            file.unusual_rates.extend(unusual_rates);
        }
        Ok(file)
    }
}

impl Entry {
    fn parse(line: usize, node: &str, words: &[Word]) -> Result<Entry, String> {
        let (mut offset, mut at, mut error, mut drift, mut drift_error) = (None, None, None, None, None);
        for Word { text, .. } in words {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("{} is not of the form NAME=VALUE", shown(text)))?;
            let is_first = match key {
                "offset" => offset.replace(whole(text, value)?).is_none(),
                "at" => at.replace(whole(text, value)?).is_none(),
                "error" => error.replace(not_negative(text, whole(text, value)?)?).is_none(),
                "drift_ppm" => drift.replace(rate(text, value)?).is_none(),
                "drift_error_ppm" => drift_error.replace(not_negative(text, rate(text, value)?)?).is_none(),
                _ => return Err(format!("{} is not known", shown(key))),
            };
            if !is_first {
                return Err(format!("{key} is there twice"));
            }
        }
        let offset = offset.ok_or("there is no offset")?;
        let since = "at=NS, when CLOCK_BOOTTIME of the node showed it";
        match (at, error, drift, drift_error) {
            (_, _, None, Some(_)) => return Err("drift_error_ppm needs drift_ppm".to_owned()),
            (None, Some(_), ..) => return Err(format!("error needs {since}: it grows from then on")),
            (None, _, Some(_), _) => return Err(format!("drift_ppm needs {since}")),
            _ => {}
        }
        let drift = drift.map(|ppm| Drift { ppm, error: drift_error });
        Ok(Entry { line, node: node.to_owned(), offset, at, error, drift })
    }
}

/// Parses a whole number of nanoseconds.
fn whole(word: &str, value: &str) -> Result<i64, String> {
    let number: i64 = value.parse().map_err(|_| format!("{}: whole nanoseconds are wanted", shown(word)))?;
    let is_possible = number.unsigned_abs() <= MAX_NS.unsigned_abs();
    is_possible.then_some(number).ok_or_else(|| format!("{} is more than 70 years", shown(word)))
}

/// Parses a rate in ppm.
fn rate(word: &str, value: &str) -> Result<f64, String> {
    let rate: f64 = value.parse().map_err(|_| format!("{}: parts per million are wanted", shown(word)))?;
    let too_high = || format!("{} is not a rate of up to {MAX_PPM} ppm", shown(word));
    (rate.abs() <= MAX_PPM).then_some(rate).ok_or_else(too_high)
}

fn not_negative<N: PartialOrd + Default>(word: &str, number: N) -> Result<N, String> {
    if number >= N::default() { Ok(number) } else { Err(format!("{} is negative", shown(word))) }
}

/// Formats a word of the file for an error message.
fn shown(word: &str) -> String {
    let cut: String = word.chars().take(MAX_SHOWN_CHARACTERS).collect();
    format!("{cut:?}{}", if cut.len() < word.len() { "..." } else { "" })
}

/// A word between spaces, or in quotes.
#[derive(Default)]
struct Word {
    text: String,
    quoted: bool,
}

/// Splits a line into words, up to a `#`. In quotes, `\"` and `\\` are a quote and a backslash.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(&next) = chars.peek() {
        if next == '#' {
            break;
        }
        if next.is_whitespace() {
            chars.next();
            continue;
        }
        let mut word = Word::default();
        if next == '"' {
            word.quoted = true;
            chars.next();
            loop {
                match chars.next() {
                    Some('"') => break,
                    Some('\\') => {
                        let escaped = chars.next().filter(|c| ['"', '\\'].contains(c));
                        word.text.push(escaped.ok_or("in quotes \\ stands before \" or \\ only")?);
                    }
                    Some(other) => word.text.push(other),
                    None => return Err("a quote does not end".to_owned()),
                }
            }
            if chars.peek().is_some_and(|c| !c.is_whitespace() && *c != '#') {
                return Err("expected a space after a quote".to_owned());
            }
            if word.text.is_empty() {
                return Err("there is nothing in the quotes".to_owned());
            }
        } else {
            while let Some(next) = chars.next_if(|c| !c.is_whitespace() && *c != '#') {
                word.text.push(next);
            }
        }
        words.push(word);
    }
    Ok(words)
}

/// Formats a name as it must be written in a clock file.
pub(super) fn written(name: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !['#', '"', '\\'].contains(&c);
    if name != "reference" && name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, "?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line, what) in [
            ("reference r\n\nn ofset=3", 3, "\"ofset\" is not known"),
            ("n offset=1.5", 1, "whole nanoseconds"),
            ("n offset=1e6", 1, "whole nanoseconds"),
            ("n at=1", 1, "no offset"),
            ("n offset", 1, "NAME=VALUE"),
            ("n offset=9223372036854775807", 1, "more than 70 years"),
            ("n offset=-9223372036854775808", 1, "more than 70 years"),
            ("n offset=99999999999999999999", 1, "whole nanoseconds"),
            ("n offset=1 at=1 drift_ppm=nan\n", 1, "is not a rate"),
            ("n offset=1 at=1 drift_ppm=inf\n", 1, "is not a rate"),
            ("n offset=1 at=1 drift_ppm=-2e5\n", 1, "is not a rate"),
            ("n offset=1 at=1 drift_ppm=1 drift_error_ppm=NaN\n", 1, "is not a rate"),
            ("n offset=1 at=1 drift_ppm=1 drift_error_ppm=-1\n", 1, "negative"),
            ("n offset=1 at=1 error=-1", 1, "negative"),
            ("#\nn offset=1 at=1 at=1", 2, "at is there twice"),
            ("n offset=1 offset=2", 1, "offset is there twice"),
            ("n offset=1 at=1 drift_ppm=1 drift_ppm=1", 1, "drift_ppm is there twice"),
            ("n offset=1 error=1", 1, "error needs at=NS"),
            ("n offset=1 drift_ppm=1", 1, "drift_ppm needs at=NS"),
            ("n offset=1 at=1 drift_error_ppm=1", 1, "needs drift_ppm"),
            ("reference r\nn offset=1\nn offset=2", 3, "line 2 is of the same node"),
            ("reference r\nn offset=1 at=7\nn offset=2 at=7", 3, "the same time"),
            ("reference r\nn offset=-5 at=10\nn offset=0 at=5", 3, "stand still"),
            ("reference r\nn offset=0 at=5\nn offset=-9 at=10", 3, "backwards"),
            ("reference r\nn offset=0 at=0\nn offset=-200 at=1000", 3, "none is"),
            ("reference a\nreference b", 2, "already"),
            ("reference a b", 1, "one node"),
            ("reference", 1, "one node"),
            ("\"n offset=1", 1, "does not end"),
            ("\"n\"offset=1", 1, "a space"),
            ("\"\" offset=1", 1, "nothing in the quotes"),
            ("\"n\\x\" offset=1", 1, "before"),
        ] {
            let error = ClockFile::parse(text, "site.clocks").unwrap_err().to_string();
            let place = format!("clock file site.clocks, line {line}: ");
            assert!(error.starts_with(&place) && error.contains(what), "{text}: {error}");
            assert!(error.contains("NODE offset=NS [at=NS"), "{error}");
        }
        let error = ClockFile::parse("n offset=1", "f").unwrap_err().to_string();
        assert!(error.contains("add `reference NODE`"), "{error}");
    }

    #[test]
    fn rates_that_clocks_do_not_have_are_warned_of() {
        let text = "reference r\na offset=0 at=0 drift_ppm=-501\nb offset=0 at=0\nb offset=501 at=1000000\nc offset=0 at=0 drift_ppm=500";
        let file = ClockFile::parse(text, "f").unwrap();
        assert_eq!(file.unusual_rates.len(), 2, "{:?}", file.unusual_rates);
        assert!(
            file.unusual_rates[0].contains("line 2: drift_ppm=-501")
                && file.unusual_rates[1].contains("line 4: ")
        );
    }

    #[test]
    fn names_may_have_spaces() {
        for name in
            ["gpu 000", "a\"b\\c", "reference", "#5", "unknown-1ded4f6f (pid 4711)", "plain", "\u{fc}"]
        {
            let text = format!("\u{feff}reference {0} # {0}\r\n{0} offset=5#{0}\n", written(name));
            let file = ClockFile::parse(&text, "f").unwrap();
            assert_eq!((file.reference.as_str(), file.entries[0].node.as_str()), (name, name), "{text}");
        }
    }

    /// Fragments of generated files.
    fn piece() -> impl Strategy<Value = String> {
        let keys = prop::sample::select(vec!["offset", "at", "error", "drift_ppm", "drift_error_ppm", "x"]);
        let number =
            prop_oneof![any::<i64>().prop_map(|n| n.to_string()), any::<f64>().prop_map(|n| n.to_string())];
        prop_oneof![
            (keys, number).prop_map(|(key, number)| format!("{key}={number}")),
            "(reference|n|m|\"|\\\\|#|=| |\\PC{0,5})",
            Just("\n".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_file_it_is_understood_or_its_line_is_named(pieces in prop::collection::vec(piece(), 0..40)) {
            let text = pieces.join(" ");
            if let Err(error) = ClockFile::parse(&text, "f") {
                prop_assert!(error.to_string().starts_with("clock file f"));
            }
        }
    }
}
