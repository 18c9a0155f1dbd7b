//! `--clock-file`: offsets of clocks that a site measured itself. docs/MERGING.md has the format.

use crate::clock::{BarKnot, DomainFit, Method, TimeMap};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longest file that is read, bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Distance of the points that a line is drawn through, ns.
const REACH: i128 = 1_000_000_000_000;
/// No clock is so much faster than another, parts per million.
const MAX_DRIFT: f64 = 100_000.0;
/// No offset is larger, ns: 100 years.
const MAX_OFFSET: i64 = 3_155_760_000_000_000_000;

/// What a clock file says.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClockFile {
    /// The node whose clock the others are compared with.
    reference: String,
    entries: Vec<Entry>,
}

/// One measurement: a line of the file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Entry {
    node: String,
    /// Time of the reference minus that of the node, ns.
    offset: i64,
    /// When, ns of the node's clock.
    at: i64,
    /// How much faster than the reference's the node's clock is, parts per million.
    drift: f64,
    /// How far off the offset may be, ns.
    error: Option<i64>,
}

/// Why a clock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClockFileError {
    /// It cannot be read.
    #[error("clock file {0}: {1}")]
    Io(String, io::Error),
    /// A line says nothing that is understood.
    #[error(
        "clock file {0}, line {1}: {2}; a line is NODE offset=NS [at=NS] [drift_ppm=N] [error=NS], or reference NODE"
    )]
    Line(String, usize, String),
    /// No line names the reference.
    #[error("clock file {0}: no line says whose clock the offsets are against: add `reference NODE`")]
    NoReference(String),
}

impl ClockFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<ClockFile, ClockFileError> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| ClockFileError::Io(name.clone(), error))?;
        if text.len() as u64 > MAX_BYTES {
            let error = io::Error::other(format!("it is longer than {MAX_BYTES} bytes"));
            return Err(ClockFileError::Io(name, error));
        }
        ClockFile::parse(&text, &name)
    }

    fn parse(text: &str, name: &str) -> Result<ClockFile, ClockFileError> {
        let mut file = ClockFile::default();
        let mut seen = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let wrong = |what: String| ClockFileError::Line(name.to_owned(), number, what);
            let mut words = line.split_whitespace();
            let Some(first) = words.next() else { continue };
            if first == "reference" {
                let node = words.next().filter(|_| words.next().is_none() && file.reference.is_empty());
                file.reference =
                    node.ok_or_else(|| wrong("one reference, and nothing else, is wanted".into()))?.into();
                continue;
            }
            let entry = Entry::parse(first, words).map_err(wrong)?;
            if !seen.insert((entry.node.clone(), entry.at)) {
                return Err(wrong(format!("{} at {} is there twice", entry.node, entry.at)));
            }
            file.entries.push(entry);
        }
        if file.reference.is_empty() {
            return Err(ClockFileError::NoReference(name.to_owned()));
        }
        file.entries.sort_by(|a, b| (&a.node, a.at).cmp(&(&b.node, b.at)));
        Ok(file)
    }

    /// How times of a node become those of the merge's reference, where the file knows both. Nodes are given by all
    /// their names.
    pub fn fit(&self, node: &[String], reference: &[String]) -> Option<DomainFit> {
        let back = self.lines(reference)?;
        let lines = self.lines(node)?;
        let error = |lines: &[Line<'_>]| {
            lines.iter().map(|l| l.0.map_or(Some(0), |e| e.error)).try_fold(0, |a, e| Some(a.max(e?)))
        };
        let errors = error(&lines).zip(error(&back)).map(|(a, b)| a.saturating_add(b));
        // To the clock that the file is about, and from there to the merge's.
        let back = back.first()?;
        let points: Vec<(i64, i64)> = points(&lines)
            .into_iter()
            .filter_map(|(local, site)| {
                Some((i64::try_from(local).ok()?, i64::try_from(back.back(site)).ok()?))
            })
            .collect();
        let knot = |&(local, job): &(i64, i64)| BarKnot {
            local,
            offset: job.saturating_sub(local),
            bar: errors.unwrap_or(0),
            hard: None,
            growth: 0,
        };
        let middle = points.get(points.len() / 2).map(|(local, job)| job.saturating_sub(*local))?;
        let bars = if errors.is_some() { points.iter().map(knot).collect() } else { Vec::new() };
        let map = TimeMap::through(points);
        Some(DomainFit {
            method: Method::ClockFile,
            drift_ppm: map.drift_ppm(),
            map,
            probes: 0,
            collectives: 0,
            offset: middle,
            bars,
            steps: Vec::new(),
            contradictions: 0,
        })
    }

    /// The measurements of a node; of the file's reference one that is exact.
    fn lines(&self, names: &[String]) -> Option<Vec<Line<'_>>> {
        if names.contains(&self.reference) {
            return Some(vec![Line(None)]);
        }
        let lines: Vec<_> =
            self.entries.iter().filter(|e| names.contains(&e.node)).map(|e| Line(Some(e))).collect();
        (!lines.is_empty()).then_some(lines)
    }

    /// What of the file has no use: `nodes` are the names of the job's nodes, `reference` those of its reference.
    pub fn unused(&self, nodes: &[Vec<String>], reference: &[String]) -> Vec<String> {
        if self.lines(reference).is_none() {
            let reference = reference.first().map_or("the reference", String::as_str);
            return vec![format!(
                "the clock file does not know {reference}, whose clock the merge uses: nothing of it was used"
            )];
        }
        let known = |name: &String| nodes.iter().any(|names| names.contains(name));
        let mut others: Vec<&str> =
            self.entries.iter().map(|e| &e.node).filter(|n| !known(n)).map(String::as_str).collect();
        others.dedup();
        others.truncate(10);
        others
            .iter()
            .map(|name| format!("the clock file names {name}, which is no node of this job"))
            .collect()
    }
}

