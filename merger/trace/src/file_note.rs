//! The note at the start of each file: the part of the run that the file shows, and the rows that are missing.
//!
//! Readers show it as the first track. [`ranks_of`] finds the ranks in it again.

use super::chrome;
use super::files::{FileFrame, FilePart};
use super::outcome::TraceOutcome;
use crate::options::TraceFormat;
use rpd_console::wording::grouped;
use rpd_files::open_input;
use rpd_perfetto::read::first_annotation_text;
use rpd_perfetto::{Annotation, Event, Sequence, StringId, Timestamp, Track, TrackId, Value, gunzip_start};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;

/// The track of the note.
const TRACK: TrackId = TrackId::FILE_NOTE;
/// Name of the track.
pub(super) const NOTE_TRACK: &str = "this file";
/// Category of the note in Perfetto traces, and name of its event in Chrome's.
const CATEGORY: &str = "rpd_file";
/// Number of the sequence that only has the note. Those of units are small.
const SEQUENCE: NonZeroU32 = NonZeroU32::MAX;
/// Name of the argument with the ranks.
const RANKS: &str = "ranks";
/// Number of bytes of a file before compression in which its note is searched.
const SEARCHED_BYTES: usize = 64 << 10;
/// Nanoseconds of a second.
const NS_PER_SECOND: f64 = 1e9;

/// The content of the notes of all files.
pub(super) struct FileNotes {
    run_id: String,
    /// Rows that are missing in the trace or changed.
    not_drawn: String,
    /// Kinds of content that options leave out.
    left_out: String,
    files: usize,
    /// Ranks in each file, such as `0-3,8`.
    ranks: Vec<String>,
}

impl FileNotes {
    /// `ranks` are those in each file.
    pub(super) fn new(run_id: &str, outcome: &TraceOutcome, ranks: Vec<String>) -> FileNotes {
        let lines = outcome.not_drawn.iter().map(|(why, count)| format!("{} {why}", grouped(*count)));
        let lines: Vec<String> = lines.collect();
        let not_drawn = if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") };
        let left_out = outcome.left_out.join(", ");
        FileNotes { run_id: run_id.to_owned(), not_drawn, left_out, files: outcome.files, ranks }
    }

    /// Returns the ranks in a file, such as `0-3,8`.
    pub(super) fn ranks(&self, window: usize) -> &str {
        self.ranks.get(window).map_or("", String::as_str)
    }

    /// Returns the bytes of the note of a file.
    pub(super) fn encode(&self, frame: &FileFrame, window: usize, part: &FilePart) -> Vec<u8> {
        let (from, to) = frame.windows.get(window).unwrap_or_default();
        let (from, to) = (from.saturating_sub(frame.t0), to.saturating_sub(frame.t0));
        let name = self.name(window, from, to);
        let args = self.args(window, part);
        match frame.format {
            TraceFormat::Perfetto | TraceFormat::PerfettoPlain => encode_slice(&name, from, to, &args),
            TraceFormat::ChromeJson => encode_metadata(&name, &args),
        }
    }

    /// Returns a name such as `file 2 of 4: 1.500000 s to 3.000000 s of the run, ranks 0-15`.
    fn name(&self, window: usize, from: i64, to: i64) -> String {
        let mut name = String::new();
        if self.files > 1 {
            let _ = write!(name, "file {} of {}: ", window + 1, self.files);
        }
        let seconds = |ns: i64| ns as f64 / NS_PER_SECOND;
        let _ = write!(name, "{:.6} s to {:.6} s of the run", seconds(from), seconds(to));
        let ranks = self.ranks(window);
        if !ranks.is_empty() {
            let noun = if ranks.bytes().all(|byte| byte.is_ascii_digit()) { "rank" } else { "ranks" };
            let _ = write!(name, ", {noun} {ranks}");
        }
        name
    }

    fn args(&self, window: usize, part: &FilePart) -> Vec<(&'static str, String)> {
        let tally = &part.tally;
        let mut args = vec![("run", self.run_id.clone()), (RANKS, self.ranks(window).to_owned())];
        for (name, count) in [
            ("slices that began before this file", tally.continued),
            ("calls before this file", tally.earlier_calls),
        ] {
            if count > 0 {
                args.push((name, grouped(count)));
            }
        }
        args.push(("left out by options", self.left_out.clone()));
        let of_all = match self.files {
            0 | 1 => "not drawn, or drawn otherwise than merged",
            _ => "not drawn in any file, or drawn otherwise than merged",
        };
        args.push((of_all, self.not_drawn.clone()));
        args.retain(|(_, value)| !value.is_empty());
        args
    }
}

