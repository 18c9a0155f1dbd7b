//! Assigns the lines of a clock file to the clocks of a job.

use super::parse::written;
use super::track::FileTrack;
use super::{ClockFile, Entry, check};
use crate::DomainFit;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of names that a note repeats.
const MAX_SHOWN_NAMES: usize = 10;

/// A clock domain of the job with the names by which a file may refer to it.
#[derive(Clone, Debug, Default)]
pub struct NamedDomain {
    /// Names of the domain. The first one is unique. A file cannot refer to a domain without names.
    pub names: Vec<String>,
    /// Middle of the time in which the domain was observed, ns of its clock, if known.
    pub middle: Option<i64>,
}

/// Result of applying a clock file to a job.
#[derive(Debug, Default)]
pub struct ResolvedEntries {
    /// Fit of each domain to the merge's reference, where the file determines it.
    pub fits: Vec<Option<DomainFit>>,
    /// Notes on lines that were not used or have unusual rates.
    pub notes: Vec<String>,
}

/// Domains that a name matches.
enum NameMatch {
    None,
    One(usize),
    /// First names of the matching domains.
    Several(Vec<String>),
}

impl ClockFile {
    /// Computes how the times of the job's `domains` map to those of `reference`, for domains with clocks that the
    /// file relates to it.
    pub fn resolve(&self, domains: &[NamedDomain], reference: usize) -> ResolvedEntries {
        let mut resolved =
            ResolvedEntries { fits: vec![None; domains.len()], notes: self.unusual_rates.clone() };
        let by_name = by_name(domains);
        let against = match match_name(&by_name, domains, &self.reference) {
            NameMatch::None => None,
            NameMatch::One(domain) => Some(domain),
            NameMatch::Several(names) => {
                resolved.notes.push(ambiguous("`reference`", &self.reference, &names, "of the file"));
                return resolved;
            }
        };
        let lines = resolved.sort(self, &by_name, domains, against);
        let mut tracks: BTreeMap<usize, FileTrack> = BTreeMap::new();
        for (domain, mut lines) in lines {
            lines.sort_by_key(|entry| (entry.at, entry.line));
            match check(&lines) {
                Ok(_) => tracks.extend(FileTrack::through(&lines).map(|track| (domain, track))),
                // The lines use several names of the domain. Lines with the same name were checked before.
                Err((line, what)) => {
                    resolved.notes.push(format!("clock file, line {line}: {what}: none of them was used"));
                }
            }
        }
        tracks.extend(against.map(|domain| (domain, FileTrack::identity())));
        let Some(to) = tracks.get(&reference) else {
            let name = domains.get(reference).and_then(|named| named.names.get(1).or(named.names.first()));
            let name = name.map_or("the reference".to_owned(), |name| written(name));
            resolved.notes.push(format!(
                "the clock file does not contain the clock of {name}, which the merge uses: the file was ignored"
            ));
            return resolved;
        };
        for (&domain, track) in tracks.iter().filter(|(domain, _)| **domain != reference) {
            let middle = domains.get(domain).and_then(|named| named.middle);
            if let Some(fit) = resolved.fits.get_mut(domain) {
                *fit = Some(track.fit(to, middle.unwrap_or(track.middle())));
            }
        }
        resolved
    }
}

impl ResolvedEntries {
    /// Returns the lines of each domain. `against` is the domain of the file's reference.
    fn sort<'a>(
        &mut self,
        file: &'a ClockFile,
        by_name: &HashMap<&str, Vec<usize>>,
        domains: &[NamedDomain],
        against: Option<usize>,
    ) -> BTreeMap<usize, Vec<&'a Entry>> {
        let mut sorted: BTreeMap<usize, Vec<&Entry>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for lines in file.entries.chunk_by(|a, b| a.node == b.node) {
            let Some(first) = lines.first() else { continue };
            let place = format!("line {}:", lines.iter().map(|entry| entry.line).min().unwrap_or(first.line));
            match match_name(by_name, domains, &first.node) {
                found
                    if first.node == file.reference
                        || matches!(found, NameMatch::One(domain) if Some(domain) == against) =>
                {
                    if !lines.iter().all(Entry::is_identity) {
                        self.notes.push(format!(
                            "clock file, {place} {} is the reference, which is not moved: the line was not used",
                            written(&first.node)
                        ));
                    }
                }
                NameMatch::One(domain) => sorted.entry(domain).or_default().extend(lines),
                NameMatch::None => unknown.push(written(&first.node)),
                NameMatch::Several(names) => self.notes.push(ambiguous(&place, &first.node, &names, "there")),
            }
        }
        if !unknown.is_empty() {
            let (count, more) = (unknown.len(), unknown.len().saturating_sub(MAX_SHOWN_NAMES));
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            unknown.truncate(MAX_SHOWN_NAMES);
            let what =
                if count == 1 { "1 node that is".to_owned() } else { format!("{count} nodes that are") };
            self.notes
                .push(format!("the clock file names {what} not in this job: {}{more}", unknown.join(", ")));
        }
        sorted
    }
}

fn by_name(domains: &[NamedDomain]) -> HashMap<&str, Vec<usize>> {
    let mut found: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, named) in domains.iter().enumerate() {
        for name in &named.names {
            let fitting = found.entry(name).or_default();
            if fitting.last() != Some(&place) {
                fitting.push(place);
            }
        }
    }
    found
}

fn match_name(by_name: &HashMap<&str, Vec<usize>>, domains: &[NamedDomain], name: &str) -> NameMatch {
    match by_name.get(name).map_or(&[][..], Vec::as_slice) {
        [] => NameMatch::None,
        [one] => NameMatch::One(*one),
        several => {
            let names = several.iter().filter_map(|place| domains.get(*place)?.names.first());
            NameMatch::Several(names.map(|name| written(name)).collect())
        }
    }
}

/// Describes a name that fits several clocks.
fn ambiguous(place: &str, name: &str, names: &[String], scope: &str) -> String {
    let more = if names.len() > MAX_SHOWN_NAMES { ", ..." } else { "" };
    let shown: Vec<&str> = names.iter().take(MAX_SHOWN_NAMES).map(String::as_str).collect();
    format!(
        "clock file, {place} {} fits {} clocks of this job: nothing {scope} was used; write one of {}{more}",
        written(name),
        names.len(),
        shown.join(", ")
    )
}