/// The straight line of a measurement; of the file's reference none.
#[derive(Clone, Copy)]
struct Line<'a>(Option<&'a Entry>);

impl Line<'_> {
    /// The time of the file's reference at a time of the node.
    fn there(&self, local: i128) -> i128 {
        let Some(entry) = self.0 else { return local };
        let rate = entry.drift * 1e-6;
        let since = local - i128::from(entry.at);
        local + i128::from(entry.offset) - (since as f64 * (rate / (1.0 + rate))).round() as i128
    }

    /// The time of the node at a time of the file's reference.
    fn back(&self, site: i128) -> i128 {
        let Some(entry) = self.0 else { return site };
        let since = site - i128::from(entry.offset) - i128::from(entry.at);
        i128::from(entry.at) + since + (since as f64 * entry.drift * 1e-6).round() as i128
    }
}

/// Times of a node and of the file's reference, on both sides of each measurement.
fn points(lines: &[Line<'_>]) -> Vec<(i128, i128)> {
    let at = |line: &Line<'_>| line.0.map_or(0, |entry| i128::from(entry.at));
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Vec::new() };
    let mut points = vec![(at(first) - REACH, first.there(at(first) - REACH))];
    points.extend(lines.iter().map(|line| (at(line), line.there(at(line)))));
    points.push((at(last) + REACH, last.there(at(last) + REACH)));
    points
}

impl Entry {
    fn parse<'a>(node: &str, words: impl Iterator<Item = &'a str>) -> Result<Entry, String> {
        let mut entry = Entry { node: node.to_owned(), offset: 0, at: 0, drift: 0.0, error: None };
        let mut has_offset = false;
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is no NAME=VALUE"))?;
            let whole = || {
                let number: i64 =
                    value.parse().map_err(|_| format!("{word:?}: whole nanoseconds are wanted"))?;
                if number.unsigned_abs() <= MAX_OFFSET.unsigned_abs() {
                    Ok(number)
                } else {
                    Err(format!("{word:?} is too much"))
                }
            };
            match name {
                "offset" => (entry.offset, has_offset) = (whole()?, true),
                "at" => entry.at = whole()?,
                "error" => {
                    entry.error = Some(whole()?)
                        .filter(|e| *e >= 0)
                        .ok_or_else(|| format!("{word:?} is negative"))?
                        .into()
                }
                "drift_ppm" => {
                    let drift = value.parse::<f64>().ok().filter(|d| d.abs() <= MAX_DRIFT);
                    entry.drift = drift.ok_or_else(|| format!("{word:?}: parts per million are wanted"))?;
                }
                _ => return Err(format!("{name:?} is not known")),
            }
        }
        if has_offset { Ok(entry) } else { Err("there is no offset".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpd_shard::model::LocalNs;

    fn names(name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    #[test]
    fn offsets_drifts_and_other_references_are_applied() {
        let text =
            "# of our site\nreference head\na offset=1000 error=5\nb offset=-500 at=0 drift_ppm=100 # fast\n";
        let file = ClockFile::parse(text, "f").unwrap();
        let map = |node: &str, reference: &str, time| {
            file.fit(&names(node), &names(reference)).unwrap().map.map(LocalNs(time)).ns()
        };
        assert_eq!(map("a", "head", 42), 1_042);
        assert_eq!(map("head", "a", 1_042), 42);
        assert_eq!(map("a", "b", 0), 1_500);
        // In a second of its own a clock that is 100 ppm fast gains 99.99 us.
        assert_eq!(map("b", "head", 1_000_000_000), 1_000_000_000 - 500 - 99_990);
        assert_eq!(file.fit(&names("c"), &names("head")), None);
        assert_eq!(file.fit(&names("a"), &names("c")), None);
        let fit = file.fit(&names("a"), &names("head")).unwrap();
        assert_eq!((fit.offset, fit.usual_bar()), (1_000, Some(5)));
        assert_eq!(file.fit(&names("b"), &names("head")).unwrap().usual_bar(), None);
        assert_eq!(file.unused(&[names("head"), names("a")], &names("head")).len(), 1);
        assert!(file.unused(&[names("x")], &names("x"))[0].contains("does not know x"));
    }

    #[test]
    fn between_two_measurements_times_are_straight() {
        let file = ClockFile::parse("reference r\nn offset=0 at=0\nn offset=100 at=1000\n", "f").unwrap();
        let fit = file.fit(&names("n"), &names("r")).unwrap();
        assert_eq!(fit.map.map(LocalNs(500)).ns(), 550);
        assert_eq!(fit.map.map(LocalNs(2_000)).ns(), 2_100);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line) in [
            ("reference r\n\nn ofset=3", "line 3"),
            ("n offset=1.5", "line 1"),
            ("n at=1", "line 1"),
            ("n offset=1 drift_ppm=nan\n", "line 1"),
            ("n offset=1\nn offset=2", "line 2"),
            ("reference a\nreference b", "line 2"),
            ("n offset=1", "reference NODE"),
            ("n offset=9223372036854775807", "line 1"),
        ] {
            let error = ClockFile::parse(text, "f").unwrap_err().to_string();
            assert!(error.contains(line) && error.contains('f'), "{text}: {error}");
        }
    }
}
