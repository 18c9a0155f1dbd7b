//! Finds files with times far from those of all others; mostly they belong to another run.

use super::job_clocks::JobClocks;
use crate::input::host_clocks::MERGED_TIME_NAMESPACE;
use crate::input::survey::InputSurvey;
use rpd_clocks::AlignMethod;
use rpd_comm::{Comm, all_gather_values};
use rpd_console::Failure;
use rpd_console::wording::{counted, grouped};

const DAY_NS: i64 = 86_400_000_000_000;
/// Minimum distance between files that belong to different runs, ns.
const MIN_RUN_DISTANCE_NS: i64 = 7 * DAY_NS;

/// First and last time of a file, job time, ns.
type Span = (i64, i64);

/// Returns a note about files that are a week or more away from most others. All ranks get the same text.
pub(crate) fn note_of_files_far_apart(
    comm: &impl Comm,
    surveys: &[InputSurvey],
    clocks: &JobClocks,
) -> Result<Option<String>, Failure> {
    let own: Vec<Option<Span>> = surveys.iter().map(|survey| span(survey, clocks)).collect();
    let known: Vec<Span> = own.iter().flatten().copied().collect();
    let Some(most) = most(all_gather_values(comm, &known)?.concat()) else { return Ok(None) };
    let far_apart = own.iter().zip(surveys).filter_map(|(span, survey)| {
        let far = distance((*span)?, most);
        (far >= MIN_RUN_DISTANCE_NS).then(|| (survey.input.path().display().to_string(), far))
    });
    let far_apart: Vec<(String, i64)> = far_apart.collect();
    Ok(words(&all_gather_values(comm, &far_apart)?.concat()))
}

/// Returns the span of a survey, as far as its times are known and aligned.
fn span(survey: &InputSurvey, clocks: &JobClocks) -> Option<Span> {
    let of_source = |process: &rpd_shard::record::Process| {
        let fit = clocks.process_fit(process);
        let is_known = process.first_seen > 0
            && process.domain.time_namespace != MERGED_TIME_NAMESPACE
            && fit.fit.method != AlignMethod::None;
        let mut ends = [process.first_seen, process.last_seen.unwrap_or(process.first_seen)];
        fit.map_all(&mut ends);
        is_known.then_some((ends[0], ends[1].max(ends[0])))
    };
    let spans = survey.sources.iter().filter_map(|source| of_source(&source.process));
    spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Returns the span that contains most files, if there are other spans. A span ends before a gap of at least [`MIN_RUN_DISTANCE_NS`].
fn most(mut spans: Vec<Span>) -> Option<Span> {
    spans.sort_unstable();
    let mut groups: Vec<(Span, usize)> = Vec::new();
    for span in spans {
        match groups.last_mut() {
            Some((known, count)) if distance(span, *known) < MIN_RUN_DISTANCE_NS => {
                (known.1, *count) = (known.1.max(span.1), *count + 1);
            }
            _ => groups.push((span, 1)),
        }
    }
    let several = groups.len() > 1;
    // If two spans have equally many files, the later one is used, because old files are more likely to be leftovers.
    groups.into_iter().max_by_key(|(_, count)| *count).map(|(span, _)| span).filter(|_| several)
}

/// Returns the gap between two spans, ns; 0 if they overlap.
fn distance(a: Span, b: Span) -> i64 {
    a.0.saturating_sub(b.1).max(b.0.saturating_sub(a.1)).max(0)
}

fn words(found: &[(String, i64)]) -> Option<String> {
    let (path, far) = found.first()?;
    let files = match found.len() {
        1 => format!("{path} has"),
        count => format!("{} have", counted(count as u64, "file") + ", as " + path + ","),
    };
    let days = grouped((far / DAY_NS) as u64);
    Some(format!("{files} times that are {days} days from those of the others: is that another run?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_files_share_is_found() {
        let at = |day: i64| (day * DAY_NS, day * DAY_NS + 1);
        assert_eq!(most(vec![at(0), at(1), at(2)]), None);
        // A long run, with files of each week.
        assert_eq!(most(vec![(0, 20 * DAY_NS), at(19), at(25), at(30)]), None);
        assert_eq!(most(vec![at(40), at(0), at(41), at(20)]), Some((40 * DAY_NS, 41 * DAY_NS + 1)));
        assert_eq!(most(vec![at(0), at(20)]), Some(at(20)));
        assert_eq!(distance(at(0), (40 * DAY_NS, 41 * DAY_NS)), 40 * DAY_NS - 1);
        assert_eq!(distance(at(1), (0, 2 * DAY_NS)), 0);
    }

    #[test]
    fn one_file_is_named_and_several_are_counted() {
        let one = words(&[("a.json".into(), 9 * DAY_NS + 5)]).unwrap();
        assert_eq!(one, "a.json has times that are 9 days from those of the others: is that another run?");
        let two = words(&[("a.json".into(), 9_000 * DAY_NS), ("b.json".into(), 8 * DAY_NS)]).unwrap();
        assert!(two.starts_with("2 files, as a.json, have times that are 9,000 days"), "{two}");
        assert_eq!(words(&[]), None);
    }
}