/// Writes a note as a slice over the time of the file, ns since T0, on a track of its own.
fn encode_slice(name: &str, from: i64, to: i64, args: &[(&'static str, String)]) -> Vec<u8> {
    let at = |ns: i64| Timestamp::new(ns).unwrap_or_default();
    let mut sequence = Sequence::new(SEQUENCE);
    // Readers that sort by position draw it before the ranks.
    sequence.track(&Track { rank: Some(-1), ..Track::new(TRACK, NOTE_TRACK) });
    let category = Some(sequence.category(StringId(0), || CATEGORY));
    let name = sequence.event_name(StringId(0), || name);
    let mut annotations = Vec::with_capacity(args.len());
    for (id, (name, value)) in (0..).zip(args) {
        let name = sequence.annotation_name(StringId(id), || name);
        annotations.push(Annotation { name, value: Value::Text(value) });
    }
    sequence.begin(&Event { category, annotations: &annotations, ..Event::new(at(from), TRACK, name) });
    sequence.end(at(to), TRACK);
    sequence.packets().to_vec()
}

/// Writes a note as metadata, which readers ignore, in a line.
fn encode_metadata(name: &str, args: &[(&'static str, String)]) -> Vec<u8> {
    let mut values: Map<String, Json> =
        args.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    values.insert("name".to_owned(), json!(name));
    let event = json!({ "ph": "M", "name": CATEGORY, "pid": 0, "args": values });
    format!("{event},\n").into_bytes()
}

/// Returns the ranks of a file, such as `0-3,8`, from its note; `None` if there is no note with ranks.
pub(super) fn ranks_of(path: &Path) -> Option<String> {
    let start = gunzip_start(open_input(path).ok()?, SEARCHED_BYTES).ok()?;
    let Some(events) = start.strip_prefix(chrome::HEAD) else {
        return first_annotation_text(&start, RANKS);
    };
    let line = events.split(|byte| *byte == b'\n').next()?.strip_suffix(b",")?;
    let event: Json = serde_json::from_slice(line).ok()?;
    let is_note = event["name"] == CATEGORY;
    event["args"][RANKS].as_str().filter(|_| is_note).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rpd_perfetto::{GZIP_HEAD, file_head, gzip_piece, gzip_tail};
    use std::fs;

    fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut packed = GZIP_HEAD.to_vec();
        let checksum = gzip_piece(bytes, 6, &mut packed).unwrap();
        packed.extend(gzip_tail(checksum));
        fs::write(file.path(), packed).unwrap();
        file
    }

    #[test]
    fn the_ranks_of_a_file_are_found_in_its_note() {
        let notes = FileNotes {
            run_id: "5f2a".to_owned(),
            not_drawn: "nothing".to_owned(),
            left_out: String::new(),
            files: 4,
            ranks: vec![String::new(), "0-3,8".to_owned()],
        };
        assert_eq!(
            notes.name(1, 1_500_000_000, 3_000_000_000),
            "file 2 of 4: 1.500000 s to 3.000000 s of the run, ranks 0-3,8"
        );
        let args = notes.args(1, &FilePart::default());
        let perfetto = [file_head(Timestamp::default(), None), encode_slice("name", 0, 5, &args)].concat();
        let chrome = [chrome::HEAD, &encode_metadata("name", &args), chrome::TAIL].concat();
        for bytes in [&perfetto, &chrome] {
            assert_eq!(ranks_of(written(bytes).path()).as_deref(), Some("0-3,8"));
        }
        let without = notes.args(0, &FilePart::default());
        for bytes in [encode_slice("name", 0, 5, &without), b"no trace".to_vec()] {
            assert_eq!(ranks_of(written(&bytes).path()), None);
        }
        let read: Json = serde_json::from_slice(&chrome).unwrap();
        assert_eq!(read["traceEvents"][0]["args"]["run"], "5f2a");
    }
}
